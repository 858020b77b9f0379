"""How does every torch release come out beside every JAX release, and is the ledger exact?

``python -m reports.pairs [FOLDER]`` judges the records of a folder, by default the committed ones,
in all pairs: how many verdicts of each kind, what the ledger does not know, and entries whose range
of versions is not exactly the set of releases in which they hold. ``--live FILE``, the verdicts of
a live run, are held against those of the records of its releases, line by line. ``--ledger`` tells
of every entry instead of every pair, ``--case PATTERN`` takes some cases alone, ``--json FILE``
keeps it all. Ends with 1 if there is a divergence, a verdict that a live run did not give, or an
entry that is not exact. Asks no framework.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from suites.ranges import Stand, stands

from adapters.record import digest
from adapters.registry import FRAMEWORKS, framework_of, subjects
from cases.errors import BadInput
from cases.ledger import LEDGER, load_ledger
from cases.model import slug
from reports import operators, plans
from suites.judge import GONE
from suites.pairs import BASE, Open, Tally, chosen, judged
from suites.shelf import Shelf, find, load, release_of
from suites.sources import RECORDS, public
from suites.verdict import OUTCOMES

# How many cases are named as examples, and how much is told of what they gave.
_EXAMPLES = 3
_LONGEST = 100
# How many verdicts that strayed are told.
_STRAYED = 10

Releases = Mapping[str, Sequence[str]]


def matrix(tally: Tally, releases: Releases, other: str) -> list[str]:
    """A table for each kind of verdict, the gravest first: rows torch, columns the other."""
    lines = []
    for outcome in ("divergence", "known", "agree", "not comparable"):
        at = OUTCOMES.index(outcome)
        cells = {
            (row, column): tally.pair(row, other, column)[at]
            for row in releases[BASE]
            for column in releases[other]
        }
        title = f"{outcome}, {BASE} by {other}"
        wide = max(len(f"{n:,}") for n in (*cells.values(), 0)) + 2
        wide = max(wide, *(len(column) + 2 for column in releases[other]))
        lines += [title, " " * 9 + "".join(f"{column:>{wide}}" for column in releases[other])]
        lines += [
            f"{row:<9}" + "".join(f"{cells[row, column]:>{wide},}" for column in releases[other])
            for row in releases[BASE]
        ]
        lines.append("")
    return lines


def unexplained(tally: Tally, releases: Releases) -> list[str]:
    """What the ledger does not know, by subject, aspect and observation; a line for each op."""
    groups: dict[tuple[str, str, str], dict[str, list[Open]]] = {}
    for one in tally.open:
        if one.observed != GONE:
            key = (one.verdict.subject, one.verdict.aspect, one.observed)
            groups.setdefault(key, {}).setdefault(one.op, []).append(one)
    lines = []
    for (subject, aspect, observed), ops in sorted(groups.items()):
        lines.append(f"{subject} {aspect}: {observed or 'a rule that is not there'}")
        lines += [
            f"    {op}: {_where(found, releases[framework_of(subject)], releases[BASE])}"
            for op, found in sorted(ops.items())
        ]
    return lines


def _where(found: Sequence[Open], ours: Sequence[str], torch: Sequence[str]) -> str:
    """In which releases, in how many cases of each; some of them, and what the first gave."""
    cases: dict[str, set[str]] = {}
    for one in found:
        for release in one.releases:
            cases.setdefault(release, set()).add(one.verdict.case)
    where = ", ".join(f"{one} ({len(cases[one])})" for one in ours if one in cases)
    beside = _beside((release for one in found for release in one.torch), torch)
    ids = _some(dict.fromkeys(slug(one.verdict.case) for one in found))
    got = found[0].verdict.got
    return f"{where}{beside}: {ids}; got {got if len(got) <= _LONGEST else got[:_LONGEST] + '...'}"


def _some(ids: Iterable[str]) -> str:
    listed = list(ids)
    more = f" and {len(listed) - _EXAMPLES} more" if len(listed) > _EXAMPLES else ""
    return ", ".join(listed[:_EXAMPLES]) + more


def _beside(torch: Iterable[str], of: Sequence[str]) -> str:
    some = {*torch}
    found = [one for one in of if one in some]
    if not found or len(found) == len(of):
        return ""
    return f" beside {BASE} {', '.join(found)}"


def otherwise_asked(shelf: Shelf, pattern: str) -> list[str]:
    """Records that lack questions of the present catalogue, or have them in other words."""
    due = {case.id: digest(case.question) for case in chosen(pattern)}
    lines = []
    for name, records in shelf.items():
        for one in records:
            other = [
                id for id, wanted in due.items()
                if (line := one.lines.get(id)) is None or line.digest != wanted
            ]  # fmt: skip
            if other:
                who = f"    {name} {release_of(one)}: {len(other):,} of {len(due):,} questions"
                lines.append(f"{who}, such as {slug(other[0])}")
    head = "not recorded, or asked in other words than today's, and so not comparable:"
    return [head, *lines, ""] if lines else []


def told(stand: Stand, of_torch: Sequence[str]) -> list[str]:
    """An entry's range, where it holds, and the range that is exact; cases in which it fails."""
    entry = stand.entry
    parts = [
        f"{'rule' if entry.rule else 'entry'} {entry.id} ({entry.subject})",
        f"versions {str(entry.versions) or 'all'}",
        f"{'shows' if entry.rule else 'holds'} in {_runs(stand.holds, stand.releases)}",
    ]
    if stand.elsewhere:
        parts.append(f"needed by a sweep or plan of {', '.join(stand.elsewhere)}")
    if not stand.exact:
        if stand.suggested is not None:
            found = f"versions = {stand.suggested!r}"
        elif any(0 < len(torch) < len(of_torch) for one in stand.fails.values()
                 for torch in one.values()):  # fmt: skip
            found = f"it depends on the release of {BASE}: make it a rule"
        else:
            found = "remove it"
        parts.append(f"NOT EXACT, {found}")
    lines = ["; ".join(parts)]
    if entry.rule or stand.exact:
        return lines
    for release, cases in stand.fails.items():
        if release in stand.within or release in stand.partly:
            held, of = stand.partly.get(release, (0, len(cases)))
            ids = _some(slug(case) + _beside(torch, of_torch) for case, torch in cases.items())
            lines.append(f"    {release}: in {held} of {of} cases, not in {ids}")
    return lines


