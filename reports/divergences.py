"""Which divergences are known, and what is the smallest case of each? The ledger, met by records.

``python -m reports.divergences`` writes `docs/divergences.md`; a test checks that it is fresh.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from adapters.registry import framework_of
from cases.ledger import Entry, applies
from cases.model import slug
from reports.judged import Judged, frameworks, judged, ledger, size
from reports.tell import releases
from suites.failure import mesh_said, said
from suites.tensors import mesh_of
from suites.verdict import Verdict

PAGE = Path(__file__).resolve().parent.parent / "docs" / "divergences.md"

# What is observed, gravest first, and what that is called.
_PARTS = (
    ("Silent wrong numbers", ("wrong value", "wrong shard", "wrong offset", "ranks differ",
                              "wrong layout")),
    ("Hangs and crashes", ("hung", "crashed")),
    ("Refusals", ("refused", "unsupported")),
    ("Other layouts", ("layout",)),
    ("Other collectives", ("plan", "rule", "wrong count", "counters disagree")),
)  # fmt: skip


def page() -> str:
    """The page, in Markdown."""
    met: dict[str, list[tuple[Judged, Verdict]]] = defaultdict(list)
    for one in judged():
        for verdict in one.verdicts:
            if verdict.ledger is not None:
                met[verdict.ledger].append((one, verdict))
    lines = [
        "# Known divergences",
        "",
        "Written by `python -m reports.divergences` from the ledger, `cases/divergences/`, and"
        f" the records of {frameworks()}; do not edit. What diverges in other releases only is in"
        " [drift.md](drift.md), by entry.",
        "",
        "Each fails the suite when it stops being true. The smallest case of each can be had as a"
        " stand-alone script: `pytest -k CASE --repro=out/`.",
        "",
    ]
    for title, heads in _PARTS:
        own = [
            one
            for one in ledger()
            if one.observed.partition(":")[0] in heads
            and applies(one, releases()[framework_of(one.subject)])
        ]
        lines += [f"## {title}", "", f"{len(own)} entries.", ""]
        for entry in sorted(own, key=lambda one: (framework_of(one.subject) != "torch", one.id)):
            lines += _told(entry, met[entry.id])
    return "\n".join(lines)


def _counted(cases: int) -> str:
    if not cases:
        # One that reaches further back, or that an exhaustive run needs.
        return "no case in these records that another entry does not name"
    return f"{cases} case{'s' if cases != 1 else ''}"


def _told(entry: Entry, met: list[tuple[Judged, Verdict]]) -> list[str]:
    cases = {one.case.id for one, _ in met}
    versions = f", {entry.versions}" if str(entry.versions) else ""
    lines = [
        f"### {entry.id}",
        "",
        f"{entry.subject}{versions}: **{entry.observed}** ({entry.aspect}),"
        f" {_counted(len(cases))}. {entry.why}",
        "",
    ]
    if entry.link:
        lines += [entry.link, ""]
    if met:
        one, verdict = min(met, key=lambda pair: (size(pair[0].case), pair[0].case.id))
        question = one.case.question
        axes = ", ".join(f"{name}={extent}" for name, extent in question.mesh.axes)
        lines += [
            f"Smallest: `{slug(one.case.id)}` on {axes}",
            "",
            "```",
            *map(mesh_said, question.mesh_steps),
            *(said(step, mesh_of(one.case, step.result)) for step in question.steps),
            *(f"wanted {verdict.wanted}" for _ in verdict.wanted[:1]),
            *(f"got    {verdict.got}" for _ in verdict.got[:1]),
            "```",
            "",
        ]
    return lines


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"{PAGE}\n")
