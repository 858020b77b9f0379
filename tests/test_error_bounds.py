"""Is what a right result may be off as small as it can be, and large enough where it has to be?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from adapters.reference.evaluate import evaluate
from cases.arrays import pack
from cases.load import load
from cases.model import Case
from suites.array_difference import difference, tolerances

CASE = """
[[case]]
id = "a"
mesh = {{ x = 2 }}
program = {program}
inputs.x = {{ shape = [4, 4], dtype = "{dtype}", spec = "P('x')", values = {values} }}
inputs.m = {{ shape = [4, 4], dtype = "bool", spec = "P('x')", values = [
  [false, true, true, true], [false, false, true, true], [false, false, false, true],
  [false, false, false, false],
] }}
"""
ARANGE = '"arange"'


def case_of(folder: Path, *program: str, dtype: str = "float32", values: str = ARANGE) -> Case:
    """A case of one input x and a causal mask m."""
    path = folder / "case.toml"
    path.write_text(CASE.format(program=list(program), dtype=dtype, values=values))
    (case,) = load(path)
    return case


def accepts(case: Case, name: str, factor: float) -> bool:
    """Whether the right value of a result, times a factor, would be right too."""
    known = evaluate(case.question)
    off = (known[name] * factor).astype(known[name].dtype)
    return difference(pack(known[name]), pack(off), tolerances(case, known)[name]) is None


@pytest.mark.parametrize("factor", [0.0, 2.0, 0.5])
@pytest.mark.parametrize(
    ("program", "dtype"),
    [
        (("b = masked_fill(x, m, value=-1e9)", "y = softmax(b, axis=1)"), "float32"),
        (("y = softmax(x, axis=1)",), "bfloat16"),
        (("s = square(x)", "t = add(s, 1)", "y = reciprocal(t)"), "bfloat16"),
        (("b = add(x, 1e6)", "c = subtract(b, 1e6)", "y = add(c, 100)"), "float32"),
    ],
)
def test_a_large_value_on_the_way_allows_nothing_where_it_does_not_matter(
    tmp_path: Path, program: tuple[str, ...], dtype: str, factor: float
) -> None:
    """Nothing, twice and half are wrong, whatever large numbers were met."""
    assert not accepts(case_of(tmp_path, *program, dtype=dtype), "y", factor)


def test_what_cancels_may_be_off_by_the_roundings_of_what_it_is_the_difference_of(
    tmp_path: Path,
) -> None:
    """The sine of what is left of a million may be off by much more than a rounding."""
    case = case_of(tmp_path, "b = add(x, 1e6)", "c = subtract(b, 1e6)", "y = sin(c)")
    allowed = tolerances(case, evaluate(case.question))["y"]
    assert 0.05 < allowed.atol < 4


def test_a_sum_that_cancels_may_be_off_by_the_roundings_of_its_addends(tmp_path: Path) -> None:
    values = "[[1e6, -1e6, 0.1, 0], [1e6, -1e6, 0.1, 0], [1, 2, 3, 0.5], [1, 2, 3, 0.5]]"
    case = case_of(tmp_path, "y = sum(x, axis=1)", values=values)
    allowed = tolerances(case, evaluate(case.question))["y"]
    assert 0.05 < allowed.atol < 10


@pytest.mark.parametrize(
    ("program", "free"),
    [
        (("r = relu(x)", "l = sum(r)", "g = grad(l, x)"), 1),
        (("r = maximum(x, 2)", "l = sum(r)", "g = grad(l, x)"), 1),
        (("r = clip(x, min=1, max=2)", "l = sum(r)", "g = grad(l, x)"), 2),
        (("r = tanh(x)", "l = sum(r)", "g = grad(l, x)"), 0),
    ],
)
def test_a_gradient_is_left_out_where_there_is_a_kink(
    tmp_path: Path, program: tuple[str, ...], free: int
) -> None:
    """There any slope between those of the two sides is right; nowhere else is any left out."""
    case = case_of(tmp_path, *program)
    known = evaluate(case.question)
    mask = tolerances(case, known)["g"].free
    assert (0 if mask is None else int(np.frombuffer(mask.data, np.bool_).sum())) == free


def test_infinities_are_compared_without_a_warning(tmp_path: Path) -> None:
    """A floor of an infinity, the place of a largest one, and a move and a sum of some."""
    lasts = ("y = floor(d)", "y = argmax(d, axis=0)", "y = flip(d, axis=0)", "y = sum(d, axis=1)")
    for last in lasts:
        case = case_of(tmp_path, "z = multiply(x, 0.0)", "d = divide(x, z)", last)
        assert "y" in tolerances(case, evaluate(case.question))