def _runs(some: Sequence[str], of: Sequence[str]) -> str:
    """Releases as runs: "2.2.2 to 2.6.0, 2.8.0"."""
    if len(some) == len(of):
        return "all"
    runs: list[list[str]] = []
    for release in of:
        if release in some:
            if runs and of.index(runs[-1][-1]) + 1 == of.index(release):
                runs[-1].append(release)
            else:
                runs.append([release])
    return ", ".join(r[0] if len(r) == 1 else f"{r[0]} to {r[-1]}" for r in runs) or "none"


def elsewhere() -> dict[str, list[str]]:
    """Entries and rules that the kept sweep and the kept plans need, and in which release."""
    swept, planned = operators.sweep(), plans.kept()
    found: dict[str, list[str]] = {}
    frameworks = {one.id: framework_of(one.subject) for one in load_ledger(LEDGER, subjects())}
    for versions, ids in (
        (swept.versions, swept.ledger),
        (planned.versions, [id for known in planned.known.values() for id in known]),
    ):
        for id in ids:
            if id in frameworks:
                found.setdefault(id, []).append(public(versions[frameworks[id]]))
    return found


class _Pair(msgspec.Struct, frozen=True):
    torch: str
    other: str
    release: str
    verdicts: dict[str, int]


def as_data(tally: Tally, releases: Releases, entries: Sequence[Stand]) -> dict[str, Any]:
    """Everything, for ``--json``: releases, cases, pairs, divergences, ledger."""
    listed = [
        _Pair(row, other, column, dict(zip(OUTCOMES, tally.pair(row, other, column))))
        for other in FRAMEWORKS
        if other != BASE
        for row in releases[BASE]
        for column in releases[other]
    ]
    ledger = [
        {
            "id": one.entry.id,
            "subject": one.entry.subject,
            "rule": one.entry.rule,
            "versions": str(one.entry.versions),
            "exact": one.exact,
            "suggested": one.suggested,
            "holds": one.holds,
            "fails": one.fails,
            "elsewhere": one.elsewhere,
        }
        for one in entries
    ]
    return {
        "releases": releases,
        "cases": tally.cases,
        "pairs": listed,
        "divergences": tally.open,
        "strayed": tally.strayed,
        "ledger": ledger,
    }


