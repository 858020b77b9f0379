"""How does every release of one framework come out beside every release of another?

``python -m reports.pairs [FOLDER]`` judges the records of a folder, by default the committed ones,
in all pairs: how many verdicts of each kind, what no cause explains, what several causes explain,
and causes that explain nothing. ``--live FILE``, the verdicts of a live run, are held against those
of the records of its releases, line by line. ``--causes`` tells where each cause shows, ``--case
PATTERN`` takes some cases alone, ``--json FILE`` keeps it all, ``--write`` writes docs/causes.md.
Ends with 1 if there is any such thing, or if docs/causes.md is stale. Asks no framework.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from adapters.record import digest_question
from adapters.registry import FRAMEWORKS, framework_of, subjects
from cases.errors import BadInput
from cases.ledger import LEDGER, Cause, load_ledger
from cases.model import slug
from reports import causes
from suites.record_index import RecordIndex, find_records, load_records, release_of
from suites.release_pairs import Tally, Unexplained, judge_catalogue, select_cases
from suites.sources import RECORDS
from suites.verdict import OUTCOMES

# How many cases are named as examples, and how much is told of what they gave.
_EXAMPLES = 3
_LONGEST = 100
# How many verdicts that strayed are told.
_STRAYED = 10

Releases = Mapping[str, Sequence[str]]


def format_matrix(tally: Tally, releases: Releases, base: str, other: str) -> list[str]:
    """A table for each kind of verdict, gravest first: rows one framework, columns the other."""
    lines = []
    for outcome in ("divergence", "known", "agree", "not comparable"):
        at = OUTCOMES.index(outcome)
        cells = {
            (row, column): tally.pair((base, row), (other, column))[at]
            for row in releases[base]
            for column in releases[other]
        }
        title = f"{outcome}, {base} by {other}"
        wide = max(len(f"{n:,}") for n in (*cells.values(), 0)) + 2
        wide = max(wide, *(len(column) + 2 for column in releases[other]))
        lines += [title, " " * 9 + "".join(f"{column:>{wide}}" for column in releases[other])]
        lines += [
            f"{row:<9}" + "".join(f"{cells[row, column]:>{wide},}" for column in releases[other])
            for row in releases[base]
        ]
        lines.append("")
    return lines


def format_unexplained(tally: Tally, releases: Releases) -> list[str]:
    """What no cause explains, by subject, aspect and severity; a line for each op."""
    groups: dict[tuple[str, str, str], dict[str, list[Unexplained]]] = {}
    for one in tally.open:
        if not one.causes:
            key = (one.verdict.subject, one.verdict.aspect, one.verdict.severity or "")
            groups.setdefault(key, {}).setdefault(one.op, []).append(one)
    lines = []
    for (subject, aspect, severity), ops in sorted(groups.items()):
        lines.append(f"{subject} {aspect}: {severity}")
        lines += [
            f"    {op}: {_where(found, releases[framework_of(subject)])}"
            for op, found in sorted(ops.items())
        ]
    return lines


def format_ambiguous(tally: Tally) -> list[str]:
    """What several causes explain, with an example of each."""
    found: dict[tuple[str, ...], list[Unexplained]] = {}
    for one in tally.open:
        if one.causes:
            found.setdefault(one.causes, []).append(one)
    return [
        f"{' and '.join(ids)}: {_first_few(dict.fromkeys(slug(one.verdict.case) for one in some))}"
        for ids, some in found.items()
    ]


def _where(found: Sequence[Unexplained], ours: Sequence[str]) -> str:
    """In which releases, in how many cases of each; some of them, and what the first gave."""
    cases: dict[str, set[str]] = {}
    for one in found:
        for release in one.releases:
            cases.setdefault(release, set()).add(one.verdict.case)
    where = ", ".join(f"{one} ({len(cases[one])})" for one in ours if one in cases)
    ids = _first_few(dict.fromkeys(slug(one.verdict.case) for one in found))
    got = found[0].verdict.got
    return f"{where}: {ids}; got {got if len(got) <= _LONGEST else got[:_LONGEST] + '...'}"


def _first_few(ids: Iterable[str]) -> str:
    listed = list(ids)
    more = f" and {len(listed) - _EXAMPLES} more" if len(listed) > _EXAMPLES else ""
    return ", ".join(listed[:_EXAMPLES]) + more


def format_not_recorded(shelf: RecordIndex, pattern: str) -> list[str]:
    """Records that lack questions of the present catalogue, or have others under their ids."""
    due = {case.id: digest_question(case.question) for case in select_cases(pattern)}
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
    head = "not recorded as the catalogue asks today, and so not comparable:"
    return [head, *lines, ""] if lines else []


def find_unused_causes(tally: Tally, ledger: Sequence[Cause]) -> list[Cause]:
    """The causes that explain nothing in any record; those of dry runs are in no record."""
    return [
        cause
        for cause in ledger
        if cause.id not in tally.met and cause.observed != ("dry run differs",)
    ]


class _Pair(msgspec.Struct, frozen=True):
    base: str
    base_release: str
    framework: str
    release: str
    verdicts: dict[str, int]


def as_data(tally: Tally, releases: Releases, ledger: Sequence[Cause]) -> dict[str, Any]:
    """Everything, for ``--json``: releases, cases, pairs, divergences, causes."""
    listed = [
        _Pair(base, row, other, column,
              dict(zip(OUTCOMES, tally.pair((base, row), (other, column)))))
        for base, other in _framework_pairs()
        for row in releases[base]
        for column in releases[other]
    ]  # fmt: skip
    shows = {
        id: {release: sorted(ids) for release, ids in met.cases.items()}
        for id, met in tally.met.items()
    }
    return {
        "releases": releases,
        "cases": tally.cases,
        "pairs": listed,
        "divergences": tally.open,
        "strayed": tally.strayed,
        "causes": shows,
        "idle": [cause.id for cause in find_unused_causes(tally, ledger)],
    }


def _framework_pairs() -> list[tuple[str, str]]:
    names = list(FRAMEWORKS)
    return [(base, other) for at, other in enumerate(names) for base in names[:at]]


def format_replay(tally: Tally) -> list[str]:
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
    parser.add_argument("--causes", action="store_true", help="tell where each cause shows")
    parser.add_argument("--case", metavar="PATTERN", default="*", help="these cases alone")
    parser.add_argument("--live", type=Path, metavar="FILE", help="the verdicts of a live run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep everything as JSON")
    parser.add_argument("--write", action="store_true", help=f"write {causes.PAGE.name}")
    given = parser.parse_args(words)
    began = time.monotonic()
    try:
        paths = find_records(given.folder)
        shelf = load_records(paths)
        releases = {name: [release_of(one) for one in of] for name, of in shelf.items()}
        tally = judge_catalogue(
            paths, LEDGER, pattern=given.case, live=given.live, progress=_progress
        )
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    if not tally.cases:
        print(f"--case: found none that is {given.case}, wanted one at least", file=sys.stderr)
        return 2
    ledger = load_ledger(LEDGER, subjects())
    whole = given.case == "*" and given.folder == RECORDS
    lines = []
    for base, other in _framework_pairs():
        lines += [] if given.causes else format_matrix(tally, releases, base, other)
    lines += format_not_recorded(shelf, given.case)
    none = ["none"]
    lines += ["explained by no cause:", *(format_unexplained(tally, releases) or none), ""]
    lines += ["explained by several causes:", *(format_ambiguous(tally) or none), ""]
    unused = find_unused_causes(tally, ledger) if whole else []
    if whole:
        lines += ["causes that explain nothing:", *([one.id for one in unused] or none), ""]
    if given.causes:
        lines += [*causes.list_causes(tally, ledger, releases), ""]
    if given.live:
        lines += [*format_replay(tally), ""]
    stale = False
    if whole:
        text = causes.page(tally, ledger, releases)
        if given.write:
            causes.PAGE.write_text(text, encoding="utf-8")
        stale = causes.PAGE.read_text(encoding="utf-8") != text
        if stale:
            lines += [f"{causes.PAGE.name} is stale: python -m reports.pairs --write", ""]
    if given.json:
        given.json.write_bytes(msgspec.json.encode(as_data(tally, releases, ledger)))
    counted = " x ".join(f"{len(releases[name])} of {name}" for name in FRAMEWORKS)
    took = time.monotonic() - began
    lines.append(f"records: {counted}; {tally.cases:,} cases; {took:.0f} s")
    print("\n".join(lines))
    return 1 if tally.open or unused or tally.strayed or stale else 0


def _progress(done: int, of: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done:,} of {of:,} cases", end="" if done < of else "\n", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
