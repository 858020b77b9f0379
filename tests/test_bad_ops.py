"""Is a step that an op does not take refused? With the step, what was found and what is wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from cases.errors import BadInput
from cases.load import load
from cases.ops import OPS
from cases.ops.other_names import OTHER_NAMES
from tests.runs import run

CASE = """
[[case]]
id = "a"
mesh = {{ x = 4 }}
program = ["{step}"]
{more}
[case.inputs]
x = {{ shape = [8, 4], placements = ["S(0)"] }}
i = {{ shape = [4], placements = ["R"], dtype = "int64", values = [0, 2, 9, 1] }}
m = {{ shape = [8, 4], placements = ["R"], dtype = "bool", values = true }}
"""

STEPS = {
    "y = linear(x)": "found 1 argument, wanted 2 for linear: x, w, optionally also b",
    "y = linear(x, x, x, x)":
        "found 4 arguments, wanted 2 for linear: x, w, optionally also b",
    "y = arange(x, n=4, placements=['R'])": "found 1 argument, wanted 0 for arange: none",
    "y = arange(n=4)": "found no layout, wanted a PartitionSpec, or placements by axis",
    "y = take(x, 3, axis=0)": "found number 3, wanted names only: take takes no numbers",
    "y = take(x, x, axis=0)": "(NumPy: indices must be integers, not float32)",
    "y = mean(i)": "(NumPy: takes floating-point numbers, not int64)",
    "y = sigmoid(i)": "(NumPy: takes floating-point numbers, not int64)",
    "y = sum(sum(x), axis=0)": "(NumPy: axis 0 is out of bounds for array of dimension 0)",
    "y = softmax(sum(x))": "(NumPy: axis -1 is out of bounds for array of dimension 0)",
    "y = tril(i)": "(NumPy: the operand must have two dims or more)",
    "y = layer_norm(x, x)":
        "(NumPy: the operand needs a dim, and weights as long as its last one)",
    "y = where(1, x, x)": "(NumPy: takes a boolean condition, not a number)",
    "y = inplace_add(1, x)": "(NumPy: a number cannot be changed in place)",
    "y = left_shift(x, 2)": "(NumPy: takes integers, not float32)",
    "y = i << -1": "(NumPy: shifts must be by 0 to 63 places)",
    "y = bitwise_and(x, x)": "(NumPy: takes integers or booleans, not float32)",
    "y = floor_divide(i, 0)": "(NumPy: integers divided by 0)",
    "y = floor(m)": "(NumPy: takes numbers, not bool)",
    "y = shift_left(i, 2)": "found op 'shift_left', wanted left_shift, its name here",
    "y = cumsum(x, axis=0)": "found op 'cumsum', wanted cumulative_sum, its name here",
    "y = shift_lift(i, 2)": "found op 'shift_lift', wanted a known op",
    "y = where(x, x, x)": "(NumPy: takes a boolean condition, not float32)",
    "y = astype(x, dtype='float8')": "found dtype = 'float8', wanted a dtype: bool, uint8,",
    "y = reshape(x, shape=[5, -1])": "(NumPy: cannot reshape array of size 32 into shape (5,",
    "y = reshape(x, shape=[1.5])": "wanted a list of sizes, at most 16,777,216 elements",
    "y = full(shape=[65536, 65536], value=1, placements=['R'])":
        "wanted a list of sizes, at most 16,777,216 elements",
    "y = repeat(x, repeats=9999999, axis=0)":
        "found repeats = 9,999,999 of 32, wanted at most 16,777,216 elements",
    "y = mse_loss(x, x, reduction='max')":
        "found reduction = 'max', wanted 'mean', 'sum' or 'none'",
    "y = mse_loss(x, i)": "(NumPy: takes operands of one dtype, not float32 and int64)",
    "y = split(x, sections=3, part=0, axis=0)": "(NumPy: part 0 of 3 equal parts of 8)",
    "y = sum(x, axis=[0, 0])": "(NumPy: duplicate value in 'axis')",
    "y = vector_norm(x, ord=0)": "(NumPy: ord 0 is not one of 1, 2, … and 'inf')",
    "y = set_slice(x, axis=0)": "(NumPy: an array to write or a value is missing)",
    "y = topk_values(x, k=9)": "(NumPy: the largest 9 of 4)",
    "y = item(x)": "(NumPy: the array must have one element)",
    "y = inv(x)": "(NumPy: Last 2 dimensions of the array must be square)",
}  # fmt: skip


def _refusal(tmp_path: Path, step: str, more: str = "") -> str:
    path = tmp_path / "cases.toml"
    path.write_text(CASE.format(step=step, more=more))
    with pytest.raises(BadInput) as refused:
        load(path)
    return str(refused.value)


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_an_op_does_not_take_is_refused(tmp_path: Path, step: str) -> None:
    """One line."""
    said = _refusal(tmp_path, step)
    assert STEPS[step] in said
    assert 'case "a": program' in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("y = take(x, i, axis=0)", "y = take(x, i), wanted values that take takes"
         " (NumPy: indices must be from 0 to 7)"),
        ("y = nll_loss(x, t)", "y = nll_loss(x, t), wanted values that nll_loss takes"
         " (NumPy: classes must be from 0 to 3)"),
        ("y = inv(matmul(x, s))", "y = inv(y_1), wanted values that inv takes"
         " (NumPy: Singular matrix)"),
    ],
)  # fmt: skip
def test_a_step_without_a_value_is_refused_before_anything_starts(
    tmp_path: Path, step: str, said: str
) -> None:
    """Where shapes suit and the values do not: one line, and no framework is asked."""
    path = tmp_path / "cases.toml"
    text = CASE.format(step=step, more="")
    text = text.replace("[8, 4]", "[4, 4]") if "inv" in step else text
    text += 's = { shape = [4, 4], placements = ["R"], values = 1 }\n'
    text += 't = { shape = [8], placements = ["R"], dtype = "int64", values = 7 }\n'
    path.write_text(text)
    ran = run(tmp_path, f"--cases={path}")
    assert ran.code == 4
    (line,) = [line for line in ran.out.splitlines() if line.strip()]
    assert line == f'ERROR: {path}: case "a": program: found no value of {said}'


def test_a_mesh_step_comes_after_what_there_is(tmp_path: Path) -> None:
    """An input or a result."""
    more = 'mesh_steps = [["f", "mesh_flatten", ["x"], { after = "z" }]]'
    said = _refusal(tmp_path, "y = exp(x)", more)
    assert "mesh_steps[0][3].after: found 'z', wanted an input or a result: x, i, m, y" in said


def test_what_an_op_places_is_placed_once(tmp_path: Path) -> None:
    """The same layout in ``to`` is no contradiction, another is."""
    step = "y = full(shape=[8, 4], value=1, placements=['S(0)'])"
    path = tmp_path / "same.toml"
    path.write_text(CASE.format(step=step, more="to = { y = \"P('x')\" }"))
    assert load(path)[0].question.steps[0].to is not None
    said = _refusal(tmp_path, step, 'to = { y = ["R"] }')
    assert "to.y: found a second layout, wanted the one in the program" in said


def test_every_other_name_is_of_an_op_and_is_none() -> None:
    """What the error names can be typed, and no op is hidden by the name of another."""
    assert {*OTHER_NAMES.values()} <= {*OPS}
    assert not {*OTHER_NAMES} & {*OPS}
