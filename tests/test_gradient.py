"""Is the reference's gradient the derivative? Held against derivatives known from calculus."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from adapters.reference.evaluate import evaluate, steps_between
from adapters.reference.gradient import ERROR, gradient
from cases.errors import BadInput
from cases.load import load

POINT = np.array([[0.75, -1.5], [2.25, 0.0625]])

PROGRAM = """
[[case]]
id = "a"
mesh = {{ x = 2 }}
program = [{program}]
[case.inputs]
x = {{ shape = [2, 2], placements = ["S(0)"], values = [[1, 2], [3, 4]] }}
w = {{ shape = [2, 2], placements = ["R"], values = [[1, -1], [2, 0.5]] }}
i = {{ shape = [3], placements = ["R"], dtype = "int64", values = [0, 1, 1] }}
"""


def _values(tmp_path: Path, *steps: str) -> dict[str, np.ndarray]:
    path = tmp_path / "cases.toml"
    path.write_text(PROGRAM.format(program=", ".join(f'"{step}"' for step in steps)))
    return evaluate(load(path)[0].question)


@pytest.mark.parametrize(
    ("function", "derivative"),
    [
        (lambda x: (x**4).sum(), lambda x: 4 * x**3),
        (lambda x: np.exp(x).sum(), np.exp),
        (lambda x: np.log(x * x + 1).sum(), lambda x: 2 * x / (x * x + 1)),
        (lambda x: np.sin(x).prod(), lambda x: np.sin(x).prod() / np.tan(x)),
    ],
)
def test_differences_are_as_close_to_the_derivative_as_they_say(
    function: object, derivative: object
) -> None:
    """Within `ERROR`, of functions that are no polynomials too."""
    got = gradient(function, POINT)  # type: ignore[arg-type]
    np.testing.assert_allclose(got, derivative(POINT), atol=ERROR)  # type: ignore[operator]


def test_a_gradient_is_that_of_the_program(tmp_path: Path) -> None:
    """That of sum((x w) * (x w)) by x is 2 x w wᵀ, in the dtype of x."""
    values = _values(tmp_path, "y = matmul(x, w)", "l = sum(y * y)", "g = grad(l, x)")
    x, w = values["x"].astype(np.float64), values["w"].astype(np.float64)
    assert values["g"].dtype == np.float32
    np.testing.assert_allclose(values["g"], 2 * x @ w @ w.T, rtol=1e-6)


def test_only_what_depends_on_the_input_is_done_again(tmp_path: Path) -> None:
    """Steps that lead nowhere, or come from elsewhere, are not on the way."""
    path = tmp_path / "cases.toml"
    steps = ["u = exp(w)", "y = x * u", "z = exp(x)", "l = sum(y)", "g = grad(l, x)"]
    path.write_text(PROGRAM.format(program=", ".join(f'"{step}"' for step in steps)))
    question = load(path)[0].question
    assert [step.result for step in steps_between(question, "l", "x")] == ["y", "l"]


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (["l = sum(x)", "g = grad(l, l)"], "found the gradient by 'l', wanted an input: x, w, i"),
        (["l = sum(x)", "g = grad(l, w)"],
         "found the gradient of 'l' by 'w', wanted a result of w"),
        (["y = exp(x)", "g = grad(y, x)"], "arguments that grad takes (NumPy: takes a real scalar"),
        (["l = sum(x)", "g = grad(l, x)", "s = sum(g)", "h = grad(s, x)"],
         "found the gradient of a gradient, wanted the gradient of a value"),
        (["y = embedding(i, x, padding_row=1)", "l = sum(y)", "g = grad(l, x)"],
         "found a gradient through an embedding with padding_row, wanted one without"),
    ],
)  # fmt: skip
def test_what_is_no_gradient_is_refused(tmp_path: Path, steps: list[str], said: str) -> None:
    """With the step, what was found and what is wanted."""
    with pytest.raises(BadInput) as refused:
        _values(tmp_path, *steps)
    assert said in str(refused.value)
    assert "program[" in str(refused.value)
