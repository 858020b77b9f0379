"""Is a ledger entry's range held against every release that there is a record of?"""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from suites.ranges import Stand, specifier, stands

from adapters.registry import framework_of, subjects
from cases.catalogue import family
from cases.ledger import LEDGER, Entry, Named, applies, load_ledger
from reports.pairs import elsewhere, told
from suites.pairs import Stood, Tally, count, in_force
from suites.shelf import find, load
from suites.sources import RECORDS, pinned
from tests.test_pairs import written

TORCH = (
    "2.2.2", "2.4.1", "2.5.1", "2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1",
    "2.13.0", "2.14.1", "2.15.0",
)  # fmt: skip
JAX = (
    "0.4.26", "0.4.30", "0.4.35", "0.4.38", "0.5.3", "0.6.2", "0.7.2", "0.8.3", "0.9.2", "0.10.2",
    "0.11.2", "0.12.0.1",
)  # fmt: skip
FOUR = ("2.12.1", "2.13.0", "2.14.1", "2.15.0")


@pytest.mark.parametrize(
    ("releases", "wanted", "range"),
    [
        (TORCH, TORCH, ""),
        (TORCH, TORCH[2:], ">=2.5"),
        (TORCH, TORCH[:7], "<2.10"),
        (TORCH, TORCH[2:5], ">=2.5,<2.8"),
        (TORCH, ("2.13.0",), ">=2.13,<2.14"),
        (TORCH, ("2.2.2", "2.6.0"), "<2.7,!=2.4.*,!=2.5.*"),
        (JAX, JAX[1:3], ">=0.4.30,<0.4.38"),
        (JAX, JAX[-1:], ">=0.12"),
        (JAX, (*JAX[:2], *JAX[5:]), "!=0.4.35,!=0.4.38,!=0.5.*"),
        (("1.0", "1.0.1"), ("1.0.1",), ">=1.0.1"),
    ],
)
def test_a_range_has_the_wanted_releases_and_no_other(
    releases: tuple[str, ...], wanted: tuple[str, ...], range: str
) -> None:
    """In bounds that are as short as can be."""
    assert specifier(releases, wanted) == range
    specifiers = SpecifierSet(range)
    assert tuple(one for one in releases if specifiers.contains(one)) == wanted


def entry(versions: str = "", rule: bool = False) -> Entry:
    """An entry about torch in these versions."""
    return Entry("e", "global", "torch", SpecifierSet(versions), Named(), "wrong value", "So.",
                 rule=rule)  # fmt: skip


def stand(one: Entry, stood: dict[str, Stood], sweep: tuple[str, ...] = ()) -> Stand:
    """How it stands in four releases."""
    tally = Tally(stood={(one.id, release): how for release, how in stood.items()})
    releases = {"torch": FOUR, "jax": ()}
    (found,) = stands(tally, [one], releases, {one.id: sweep})
    return found


HELD = Stood(held={"a", "b"})
PARTLY = Stood(held={"a"}, failed={"b": ()})
FAILED = Stood(failed={"a": (), "b": ()})
UNSEEN = Stood(unseen={"a", "b"})
SOME_UNSEEN = Stood(held={"a"}, unseen={"b"})


@pytest.mark.parametrize(
    ("versions", "stood", "exact", "suggested"),
    [
        ("", [HELD, HELD, HELD, HELD], True, ""),
        (">=2.13", [FAILED, HELD, HELD, HELD], True, ">=2.13"),
        (">=2.13", [PARTLY, HELD, HELD, HELD], True, ">=2.13"),
        # What a release lacks is not missed, and not known there either.
        (">=2.13", [UNSEEN, HELD, HELD, HELD], True, ">=2.13"),
        (">=2.13", [FAILED, SOME_UNSEEN, HELD, HELD], True, ">=2.13"),
        ("", [FAILED, HELD, HELD, HELD], False, ">=2.13"),
        ("", [PARTLY, HELD, HELD, HELD], False, ">=2.13"),
        ("", [UNSEEN, HELD, HELD, HELD], False, ">=2.13"),
        (">=2.14", [FAILED, HELD, HELD, HELD], False, ">=2.13"),
        ("<2.15", [HELD, FAILED, HELD, FAILED], False, "<2.15,!=2.13.*"),
        ("", [FAILED, FAILED, FAILED, FAILED], False, None),
        ("", [UNSEEN, UNSEEN, UNSEEN, UNSEEN], False, None),
    ],
)
def test_an_entry_is_exact_where_its_range_is_where_it_holds(
    versions: str, stood: list[Stood], exact: bool, suggested: str | None
) -> None:
    """In every case that it names and that could show it, and in one at least."""
    found = stand(entry(versions), dict(zip(FOUR, stood, strict=True)))
    assert (found.exact, found.suggested) == (exact, suggested)


