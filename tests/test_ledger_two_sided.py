"""Is the ledger two-sided? What it knows passes, and what it no longer finds fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from suites.sources import RECORDS, pinned, record_path
from tests.runs import Ran, run
from tests.test_wrong_frameworks import stand_in

DOUBLED = """
[[divergence]]
id = "toy-doubles"
subject = "torch"
aspect = "global"
cases = { id = "reduce" }
observed = "wrong value"
why = "The toy adds everything twice."
"""


def with_ledger(folder: Path, wrong: str, text: str, *args: str) -> Ran:
    """A run of the small cases with a ledger of the user's own."""
    path = folder / "own.toml"
    path.write_text(text)
    return stand_in(folder, wrong, f"--ledger={path}", *args)


def test_a_known_divergence_passes(tmp_path: Path) -> None:
    """It is counted as known, under the id of its entry."""
    ran = with_ledger(tmp_path, "reduction doubled", DOUBLED)
    assert ran.code == 0, ran.out
    known = {(v["case"], v["step"], v["ledger"]) for v in ran.verdicts if v["verdict"] == "known"}
    assert known == {("reduce", "y", "toy-doubles")}


def test_an_entry_that_no_longer_holds_fails_in_its_case(tmp_path: Path) -> None:
    """The message says what to do with it."""
    ran = with_ledger(tmp_path, "", DOUBLED)
    assert ran.code == 1
    assert {one[0] for one in ran.diverging()} == {"reduce"}
    assert "remove toy-doubles from the ledger, or bound its range" in ran.out


def test_another_failure_is_not_covered(tmp_path: Path) -> None:
    """An entry for a wrong value does not excuse a crash, and no longer holds either."""
    ran = with_ledger(tmp_path, "crash", DOUBLED)
    assert ran.code == 1
    lines = [v for v in ran.verdicts if v["verdict"] == "divergence"]
    assert {v["got"].partition(":")[0] for v in lines} == {"crashed", "no such thing"}


def test_an_entry_for_other_releases_says_nothing(tmp_path: Path) -> None:
    """Outside its range of versions it neither excuses nor is missed."""
    bounded = DOUBLED + 'versions = "<1"\n'
    assert with_ledger(tmp_path, "", bounded).code == 0
    assert with_ledger(tmp_path, "reduction doubled", bounded).code == 1


@pytest.mark.parametrize("extra", [("-k", "gather"), ("-n", "2"), ("-k", "reduce or swap")])
def test_a_part_of_the_cases_is_safe(tmp_path: Path, extra: tuple[str, ...]) -> None:
    """Entries for cases that do not run are not missed, in one process or in several."""
    ran = with_ledger(tmp_path, "reduction doubled", DOUBLED, *extra)
    assert ran.code == 0, ran.out


def test_last_failed_is_safe(tmp_path: Path) -> None:
    """With ``--lf`` only the failed case runs again, and the entries of others are not missed."""
    cache = ("-p", "cacheprovider", "-o", f"cache_dir={tmp_path / 'cache'}")
    missed = DOUBLED.replace("reduce", "gather")
    args = ("--lf", *cache)
    first = with_ledger(tmp_path, "one rank apart", missed, *args)
    again = with_ledger(tmp_path, "one rank apart", missed, *args)
    for ran in (first, again):
        assert ran.code == 1
        assert {one[0] for one in ran.diverging()} == {"gather"}
    assert {v["case"] for v in again.verdicts} == {"gather"}


def test_an_entry_is_not_missed_where_nothing_could_be_compared(tmp_path: Path) -> None:
    """The project's own entries about JAX beside torch, with torch left out."""
    record = f"--jax={record_path(RECORDS, 'jax', pinned()['jax'])}"
    ran = run(tmp_path, "suites/test_redistribute.py", "-k", "0x4", "--torch=off", record)
    assert ran.code == 0, ran.out
