"""Is each ledger entry's range of versions exactly the set of releases in which it holds?

An entry holds in a release if, of the cases that it names, it is there in one at least and missing
in none, beside every release of the other framework; where it could not have shown (the release
lacks the op, nothing to compare) it is not missed. So its range must have every release in which it
holds and no other. A rule need not show: its range must have every release in which it shows, and
begin and end with one. A difference from torch that depends on the release of torch is a rule, for
an entry has the releases of its own subject alone. Works on what `suites.pairs` counted; judges
nothing itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import msgspec
from packaging.version import Version

from adapters.registry import framework_of
from cases.ledger import Entry, applies
from suites.pairs import Tally


class Stand(msgspec.Struct, frozen=True):
    """How one entry or rule stands in the releases of its subject that there are records of.

    ``holds``: releases in which it does. ``fails``: by release, cases in which it is missing, each
    with the releases of torch beside which it is ("" where none matters). ``partly``: releases in
    which it is there in some cases, how many of those where it could be. ``within``: the releases
    in its range. ``elsewhere``: releases in which something that no record keeps needs it.
    ``suggested``: the range that is exact; None where it holds in no release.
    """

    entry: Entry
    releases: tuple[str, ...]
    within: tuple[str, ...]
    holds: tuple[str, ...]
    fails: dict[str, dict[str, tuple[str, ...]]]
    partly: dict[str, tuple[int, int]]
    elsewhere: tuple[str, ...]
    suggested: str | None

    @property
    def exact(self) -> bool:
        """Whether its range is what it should be."""
        within, due = {*self.within}, {*self.holds, *self.elsewhere}
        if not within and not due:
            # There is no record of a release that it is about.
            return True
        if not due or not due <= within:
            return False
        if not self.holds and (self.entry.rule or not self.fails):
            # No record shows it, so none says where it ends.
            return True
        if self.entry.rule:
            return {self.within[0], self.within[-1]} <= due
        return within == due


def stands(
    tally: Tally,
    ledger: Sequence[Entry],
    releases: Mapping[str, Sequence[str]],
    elsewhere: Mapping[str, Sequence[str]] | None = None,
) -> list[Stand]:
    """Every entry and rule, in the ledger's order.

    ``releases``: by framework, those that there are records of, oldest first. ``elsewhere``: by id,
    releases in which an entry is needed by what no record keeps, such as an exhaustive run.
    """
    return [
        _stand(tally, entry, releases[framework_of(entry.subject)], (elsewhere or {}))
        for entry in ledger
        if releases[framework_of(entry.subject)]
    ]


def _stand(
    tally: Tally, entry: Entry, releases: Sequence[str], elsewhere: Mapping[str, Sequence[str]]
) -> Stand:
    holds, fails, partly = [], {}, {}
    for release in releases:
        stood = tally.stood.get((entry.id, release))
        if stood is None:
            continue
        if stood.failed:
            fails[release] = stood.failed
            if stood.held:
                partly[release] = (len(stood.held), len(stood.held | stood.failed.keys()))
        if stood.held and (entry.rule or not stood.failed):
            holds.append(release)
    also = tuple(one for one in releases if one in elsewhere.get(entry.id, ()))
    due = [one for one in releases if one in holds or one in also]
    if entry.rule and due:
        # From the first in which it shows to the last.
        due = list(releases[releases.index(due[0]) : releases.index(due[-1]) + 1])
    return Stand(
        entry,
        tuple(releases),
        tuple(one for one in releases if applies(entry, one)),
        tuple(holds),
        fails,
        partly,
        also,
        specifier(releases, due) if due else None,
    )


def specifier(releases: Sequence[str], wanted: Sequence[str]) -> str:
    """The PEP 440 range that has ``wanted`` of ``releases`` (oldest first) and no other.

    Bounds are as short as they can be: ">=2.5" for 2.5.1 after 2.4.1. "" has all.

    Raises:
        ValueError: nothing is wanted.
    """
    first, last = releases.index(wanted[0]), releases.index(wanted[-1])
    parts = []
    if first:
        parts.append(f">={_between(releases[first - 1], releases[first])}")
    if last + 1 < len(releases):
        parts.append(f"<{_between(releases[last], releases[last + 1])}")
    for hole in releases[first : last + 1]:
        if hole not in wanted:
            parts.append(f"!={_only(hole, releases)}")
    return ",".join(parts)


def _between(before: str, release: str) -> str:
    """The shortest beginning of a release that is after the release before it."""
    for text in _beginnings(release):
        if Version(text) > Version(before):
            return text
    return release


def _only(release: str, releases: Sequence[str]) -> str:
    """A pattern for a release and no other of ``releases``: 2.8.* or, at worst, 2.8.0 itself."""
    for text in _beginnings(release):
        alike = [one for one in releases if f"{one}.".startswith(f"{text}.")]
        if "." in text and alike == [release] and text != release:
            return f"{text}.*"
    return release


def _beginnings(release: str) -> list[str]:
    parts = release.split(".")
    # A lone major number says more than was seen.
    return list(itertools.accumulate(parts, lambda one, other: f"{one}.{other}"))[1:] or [release]