@pytest.mark.parametrize(
    ("versions", "stood", "exact", "suggested"),
    [
        ("", [HELD, FAILED, FAILED, PARTLY], True, ""),
        ("<2.15", [PARTLY, FAILED, HELD, FAILED], True, "<2.15"),
        ("", [PARTLY, FAILED, HELD, FAILED], False, "<2.15"),
        ("<2.14", [PARTLY, FAILED, HELD, FAILED], False, "<2.15"),
        ("", [FAILED, FAILED, FAILED, FAILED], False, None),
    ],
)
def test_a_rule_is_exact_from_where_it_first_shows_to_where_it_last_does(
    versions: str, stood: list[Stood], exact: bool, suggested: str | None
) -> None:
    """In any case at all; between the two it need not show."""
    found = stand(entry(versions, rule=True), dict(zip(FOUR, stood, strict=True)))
    assert (found.exact, found.suggested) == (exact, suggested)


def test_an_entry_of_releases_without_a_record_is_none_of_these_records_business() -> None:
    """A folder of a few records says nothing of the others; the project's own has them all."""
    assert stand(entry("<2"), {}).exact
    assert not stand(entry("<2"), {FOUR[0]: HELD}).exact
    kept = [path.name.removesuffix(".jsonl").split("-") for _, path in find(RECORDS)]
    for one in load_ledger(LEDGER, subjects()):
        own = [release for name, release in kept if name == framework_of(one.subject)]
        assert any(applies(one, release) for release in own), one.id


def test_what_only_a_sweep_or_a_plan_needs_is_exact() -> None:
    """No record could say where it ends; where it is needed it has to be in force."""
    assert stand(entry(), {}, ("2.13.0",)).exact
    assert not stand(entry("<2.13"), {}, ("2.13.0",)).exact
    assert not stand(entry(), {}).exact


def test_a_rule_that_a_sweep_needs_reaches_so_far() -> None:
    """Beyond the last release in which the records show it; alone, as far as it likes."""
    assert stand(entry(rule=True), dict.fromkeys(FOUR, FAILED), ("2.13.0",)).exact
    shown = {"2.12.1": HELD, "2.13.0": FAILED, "2.14.1": FAILED, "2.15.0": FAILED}
    assert not stand(entry("<2.13", rule=True), shown, ("2.13.0",)).exact
    assert stand(entry("<2.14", rule=True), shown, ("2.13.0",)).exact


def test_the_kept_sweep_and_plans_name_entries_of_the_release_that_ran() -> None:
    """Every id is one of the ledger's."""
    found = elsewhere()
    entries = {one.id: one for one in load_ledger(LEDGER, subjects())}
    assert found.keys() <= entries.keys()
    assert {release for releases in found.values() for release in releases} <= {*pinned().values()}


def test_an_entry_is_told_in_a_line_and_its_failures_below() -> None:
    """With the range that would be exact."""
    found = stand(entry(), {"2.12.1": PARTLY, "2.13.0": HELD, "2.14.1": HELD, "2.15.0": HELD})
    assert told(found, FOUR) == [
        "entry e (torch); versions all; holds in 2.13.0 to 2.15.0; NOT EXACT, versions = '>=2.13'",
        "    2.12.1: in 1 of 2 cases, not in b",
    ]


def test_what_depends_on_the_release_of_torch_should_be_a_rule() -> None:
    """An entry about JAX that is missing beside some releases of torch has no range to be given."""
    known = Entry("e", "layout", "jax/jit", SpecifierSet(), Named(), "layout: of another kind",
                  "So.")  # fmt: skip
    tally = Tally(stood={("e", "0.10.2"): Stood(held={"a"}, failed={"a": ("2.12.1",)})})
    (found,) = stands(tally, [known], {"torch": FOUR, "jax": ("0.10.2",)})
    assert told(found, FOUR) == [
        "entry e (jax/jit); versions all; holds in none; NOT EXACT,"
        " it depends on the release of torch: make it a rule",
        "    0.10.2: in 1 of 1 cases, not in a beside torch 2.12.1",
    ]


def test_records_of_a_release_that_has_it_not_make_an_entry_inexact(tmp_path: Path) -> None:
    """From the answers of two releases to the line that names the entry."""
    (case,) = (case for case in family("lesson") if case.id == "lesson-s0-to-r")
    written(tmp_path, "torch", "2.12.1", "wrong", {case.id})
    written(tmp_path, "torch", "2.13.0", "", set())
    known = Entry("once-wrong", "global", "torch", SpecifierSet(), Named((case.id,)),
                  "wrong value", "So.")  # fmt: skip
    shelf = load(find(tmp_path))
    releases = {"torch": ("2.12.1", "2.13.0"), "jax": ()}
    for versions, exact in (("", False), ("<2.13", True)):
        one = Entry(known.id, known.aspect, known.subject, SpecifierSet(versions), known.cases,
                    known.observed, known.why)  # fmt: skip
        tally = count([case], shelf, [one], in_force(shelf, [one]))
        (found,) = stands(tally, [one], releases)
        assert (found.exact, found.holds) == (exact, ("2.12.1",))
        assert [bad.observed for bad in tally.open if bad.verdict.aspect == "global"] == (
            [] if exact else ["no longer holds"]
        )
