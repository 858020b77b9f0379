"""Does the language of the op tables choose and fill lines as its module says?"""

from __future__ import annotations

import pytest

from adapters.jax_xla.op_table import OP_TABLE as JAX
from adapters.op_lines import Entry, choose_line, fill_line, format_literal, given_texts
from adapters.torch_dtensor.op_table import OP_TABLE as TORCH
from adapters.unsupported import CannotAnswer
from cases.model import Step
from cases.ops import OPS

FILTERS = {"long": lambda call, name: f"{call[name]}.long()"}


def write(entry: Entry[dict[str, str]], **given: str) -> str:
    """The line of an entry. The call of a function is what is given."""
    line = choose_line("op", entry, given, given, ("mesh",))
    return fill_line(line, given, given | {"mesh": "mesh"}, FILTERS)


@pytest.mark.parametrize(
    ("entry", "given", "wanted"),
    [
        ("f({x}, dim={axis:-1})", {"x": "h"}, "f(h, dim=-1)"),
        ("f({x}, dim={axis:-1})", {"x": "h", "axis": "0"}, "f(h, dim=0)"),
        ("f({x}{, b}{, dim=axis})", {"x": "h"}, "f(h)"),
        ("f({x}{, b}{, dim=axis})", {"x": "h", "b": "c", "axis": "0"}, "f(h, c, dim=0)"),
        ("f({x}){ + b}", {"x": "h", "b": "c"}, "f(h) + c"),
        ("{x}[{start:}:{stop:}{:step}]", {"x": "h", "stop": "4", "step": "2"}, "h[:4:2]"),
        ("f({i|long}, {mesh})", {"i": "rows"}, "f(rows.long(), mesh)"),
        ("{x}[{pre}{i}{post}]", {"x": "h", "i": "rows", "axis": "1"}, "h[:, rows]"),
        ("{x}[{pre}{i}{post}]", {"x": "h", "i": "rows", "axis": "-2"}, "h[..., rows, :]"),
        ("g({*{x}})", {"x": "h"}, "g({*h})"),
        (("f({x})", "f({x}, dim={axis:None})"), {"x": "h"}, "f(h)"),
        (("f({x})", "f({x}, dim={axis:None})"), {"x": "h", "axis": "0"}, "f(h, dim=0)"),
        (("f({x}, {axis})", "f({x}, -1)"), {"x": "h"}, "f(h, -1)"),
        (lambda call: "f({x})" if call["x"] == "h" else "g({x})", {"x": "h", "b": "c"}, "f(h)"),
    ],
)
def test_a_line_is_chosen_and_filled(
    entry: Entry[dict[str, str]], given: dict[str, str], wanted: str
) -> None:
    """Slots with defaults, optional slots, filters; the first line that fits; functions."""
    assert write(entry, **given) == wanted


@pytest.mark.parametrize(
    ("entry", "given", "why"),
    [
        ("f({x})", {"x": "h", "axis": "0"}, "op takes no axis here"),
        ("f({x}, {axis})", {"x": "h"}, "op needs axis here"),
        (("f({x})", "f({x}, {b})"), {"x": "h", "axis": "0"}, "op takes no axis here"),
        ("{x}[{pre}{i}{post}]", {"x": "h", "i": "r", "axis": "(0,)"}, "wanted one integer"),
        (lambda call: "f({y})", {"x": "h"}, "no y is given"),
    ],
)
def test_what_no_line_can_say_is_unsupported(
    entry: Entry[dict[str, str]], given: dict[str, str], why: str
) -> None:
    """A line never leaves out in silence what is given."""
    with pytest.raises(CannotAnswer, match=why):
        write(entry, **given)


def test_an_op_of_a_later_vocabulary_is_unsupported() -> None:
    """By its name."""
    with pytest.raises(CannotAnswer, match="no op frobnicate"):
        given_texts(Step("y", "frobnicate", ("x",)), str)


def test_literals_are_python() -> None:
    """A list becomes a tuple, and what has no literal a call."""
    given = ([1, 2], [3], float("-inf"), 1e-05, "mean", True)
    assert [format_literal(one) for one in given] == [
        "(1, 2)", "(3,)", "float('-inf')", "1e-05", "'mean'", "True",
    ]  # fmt: skip


@pytest.mark.parametrize("table", [TORCH, JAX])
def test_every_op_has_an_entry(table: dict[str, Entry[dict[str, str]]]) -> None:
    """And no entry is of an op that is not in the vocabulary."""
    assert table.keys() == OPS.keys()
