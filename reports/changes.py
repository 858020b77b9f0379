"""Which collectives does each change of layout on 2x2 take? The table of 144, from the records.

``python -m reports.changes`` writes `docs/changes-2x2.md`; a test checks that it is fresh.
Reads the committed records and asks no framework.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from pathlib import Path

import msgspec

from adapters.answer import Answer, Collective, Done, ending
from adapters.reference.cheapest import cheapest
from adapters.reference.implied import implied
from adapters.reference.plan import plan_bytes
from adapters.registry import FRAMEWORKS
from cases.catalogue import redistribute
from cases.model import Case, Mesh
from reports.tell import recorded
from suites.collectives import SEQUENCE, Measure, explain, factor, held, measure, same_counts, say

PAGE = Path(__file__).resolve().parent.parent / "docs" / "changes-2x2.md"
SOURCES = ("R", "S(0)", "S(1)", "P(sum)")
TARGETS = ("R", "S(0)", "S(1)")
SUBJECTS = tuple(subject for row in FRAMEWORKS.values() for subject in row.subjects)
ITEMSIZE = 4


class Row(msgspec.Struct, frozen=True):
    """One change, what it implies, and what each subject fired; None where it did not end."""

    case: Case
    by: Measure
    fired: dict[str, tuple[Collective, ...] | None]
    ended: dict[str, str]


def rows() -> list[Row]:
    """The 144 changes from {R, S(0), S(1), P}² to {R, S(0), S(1)}² on {a=2, b=2}, 8x8 float32."""
    found = []
    for source in itertools.product(SOURCES, repeat=2):
        for target in itertools.product(TARGETS, repeat=2):
            case = redistribute.change(redistribute.TWO, source, target, (8, 8))
            found.append(_row(case, recorded(case)))
    return found


def _row(case: Case, answers: dict[str, Answer]) -> Row:
    mesh, given, step = case.question.mesh, case.question.inputs[0], case.question.steps[0]
    assert step.to is not None
    by = measure(mesh, given.layout, step.to, given.shape, ITEMSIZE)
    fired: dict[str, tuple[Collective, ...] | None] = {}
    ended = {}
    for subject, answer in answers.items():
        ended[subject] = ending(answer.end)
        fired[subject] = None
        if isinstance(answer.end, Done):
            own = answer.program if answer.program is not None else answer["y"].collectives
            fired[subject] = own
    return Row(case, by, fired, ended)


def cell(mesh: Mesh, subject: str, row: Row) -> tuple[str, str]:
    """What a subject did, as a class ("implied", "rule", "other", "none") and in words."""
    own = row.fired[subject]
    if own is None:
        return "none", row.ended[subject].partition(":")[0]
    wanted = row.by.cheapest if subject.endswith(":cheapest") else row.by.implied
    assert wanted is not None
    explained = explain(mesh, subject, own, wanted)
    if explained.plan:
        cheap = row.by.cheapest or ()
        same = not explain(mesh, "", own, cheap).plan
        words = "= cheapest" if same else f"{explained.plan}: {say(own)}"
        return "other", f"{words} ({factor(own, row.by.implied)}, {factor(own, cheap)})"
    times = factor(own, wanted)
    more = "" if times == "1x" else f" ({times})"
    if explained.rules:
        return "rule", f"rule: {say(own)}{more}"
    if "shard_map" in subject:
        return "implied", "= its plan"
    finding = held(mesh, subject, "y", own, row.by)
    return "implied", "= implied" + (f", {SEQUENCE}" if finding.observed else "") + more


def page() -> str:
    """The page, in Markdown."""
    table = rows()
    mesh = redistribute.TWO
    lines = [
        "# Changes of layout on 2x2",
        "",
        "Written by `python -m reports.changes` from the committed records; do not edit.",
        "",
        "All 144 changes from {R, S(0), S(1), P(sum)}² to {R, S(0), S(1)}² on a mesh"
        " `{a=2, b=2}`, an 8x8 float32 tensor of 256 bytes. *Implied* is the placement algebra,"
        " axis by axis; *cheapest* the plan of fewest bytes, then fewest collectives. Bytes are"
        " those that the busiest device receives. A subject's cell says `= implied`; `= its plan`"
        " for the routes that execute one; `rule:` and"
        " what it fired where a named lowering rule explains it; or the kind of another plan,"
        " what it fired, and its bytes over the implied and over the cheapest plan.",
        "",
        *_figures(mesh, table),
        "",
        "An algebra that ignores nesting, as the design's first figures did, has torch at 92, 36"
        " and 16 and JAX at 63, 20 and 61. Here an axis inner to one that is added, removed or"
        " moved has changed too, so that DTensor's gathering and cutting again of nested axes is"
        " what is implied, or that by the rule for all-to-all, in 10 changes more; and one"
        " collective over both axes where two were implied is a rule of its own, which explains"
        " 11 more of JAX's. Equal counts of the two frameworks depend on no algebra.",
        "",
        "| change | implied | cheapest | " + " | ".join(SUBJECTS) + " |",
        "|---|---|---|" + "---|" * len(SUBJECTS),
    ]
    for row in table:
        given, step = row.case.question.inputs[0], row.case.question.steps[0]
        assert step.to is not None
        change = row.case.id.removeprefix("a2.b2-").replace("-to-", " → ").replace(".", ",").upper()
        plans = [
            planner(mesh, given.layout, step.to, given.shape) for planner in (implied, cheapest)
        ]
        costs = [f"{float(plan_bytes(mesh, plan, given.shape, ITEMSIZE)):g} B" for plan in plans]
        said = [say(one or ()) for one in (row.by.implied, row.by.cheapest)]
        cells = [f"{text}, {cost}" if text != "none" else "none" for text, cost in zip(said, costs)]
        if said[0] == said[1]:
            cells[1] = "= implied"
        cells += [cell(mesh, subject, row)[1] for subject in SUBJECTS]
        lines.append("| " + " | ".join([change, *cells]) + " |")
    return "\n".join(lines) + "\n"


def _figures(mesh: Mesh, table: list[Row]) -> list[str]:
    lines = [
        "| subject | = implied | by rule | another plan | no answer |",
        "|---|---|---|---|---|",
    ]
    for subject in SUBJECTS:
        counted = Counter(cell(mesh, subject, row)[0] for row in table)
        numbers = " | ".join(str(counted[kind]) for kind in ("implied", "rule", "other", "none"))
        lines.append(f"| {subject} | {numbers} |")
    for subject in SUBJECTS[1:3]:
        equal = sum(
            one is not None and other is not None and same_counts(one, other)
            for one, other in ((row.fired["torch"], row.fired[subject]) for row in table)
        )
        lines += [
            "",
            f"Bare counts by kind are equal in torch and {subject} for {equal} of {len(table)}.",
        ]
    return lines


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"{PAGE}\n")