def replayed(tally: Tally) -> list[str]:
    """What a live run and the records of its releases say differently."""

    def line(whose: str, one: object) -> str:
        return f"    {whose} {'nothing' if one is None else msgspec.json.encode(one).decode()}"

    lines = [f"cases held against the live run: {tally.replayed:,}; differing:"]
    for one in tally.strayed[:_STRAYED]:
        either = one.live or one.replayed
        assert either is not None
        lines += [slug(either.case), line("live  ", one.live), line("record", one.replayed)]
    if len(tally.strayed) > _STRAYED:
        lines.append(f"and {len(tally.strayed) - _STRAYED:,} lines more")
    return lines if tally.strayed else [f"{lines[0]} none"]


def main(words: Sequence[str]) -> int:
    """The command; 1 if there is anything that should not be, 2 if a file is wrong."""
    parser = argparse.ArgumentParser("python -m reports.pairs", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=RECORDS)
    parser.add_argument("--ledger", action="store_true", help="tell of every entry, not every pair")
    parser.add_argument("--case", metavar="PATTERN", default="*", help="these cases alone")
    parser.add_argument("--live", type=Path, metavar="FILE", help="the verdicts of a live run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep everything as JSON")
    given = parser.parse_args(words)
    began = time.monotonic()
    try:
        paths = find(given.folder)
        shelf = load(paths)
        releases = {name: [release_of(one) for one in of] for name, of in shelf.items()}
        tally = judged(paths, LEDGER, pattern=given.case, live=given.live, progress=_progress)
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    if not tally.cases:
        print(f"--case: found none that is {given.case}, wanted one at least", file=sys.stderr)
        return 2
    # What names none of the cases chosen, or may show in others, has nothing to show.
    some = {id for id, _ in tally.stood}
    entries = [
        one
        for one in stands(tally, load_ledger(LEDGER, subjects()), releases, elsewhere())
        if given.case == "*" or (one.entry.id in some and not one.entry.rule)
    ]
    if given.json:
        given.json.write_bytes(msgspec.json.encode(as_data(tally, releases, entries)))
    inexact = [one for one in entries if not one.exact]
    lines = []
    if not given.ledger:
        for name in FRAMEWORKS:
            lines += matrix(tally, releases, name) if name != BASE else []
    lines += otherwise_asked(shelf, given.case)
    lines += ["not known to the ledger:", *(unexplained(tally, releases) or ["none"]), ""]
    lines.append("ledger:" if given.ledger else "entries whose range is not exact:")
    shown = entries if given.ledger else inexact
    lines += [line for one in shown for line in told(one, releases[BASE])] or ["none"]
    lines.append("")
    if given.live:
        lines += [*replayed(tally), ""]
    counted = " x ".join(f"{len(releases[name])} of {name}" for name in FRAMEWORKS)
    took = time.monotonic() - began
    lines.append(f"records: {counted}; {tally.cases:,} cases; {took:.0f} s")
    print("\n".join(lines))
    return 1 if tally.open or inexact or tally.strayed else 0


def _progress(done: int, of: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done:,} of {of:,} cases", end="" if done < of else "\n", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
