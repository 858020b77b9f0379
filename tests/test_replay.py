"""Does replaying the records give what a live run gives? And would it be noticed if it did not?"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from adapters.registry import subjects
from cases.catalogue import family
from cases.errors import BadInput
from cases.ledger import LEDGER, load_ledger
from suites.record_index import load_records
from suites.release_pairs import count
from suites.replay import (
    LiveRun,
    check_releases,
    compare_verdicts,
    read_live_run,
    unstable_subjects,
)
from suites.sources import RECORDS, pinned_releases, record_path
from suites.verdict import Verdict
from tests.runs import run

PAIR = tuple(
    (name, record_path(RECORDS, name, release)) for name, release in pinned_releases().items()
)
RIGHT = Verdict("c", "y", "global", "torch", "reference", "agree")
WRONG = msgspec.structs.replace(RIGHT, verdict="divergence", got="[1]")
OTHER = msgspec.structs.replace(RIGHT, step="z")


def test_a_live_run_and_the_records_of_its_releases_say_the_same(tmp_path: Path) -> None:
    """Of every case of the lesson, in both frameworks; `tox -e tests` has all of the catalogue."""
    ran = run(tmp_path, "suites/test_lesson.py")
    assert ran.code == 0, ran.out
    shelf, ledger = load_records(PAIR), load_ledger(LEDGER, subjects())
    live = read_live_run(tmp_path / "verdicts.jsonl")
    assert live.releases == pinned_releases()
    tally = count(family("lesson"), shelf, ledger, live)
    assert tally.replayed == len(family("lesson"))
    assert tally.strayed == []
    # And a verdict that the live run had otherwise is noticed.
    case, (first, *rest) = next(iter(live.verdicts.items()))
    live.verdicts[case] = [msgspec.structs.replace(first, verdict="not comparable"), *rest]
    tally = count(family("lesson"), shelf, ledger, live)
    (found,) = tally.strayed
    assert found.replayed == first


@pytest.mark.parametrize(
    ("live", "replayed", "differing"),
    [
        ([RIGHT, OTHER], [RIGHT, OTHER], []),
        ([RIGHT, OTHER], [WRONG, OTHER], [(RIGHT, WRONG)]),
        ([RIGHT], [RIGHT, OTHER], [(None, OTHER)]),
        ([RIGHT, OTHER], [OTHER], [(RIGHT, None)]),
        ([RIGHT, RIGHT], [RIGHT], [(RIGHT, None)]),
    ],
)
def test_every_line_has_to_be_met(
    live: list[Verdict],
    replayed: list[Verdict],
    differing: list[tuple[Verdict | None, Verdict | None]],
) -> None:
    """Once each; two that are about one thing are told together."""
    found = compare_verdicts(live, replayed, frozenset())
    assert [(one.live, one.replayed) for one in found] == differing


def test_of_what_is_unstable_the_verdict_alone_counts() -> None:
    """Its texts have values that no two runs share."""
    again = msgspec.structs.replace(WRONG, got="[2]")
    assert compare_verdicts([WRONG], [again], frozenset()) != []
    assert compare_verdicts([WRONG], [again], frozenset({"torch"})) == []
    assert compare_verdicts([WRONG], [RIGHT], frozenset({"torch"})) != []


def test_what_is_held_beside_an_unstable_answer_of_torch_is_unstable_too() -> None:
    """By the marks of the releases that ran."""
    shelf = load_records(PAIR)
    case = next(iter(shelf["torch"][0].lines))
    live = LiveRun(pinned_releases(), {})
    assert unstable_subjects(case, live, shelf) == frozenset(
        s for one in (shelf["torch"][0], shelf["jax"][0]) for s in one.lines[case].unstable
    )
    line = shelf["torch"][0].lines[case]
    shelf["torch"][0].lines[case] = msgspec.structs.replace(line, unstable=("torch",))
    assert unstable_subjects(case, live, shelf) == frozenset(subjects())
    assert unstable_subjects(case, LiveRun({"torch": "1.0"}, {}), shelf) == frozenset()


@pytest.mark.parametrize("text", ["", "{}", "no JSON\n", '{"versions": {}}\n{"case": 1}\n'])
def test_what_is_no_file_of_verdicts_is_refused(tmp_path: Path, text: str) -> None:
    """In one line."""
    path = tmp_path / "live.jsonl"
    path.write_text(text)
    with pytest.raises(BadInput, match="wanted what --verdicts leaves"):
        read_live_run(path)


def test_a_run_of_a_release_without_a_record_is_refused(tmp_path: Path) -> None:
    """Nothing could be held against it."""
    with pytest.raises(BadInput, match="found a run of torch 9"):
        check_releases(LiveRun({"torch": "9.9"}, {}), load_records(PAIR), tmp_path / "live.jsonl")
