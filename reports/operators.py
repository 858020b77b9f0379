"""What does each op do under sharding, in each route? Outcomes are counted by family and by op.

``pytest suites/test_operators.py suites/test_gradients.py --exhaustive --record=FOLDER`` records a
sweep. ``python -m reports.operators FOLDER`` then stores its outcomes in `records/sweep.json`.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from cases.catalogue import family
from cases.errors import BadInput
from cases.model import slug
from reports.judged_catalogue import (
    BAD,
    OUTCOMES,
    ROUTES,
    JudgedCase,
    count_outcomes,
    format_frameworks,
    format_outcomes,
    judge_case,
    judge_catalogue,
)
from reports.templates import DOCS, render, store, table
from suites.record_index import find_records, load_records
from suites.sources import RECORDS

PAGE = DOCS / "operators.md"
SWEEP = RECORDS / "sweep.json"

Counts = dict[str, int]
_TITLES = {"operators": "Forward", "gradients": "Gradients"}

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
    default = []
    for name, title in _TITLES.items():
        found = [one for one in judge_catalogue() if one.case.family == name]
        counts = {
            kind: {
                route: count_outcomes([one for one in found if kind in one.case.tags], route)
                for route in ROUTES
            }
            for kind in KINDS
        }
        default.append({"title": title, "count": f"{len(found):,}", "table": _table(counts)})
    stored = stored_sweep()
    sweep = {
        "total": f"{sum(map(_total, stored.counts.values())):,}",
        "versions": " and ".join(f"{name} {release}" for name, release in stored.versions.items()),
        "tables": [
            {"title": title, "count": f"{_total(kinds):,}", "table": _table(kinds)}
            for name, title in _TITLES.items()
            if (kinds := stored.counts.get(name))
        ],
    }
    return render(
        PAGE.name, frameworks=format_frameworks(), default=default, sweep=sweep, ops=_ops()
    )


def _total(kinds: Mapping[str, Mapping[str, Counts]]) -> int:
    return sum(sum(routes["torch"].values()) for routes in kinds.values())


def _table(counts: Mapping[str, Mapping[str, Mapping[Any, int]]]) -> str:
    """A row for each kind of op, a column for each outcome that occurs."""
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
    rows.append(("all", total))
    shown = [head for head in heads if total[head]]
    lines = [[kind, *(cells[head] or "" for head in shown)] for kind, cells in rows]
    return table(["family", *shown], lines)


def _ops() -> str:
    by_op: dict[str, list[JudgedCase]] = defaultdict(list)
    for one in judge_catalogue():
        if one.case.family == "operators":
            by_op[one.case.question.steps[0].op].append(one)
    rows = [
        [op, len(found), *(format_outcomes(found, route) for route in ROUTES)]
        for op, found in sorted(by_op.items())
    ]
    return table(["op", "cases", *ROUTES], rows)


if __name__ == "__main__":
    try:
        store(read_sweep(Path(sys.argv[1])), SWEEP)
    except BadInput as error:
        sys.exit(str(error))
