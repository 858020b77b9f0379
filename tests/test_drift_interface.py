"""Does the drift page say what changed in a public interface, and what line to write instead?"""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.interface import Default, Fact, Name, Printed
from reports.drift import release_history
from reports.drift.interface_changes import find_interface_changes
from reports.drift.model import ChangeKind
from reports.drift.signature_changes import compare_signatures
from reports.drift.tables import find_availability
from tests import planted as p

MORE: dict[str, tuple[Fact, ChangeKind, str]] = {
    "default": (Default("run_check of DTensor.from_local", "True"), "default", ""),
    "default of a parameter": (
        Name("torch.distributed.tensor.DTensor.redistribute", "function", "(self, placements=())"),
        "default", "placements=(), was None",
    ),
    "new name": (
        Name("torch.distributed.tensor.ones", "function"), "name",
        "new in torch.distributed.tensor",
    ),
    "deprecation": (
        Name("torch.distributed.tensor", "module", warns="use spmd", used=True), "name",
        "warns: use spmd",
    ),
    "home": (
        Name("torch.distributed.tensor", "module", lives="torch.spmd", used=True), "name",
        "defined in torch.spmd, was in no module",
    ),
    "gone, says so": (
        Name("torch.distributed.tensor.DTensor", "gone", warns="it went"), "name",
        "gone from torch.distributed.tensor",
    ),
    "signature": (
        Name("torch.distributed.tensor.DTensor.redistribute", "function",
             "(self, placements=None, *, order=None)"),
        "signature", "with order",
    ),
    "printed": (Printed("Shard(0)", "Shard(0)", "Shard(dim=0)"), "printed", ""),
}  # fmt: skip


@pytest.mark.parametrize("plant", MORE)
def test_a_planted_change_of_the_interface_is_found(tmp_path: Path, plant: str) -> None:
    """Names, signatures, defaults and prints, each in its kind, in the data and on both pages."""
    fact, kind, pattern = MORE[plant]
    facts = (*(one for one in p.FACTS if p.about(one) != p.about(fact)), fact)
    story = p.story(p.planted(tmp_path, facts=(p.FACTS, facts)))
    (found,) = story.findings
    assert (found.kind, found.pattern) == (kind, pattern)
    assert found.smallest.case == p.about(fact)
    for page in p.pages([story]):
        assert found.id in page
        assert p.about(fact) in page


def test_a_name_that_is_gone_takes_what_is_in_it(tmp_path: Path) -> None:
    """A class with its attributes is one finding, and where else it is, it says."""
    there = Name("torch.spmd.DTensor", "class", "(*args, **kwargs)")
    left = (*(one for one in p.FACTS if "DTensor" not in p.about(one)), p.FACTS[0], there)
    story = p.story(p.planted(tmp_path, facts=(p.FACTS, left)))
    gone = next(one for one in story.findings if one.pattern.startswith("gone"))
    assert gone.cases == (
        "torch.distributed.tensor.DTensor", "torch.distributed.tensor.DTensor.redistribute",
    )  # fmt: skip
    assert gone.smallest.after == "from torch.spmd import DTensor"
    rows, always = find_availability(story)
    assert {row.path: row.since for row in rows}["torch.spmd.DTensor"] == "2.13.9"
    assert "2.13.0; removed in 2.13.9" in {row.until for row in rows}
    assert always == ["torch.distributed.tensor"]


def test_what_moved_is_told_by_the_line_to_write() -> None:
    """From the names table, at the border where it moved and at no other."""
    names = release_history.read_names_table("torch")
    moves = {
        change.case: change
        for change in find_interface_changes("torch", names, (), (), ("2.4.1", "2.5.1"))
    }
    moved_ = moves["torch.distributed.tensor.DTensor"]
    assert moved_.before == "from torch.distributed._tensor import DTensor"
    assert moved_.after == "from torch.distributed.tensor import DTensor"
    assert moved_.pattern == "moved: torch.distributed._tensor → torch.distributed.tensor"
    assert find_interface_changes("torch", names, (), (), ("2.12.1", "2.13.0")) == []


@pytest.mark.parametrize(
    ("older", "newer", "ways", "defaults"),
    [
        ("(a, b=1)", "(a, b=1)", (), ()),
        ("(a, b=1)", "(a, b=2)", (), (("b", "1", "2"),)),
        ("(a, b=1)", "(a, b=1, *, c=None)", ("with c",), ()),
        ("(a, b=1)", "(a)", ("without b",), ()),
        ("(a)", "(a, c)", ("requires c",), ()),
        ("(a, b=1)", "(a, *, b=1)", ("b by keyword only",), ()),
        ("(a, b)", "(a, b=0)", ("b optional",), ()),
        ("(a, b)", "(b, a)", ("parameters in another order",), ()),
        ("(a, /)", "(a, *args, **more)",
         ("a by position or keyword", "with *args", "with **more"), ()),
        ("(a)", "", ("a signature → no signature",), ()),
    ],
)  # fmt: skip
def test_calls_differ_parameter_by_parameter(
    older: str, newer: str, ways: tuple[str, ...], defaults: tuple[tuple[str, str, str], ...]
) -> None:
    """What a caller has to write otherwise, and what he gets if he writes nothing."""
    found = compare_signatures(older, newer)
    assert (found.ways, found.defaults) == (ways, defaults)
