"""Which cases and releases an entry of a ledger names, and what a ledger may say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from packaging.version import InvalidVersion

from adapters.registry import subjects
from cases.errors import BadInput
from cases.ledger import (
    Entry,
    applies,
    check_unique,
    load_ledger,
    names,
    steps,
    unused,
)
from cases.load import load
from cases.model import Case

CASES = """
[[case]]
id = "mesh-order/T41"
mesh = { x = 4 }
devices = [3, 2, 1, 0]
tags = ["public", "order"]
inputs.x = { shape = [4, 2], spec = "P()" }
program = ["s = redistribute(x, x=S(0))", "y = redistribute(s, x=R)"]

[[case]]
id = "uneven-input"
mesh = { x = 4 }
tags = ["public"]
inputs.x = { shape = [5], dtype = "int32", placements = ["S(0)"] }

[[case]]
id = "uneven-result"
mesh = { a = 2, b = 2 }
inputs.x = { shape = [3, 4], placements = { a = "S(1)", b = "P(max)" } }
program = ["y = sum(x, axis=1)"]
to.y = { b = "S(0)" }

[[case]]
id = "even"
mesh = { a = 2, b = 2 }
inputs.x = { shape = [8, 4], placements = ["S(0)", "S(1)"] }
program = ["y = sum(x, axis=1)", "z = redistribute(y, a=P(sum))"]
"""


@pytest.fixture
def cases(tmp_path: Path) -> tuple[Case, ...]:
    """Four cases that differ in every static fact."""
    file = tmp_path / "family.toml"
    file.write_text(CASES)
    return load(file)


def _entry(tmp_path: Path, cases: str, versions: str = "", kind: str = "divergence") -> Entry:
    file = tmp_path / "ledger.toml"
    file.write_text(
        f"""
        [[{kind}]]
        id = "e"
        aspect = "global"
        subject = "torch"
        versions = "{versions}"
        {f"cases = {cases}" if cases else ""}
        observed = "refused: ValueError"
        why = "It is so."
        link = "https://github.com/pytorch/pytorch/pull/193224"
        """
    )
    (entry,) = load_ledger(file, subjects())
    return entry


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        ('{ id = "mesh-order-*" }', ["mesh-order/T41"]),
        ('{ id = "mesh-order-t41" }', ["mesh-order/T41"]),
        ('{ id = "uneven" }', []),
        ('{ id = ["even", "*-result"] }', ["uneven-result", "even"]),
        ('{ id = "uneven-[!r]*" }', ["uneven-input"]),
        ('{ tags = "public" }', ["mesh-order/T41", "uneven-input"]),
        ('{ tags = ["public", "order"] }', ["mesh-order/T41"]),
        ('{ family = "family", axes = 2 }', ["uneven-result", "even"]),
        ('{ family = ["other", "another"] }', []),
        ('{ step = "redistribute" }', ["mesh-order/T41", "even"]),
        ('{ step = "s" }', ["mesh-order/T41"]),
        ('{ step = "s/full" }', ["mesh-order/T41"]),
        ('{ step = "x" }', ["mesh-order/T41", "uneven-input", "uneven-result", "even"]),
        ("{ axes = 1 }", ["mesh-order/T41", "uneven-input"]),
        ("{ devices = 4, axes = 2 }", ["uneven-result", "even"]),
        ("{ devices = 8 }", []),
        ("{ ascending = false }", ["mesh-order/T41"]),
        ("{ ascending = true, axes = 1 }", ["uneven-input"]),
        ('{ dtype = "int32" }', ["uneven-input"]),
        ("{ uneven = true }", ["uneven-input", "uneven-result"]),
        ("{ uneven = false }", ["mesh-order/T41", "even"]),
        ('{ partial = "max" }', ["uneven-result"]),
        ('{ partial = "sum" }', ["even"]),
    ],
)
def test_an_entry_names_cases_by_static_facts(
    wanted: str, named: list[str], cases: tuple[Case, ...], tmp_path: Path
) -> None:
    """Everything that an entry gives must be so of a case for it to be named."""
    entry = _entry(tmp_path, wanted)
    assert [case.id for case in cases if names(entry, case)] == named
    assert unused([entry], cases) == ([] if named else [entry])


@pytest.mark.parametrize(
    ("step", "about"),
    [
        ("redistribute", ("s", "y")),
        ("y", ("y",)),
        ("x", ("x",)),
        ("y/full", ("y/full",)),
        ("full", ("x/full", "s/full", "y/full")),
        ("matmul", ()),
        (None, ("x", "s", "y", "x/full", "s/full", "y/full")),
    ],
)
def test_an_entry_is_about_steps_by_name_or_op(
    step: str | None, about: tuple[str, ...], cases: tuple[Case, ...], tmp_path: Path
) -> None:
    """A step is named by its result or op, what materialises it by /full; none means all."""
    entry = _entry(tmp_path, "{ axes = 1 }" if step is None else f'{{ step = "{step}" }}')
    assert steps(entry, cases[0]) == about


@pytest.mark.parametrize(
    ("versions", "release", "applied"),
    [
        ("", "2.2.2", True),
        ("", "2.14.0.dev20261101+cpu", True),
        ("==2.13.0", "2.13.0+cpu", True),
        ("==2.13.0", "2.13.0", True),
        ("===2.13.0", "2.13.0+cpu", True),
        ("==2.13.*", "2.13.1+cu128", True),
        ("!=2.13.0", "2.13.0+cpu", False),
        (">=2.2", "2.13.0+cpu", True),
        (">=2.2", "2.1.2+cpu", False),
        (">=2.2,<2.9", "2.8.0", True),
        (">=2.2,<2.9", "2.9.0", False),
        (">=2.13", "2.14.0.dev20261101+cpu", True),
        (">=2.13", "2.13.0rc1", False),
        ("<2.14", "2.14.0.dev20261101", False),
        (">=2.14", "2.14.0.dev20261101", False),
        (">=2.14.0.dev0", "2.14.0.dev20261101", True),
        ("<=0.10.2", "0.10.2", True),
    ],
)
def test_an_entry_applies_to_releases_by_pep_440(
    versions: str, release: str, applied: bool, tmp_path: Path
) -> None:
    """Local tags do not count; pre-releases are ordered as PEP 440 says."""
    assert applies(_entry(tmp_path, "{ axes = 1 }", versions), release) == applied


def test_a_release_that_is_no_version_is_not_guessed_at(tmp_path: Path) -> None:
    """What PEP 440 cannot read is an error, not a release to which nothing applies."""
    with pytest.raises(InvalidVersion):
        applies(_entry(tmp_path, "{ axes = 1 }"), "unknown")


def test_an_entry_keeps_what_is_said_of_it(tmp_path: Path) -> None:
    """Every field of an entry is read."""
    entry = _entry(tmp_path, '{ step = "redistribute" }', ">=2.2")
    assert (entry.id, entry.aspect, entry.subject) == ("e", "global", "torch")
    assert (entry.observed, entry.why) == ("refused: ValueError", "It is so.")
    assert entry.link == "https://github.com/pytorch/pytorch/pull/193224"
    assert not entry.rule
    assert entry.file == str(tmp_path / "ledger.toml")


def test_a_rule_names_every_case_unless_it_says_which(
    cases: tuple[Case, ...], tmp_path: Path
) -> None:
    """A rule may leave its cases out, and is told apart from an entry that must hold."""
    rule = _entry(tmp_path, "", kind="rule")
    assert rule.rule
    assert all(names(rule, case) for case in cases)
    narrow = _entry(tmp_path, "{ axes = 2 }", kind="rule")
    assert [case.id for case in cases if names(narrow, case)] == ["uneven-result", "even"]


@pytest.mark.parametrize(
    "observed",
    [
        "wrong value", "wrong shard", "wrong offset", "wrong layout", "wrong count", "ranks differ",
        "counters disagree", "unsupported", "hung", "crashed", "refused: ValueError",
        "refused: jax.errors.ShardingTypeError", "plan: permutes instead", "layout: other axis",
    ],
)  # fmt: skip
def test_every_head_of_an_observation_is_accepted(observed: str, tmp_path: Path) -> None:
    """The documented heads are accepted, with a detail where one is due."""
    file = tmp_path / "ledger.toml"
    file.write_text(
        '[[divergence]]\nid = "e"\naspect = "global"\nsubject = "torch"\nwhy = "So."\n'
        f'cases = {{ axes = 1 }}\nobserved = "{observed}"\n'
    )
    (entry,) = load_ledger(file, subjects())
    assert entry.observed == observed


def test_a_ledger_may_be_empty(tmp_path: Path) -> None:
    """A ledger without entries knows of nothing."""
    file = tmp_path / "ledger.toml"
    file.write_text("# Nothing diverges.\n")
    assert load_ledger(file, subjects()) == ()


def test_an_id_in_two_ledgers_is_refused(tmp_path: Path) -> None:
    """A user's ledger may not reuse an id of the project's."""
    entry = _entry(tmp_path, "{ axes = 1 }")
    again = _entry(tmp_path, "{ axes = 2 }")
    check_unique([entry])
    with pytest.raises(BadInput, match=r'entry "e": id: found an id that .* has already, wanted'):
        check_unique([entry, again])


def test_the_files_of_a_folder_are_one_ledger(tmp_path: Path) -> None:
    """In the order of their names; an id may be in one of them only."""
    _entry(tmp_path, "{ axes = 1 }")
    text = (tmp_path / "ledger.toml").read_text()
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("b", "a"):
        (folder / f"{name}.toml").write_text(text.replace('id = "e"', f'id = "{name}"'))
    (folder / "notes.md").write_text("no entries")
    assert [entry.id for entry in load_ledger(folder, subjects())] == ["a", "b"]
    shutil.copy(folder / "a.toml", folder / "c.toml")
    with pytest.raises(BadInput, match=r"c\.toml.*an id that .*a\.toml has already"):
        load_ledger(folder, subjects())
