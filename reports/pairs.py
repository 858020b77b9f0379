"""How does every release of one framework compare with every release of another?

``python -m reports.pairs [FOLDER]`` judges all pairs of records in a folder, by default the
committed ones. It counts the verdicts of each kind, and lists what no cause explains, what several
causes explain, and causes that explain nothing. It exits with 1 if there is anything in these
lists, or if docs/causes.md is stale; ``--write`` writes that page. ``--live FILE`` compares the
verdicts of a live run with those of the records of its releases, line by line.
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
from reports.formatting import first_few, shorten
from suites.record_index import RecordIndex, find_records, load_records, release_of
from suites.release_pairs import Tally, Unexplained, judge_catalogue, select_cases
from suites.sources import RECORDS
from suites.verdict import OUTCOMES

# How many cases are named as examples, and how many characters of their values are shown.
_EXAMPLES = 3
_LONGEST = 100
# How many verdicts are shown that differ from the live run.
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
    """What no cause explains, by subject, aspect and severity, with a line for each op."""
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
    """What several causes explain, with examples."""
    found: dict[tuple[str, ...], list[Unexplained]] = {}
    for one in tally.open:
        if one.causes:
            found.setdefault(one.causes, []).append(one)
    return [f"{' and '.join(ids)}: {_examples(some)}" for ids, some in found.items()]


def _examples(found: Iterable[Unexplained]) -> str:
    return first_few(dict.fromkeys(slug(one.verdict.case) for one in found), _EXAMPLES)


def _where(found: Sequence[Unexplained], ours: Sequence[str]) -> str:
    """The releases with their numbers of cases, some ids, and the value of the first case."""
    cases: dict[str, set[str]] = {}
    for one in found:
        for release in one.releases:
            cases.setdefault(release, set()).add(one.verdict.case)
    where = ", ".join(f"{one} ({len(cases[one])})" for one in ours if one in cases)
    got = found[0].verdict.got
    return f"{where}: {_examples(found)}; got {shorten(got, _LONGEST)}"


def format_not_recorded(shelf: RecordIndex, pattern: str) -> list[str]:
    """Records that lack questions of the present catalogue, or have other words for them."""
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
    head = "questions that a record lacks or has in different words, and so not comparable:"
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
    """All results, for ``--json``."""
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
    """The verdicts that differ between a live run and the records of its releases."""

    def line(whose: str, one: object) -> str:
        return f"    {whose} {'nothing' if one is None else msgspec.json.encode(one).decode()}"

    lines = [f"cases compared with the live run: {tally.replayed:,}; differing:"]
    for one in tally.strayed[:_STRAYED]:
        either = one.live or one.replayed
        assert either is not None
        lines += [slug(either.case), line("live  ", one.live), line("record", one.replayed)]
    if len(tally.strayed) > _STRAYED:
        lines.append(f"and {len(tally.strayed) - _STRAYED:,} lines more")
    return lines if tally.strayed else [f"{lines[0]} none"]


def main(words: Sequence[str]) -> int:
    """The command line: 0, 1 if something is unexplained or stale, 2 if a file is wrong."""
    parser = argparse.ArgumentParser("python -m reports.pairs", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=RECORDS)
    parser.add_argument("--causes", action="store_true", help="print where each cause shows")
    parser.add_argument("--case", metavar="PATTERN", default="*", help="only cases whose ids match")
    parser.add_argument(
        "--live", type=Path, metavar="FILE", help="verdicts of a live run to compare with"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results as JSON")
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
