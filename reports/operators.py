"""What does each op do under sharding, in each route? Outcomes counted, by family and by op.

``python -m reports.operators`` writes `docs/operators.md` from the committed records; a test
checks that it is fresh. ``python -m reports.operators VERDICTS`` first takes the outcomes of a
sweep from the verdicts of ``pytest suites/test_operators.py suites/test_gradients.py
--exhaustive --verdicts=VERDICTS``, and keeps them in `records/sweep.json`.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from cases.catalogue import family
from cases.model import slug
from reports.judged import OUTCOMES, ROUTES, Judged, Outcome, counted, frameworks, judged, outcome
from suites.sources import RECORDS
from suites.verdict import Verdict

PAGE = Path(__file__).resolve().parent.parent / "docs" / "operators.md"
SWEEP = RECORDS / "sweep.json"

Counts = dict[str, int]

KINDS = (
    "pointwise", "reduction", "contraction", "shape", "indexing", "ordering", "network", "algebra",
)  # fmt: skip


class Sweep(msgspec.Struct, frozen=True):
    """Outcomes of an exhaustive run, by family, kind of op and route; and what was wrong.

    ``wrong``: ids of cases by "route outcome", of those that gave a wrong number, hung or crashed.
    ``ledger``: the entries and rules that something in it was explained by.
    """

    versions: dict[str, str]
    counts: dict[str, dict[str, dict[str, Counts]]]
    wrong: dict[str, list[str]]
    ledger: list[str]


def taken(path: Path) -> Sweep:
    """The outcomes in a file of verdicts."""
    lines = path.read_text().splitlines()
    versions = msgspec.json.decode(lines[0])["versions"]
    verdicts: dict[str, dict[str, list[Verdict]]] = defaultdict(lambda: defaultdict(list))
    for line in lines[1:]:
        verdict = msgspec.json.decode(line, type=Verdict)
        verdicts[verdict.case][verdict.subject].append(verdict)
    counts: dict[str, dict[str, dict[str, Counts]]] = {}
    wrong: dict[str, list[str]] = defaultdict(list)
    explained: set[str] = set()
    for name in ("operators", "gradients"):
        for case in family(name, exhaustive=True):
            if case.id not in verdicts:
                continue
            kind = next(kind for kind in KINDS if kind in case.tags)
            for own in verdicts[case.id].values():
                explained |= {verdict.ledger for verdict in own if verdict.ledger}
            for route in ROUTES:
                word = outcome(verdicts[case.id][route])
                tally = counts.setdefault(name, {}).setdefault(kind, {}).setdefault(route, {})
                tally[word] = tally.get(word, 0) + 1
                if word in ("wrong", "hangs", "crashes"):
                    wrong[f"{route} {word}"].append(slug(case.id))
    return Sweep(versions, counts, dict(sorted(wrong.items())), sorted(explained))


def sweep() -> Sweep:
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
        " layout that the framework reports; *wrong* where a value or a shard is not, with nothing"
        " said; it *refuses* where the framework raises, *hangs* where ranks wait for ever,"
        " *crashes* where a process dies. *unsupported* is what a release or a route has no form"
        " for."
        " Which collectives were fired is judged beside, and is in `--verdicts`.",
        "",
        "Every wrong value, hang and crash is in [divergences.md](divergences.md), with its"
        " smallest case.",
        "",
    ]
    for name, title in (("operators", "Forward"), ("gradients", "Gradients")):
        found = [one for one in judged() if one.case.family == name]
        lines += [f"## {title}: the default catalogue, {len(found):,} cases ({frameworks()})", ""]
        counts = {
            kind: {route: _some(counted([one for one in found if kind in one.case.tags], route))
                   for route in ROUTES}
            for kind in KINDS
        }  # fmt: skip
        lines += [*_table(counts), ""]
    kept = sweep()
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


def _some(counts: Mapping[Outcome, int]) -> Counts:
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
    by_op: dict[str, list[Judged]] = defaultdict(list)
    for one in judged():
        if one.case.family == "operators":
            by_op[one.case.question.steps[0].op].append(one)
    out = [f"| op | cases | {' | '.join(ROUTES)} |", "|---" * (len(ROUTES) + 2) + "|"]
    for op in sorted(by_op):
        found = by_op[op]
        cells = [_words(counted(found, route)) for route in ROUTES]
        out.append(f"| {op} | {len(found)} | {' | '.join(cells)} |")
    return out


def _words(counts: Mapping[Outcome, int]) -> str:
    return ", ".join(f"{number} {word}" for word, number in counts.items() if number)


def main(arguments: Sequence[str]) -> None:
    """Write the page; with a path, keep the outcomes of that sweep first."""
    if arguments:
        made = msgspec.json.encode(taken(Path(arguments[0])), order="sorted")
        SWEEP.write_bytes(msgspec.json.format(made, indent=1) + b"\n")
    PAGE.write_text(page())
    sys.stdout.write(f"{PAGE}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
