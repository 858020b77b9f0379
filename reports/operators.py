"""What does each op do under sharding, in each route? Outcomes counted, by family and by op.

``python -m reports.operators`` writes `docs/operators.md` from the committed records; a test
checks that it is fresh. ``python -m reports.operators FOLDER`` first takes the outcomes of a
sweep from the records that ``pytest suites/test_operators.py suites/test_gradients.py
--exhaustive --record=FOLDER`` keeps in a folder, and keeps them in `records/sweep.json`.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from cases.catalogue import family
from cases.errors import BadInput
from cases.model import slug
from reports.judged_catalogue import (
    BAD,
    OUTCOMES,
    ROUTES,
    JudgedCase,
    Outcome,
    count_outcomes,
    format_frameworks,
    judge_case,
    judge_catalogue,
)
from suites.record_index import find_records, load_records
from suites.sources import RECORDS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "operators.md"
SWEEP = RECORDS / "sweep.json"

Counts = dict[str, int]

KINDS = (
    "pointwise", "reduction", "contraction", "shape", "indexing", "ordering", "network", "algebra",
)  # fmt: skip


class Sweep(msgspec.Struct, frozen=True):
    """Outcomes of an exhaustive run, by family, kind of op and route; and what was wrong.

    ``wrong``: ids of cases by "route outcome", of those that gave a wrong number, hung or crashed.
    """

    versions: dict[str, str]
    counts: dict[str, dict[str, dict[str, Counts]]]
    wrong: dict[str, list[str]]


def read_sweep(folder: Path) -> Sweep:
    """The outcomes that a folder holds, which has one record of each framework.

    Raises:
        BadInput: there is no record, one cannot be read, or a framework has several.
    """
    shelf = load_records(find_records(folder))
    for name, some in shelf.items():
        if len(some) != 1:
            found = f"{len(some)} records of {name}"
            raise BadInput(str(folder), "", "", found, "one record of each framework")
    records = [some[0] for some in shelf.values()]
    versions = {one.header.framework: one.header.release for one in records}
    promised = {name: shown for one in records for name, shown in one.header.promises.items()}
    counts: dict[str, dict[str, dict[str, Counts]]] = {}
    wrong: dict[str, list[str]] = defaultdict(list)
    for name in ("operators", "gradients"):
        for case in family(name, exhaustive=True):
            if not all(case.id in one.lines for one in records):
                continue
            kind = next(kind for kind in KINDS if kind in case.tags)
            answers = {a.subject: a for one in records for a in one.answer(case.question)}
            outcomes = judge_case(case, answers, promised).outcomes
            for route in ROUTES:
                word = outcomes[route]
                tally = counts.setdefault(name, {}).setdefault(kind, {}).setdefault(route, {})
                tally[word] = tally.get(word, 0) + 1
                if word in BAD:
                    wrong[f"{route} {word}"].append(slug(case.id))
    return Sweep(versions, counts, dict(sorted(wrong.items())))


def stored_sweep() -> Sweep:
    """The outcomes that are kept."""
    return msgspec.json.decode(SWEEP.read_bytes(), type=Sweep)


def page() -> str:
    """The page, in Markdown."""
    lines = [
        "# What each op does under sharding",
        "",
        "Written by `python -m reports.operators`; do not edit.",
        "",
        "An op is *sound* in a case where its result is right and its shards are those of the"
        " layout that the framework reports. It is *wrong* where a value, a shard or a layout that"
        " was asked for is not right, with nothing said; *documented* where the framework's own"
        " documentation says that such a result is undefined. It *refuses* where the framework"
        " raises, *hangs* where ranks wait for ever, *crashes* where a process dies. *unsupported*"
        " is what a release or a route has no form for. The collectives that were fired are judged"
        " apart from this, and are in `--verdicts`.",
        "",
        "[causes.md](causes.md) has the cause of every wrong value, refusal, hang and crash, with"
        " its smallest case.",
        "",
    ]
    for name, title in (("operators", "Forward"), ("gradients", "Gradients")):
        found = [one for one in judge_catalogue() if one.case.family == name]
        lines += [
            f"## {title}: the default catalogue, {len(found):,} cases ({format_frameworks()})",
            "",
        ]
        counts = {
            kind: {route: _without_zeros(count_outcomes([one for one in found if kind in one.case.tags], route))
                   for route in ROUTES}
            for kind in KINDS
        }  # fmt: skip
        lines += [*_table(counts), ""]
    kept = stored_sweep()
    total = sum(_total(kinds) for kinds in kept.counts.values())
    lines += [
        f"## The whole sweep: {total:,} combinations of op and placement",
        "",
        "Every sample under every placement of its operands on an axis of 4, a covering set on 2x2,"
        " uneven and empty shards (`--exhaustive`). Run with "
        + " and ".join(f"{name} {release}" for name, release in kept.versions.items())
        + ".",
        "",
    ]
    for name, title in (("operators", "Forward"), ("gradients", "Gradients")):
        if name in kept.counts:
            lines += [
                f"{title}, {_total(kept.counts[name]):,} cases:", "",
                *_table(kept.counts[name]), "",
            ]  # fmt: skip
    lines += ["## Op by op, in the default catalogue", "", *_ops()]
    return "\n".join(lines) + "\n"


def _total(kinds: Mapping[str, Mapping[str, Counts]]) -> int:
    return sum(sum(routes["torch"].values()) for routes in kinds.values())


def _without_zeros(counts: Mapping[Outcome, int]) -> Counts:
    return {word: number for word, number in counts.items() if number}


def _table(counts: Mapping[str, Mapping[str, Counts]]) -> list[str]:
    heads = [f"{route} {word}" for route in ROUTES for word in OUTCOMES]
    total: Counts = dict.fromkeys(heads, 0)
    rows = []
    for kind in (kind for kind in KINDS if kind in counts):
        cells = {
            f"{route} {word}": counts[kind][route].get(word, 0)
            for route in ROUTES
            for word in OUTCOMES
        }
        total = {head: total[head] + cells[head] for head in heads}
        rows.append((kind, cells))
    # A column of nothing says nothing.
    shown = [head for head in heads if total[head]]
    out = [
        f"| family | {' | '.join(shown)} |",
        "|---" * (len(shown) + 1) + "|",
    ]
    for kind, cells in (*rows, ("all", total)):
        out.append(f"| {kind} | {' | '.join(str(cells[head] or '') for head in shown)} |")
    return out


def _ops() -> list[str]:
    by_op: dict[str, list[JudgedCase]] = defaultdict(list)
    for one in judge_catalogue():
        if one.case.family == "operators":
            by_op[one.case.question.steps[0].op].append(one)
    out = [f"| op | cases | {' | '.join(ROUTES)} |", "|---" * (len(ROUTES) + 2) + "|"]
    for op in sorted(by_op):
        found = by_op[op]
        cells = [_format_counts(count_outcomes(found, route)) for route in ROUTES]
        out.append(f"| {op} | {len(found)} | {' | '.join(cells)} |")
    return out


def _format_counts(counts: Mapping[Outcome, int]) -> str:
    return ", ".join(f"{number} {word}" for word, number in counts.items() if number)


def main(arguments: Sequence[str]) -> None:
    """Write the page; with a path, keep the outcomes of that sweep first."""
    if arguments:
        try:
            made = msgspec.json.encode(read_sweep(Path(arguments[0])), order="sorted")
        except BadInput as error:
            sys.exit(str(error))
        SWEEP.write_bytes(msgspec.json.format(made, indent=1) + b"\n")
    PAGE.write_text(page())
    sys.stdout.write(f"{PAGE}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
