"""Which collectives does each change of layout on 2x2 take? The table of 144, from the records.

``python -m reports.changes`` writes `docs/changes-2x2.md`; a test checks that it is fresh.
Reads the committed records and asks no framework.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from adapters.answer import Answer, Done
from adapters.reference.cheapest_plan import cheapest_plan
from adapters.reference.implied_plan import implied_plan
from adapters.reference.redistribution_plan import plan_bytes
from adapters.registry import FRAMEWORKS, only_executes_plans
from cases.catalogue import redistribute
from cases.model import Case, Mesh
from reports.judged_catalogue import Outcome, end_word
from reports.tell import recorded_answers
from suites.collectives import (
    ImpliedCollectives,
    compare_collectives,
    explain_by_lowerings,
    implied_by_redistribution,
    one_axis_at_a_time,
    same_counts,
)
from suites.observation import Fired, total_bytes
from suites.wording import format_collectives

PAGE = Path(__file__).resolve().parent.parent / "docs" / "changes-2x2.md"
SOURCES = ("R", "S(0)", "S(1)", "P(sum)")
TARGETS = ("R", "S(0)", "S(1)")
# How the table writes them.
SHORT = {"R": "R", "S(0)": "S0", "S(1)": "S1", "P(sum)": "P"}
SUBJECTS = tuple(subject for row in FRAMEWORKS.values() for subject in row.subjects)
ITEMSIZE = 4


PlanClass = Literal["implied", "rule", "free", "costly", "none"]
PLAN_CLASSES: dict[PlanClass, str] = {
    "implied": "= implied",
    "rule": "by rule",
    "free": "another plan, free",
    "costly": "another plan, costly",
    "none": "no answer",
}


class LayoutChange(msgspec.Struct, frozen=True):
    """One change, what it implies, what each subject fired, and how each ended.

    ``fired``: None where a subject did not come to its end.
    """

    case: Case
    name: str
    by: ImpliedCollectives
    fired: dict[str, Fired | None]
    ended: dict[str, Outcome]


def layout_changes() -> list[LayoutChange]:
    """The 144 changes from {R, S(0), S(1), P}² to {R, S(0), S(1)}² on {a=2, b=2}, 8x8 float32."""
    found = []
    for source in itertools.product(SOURCES, repeat=2):
        for target in itertools.product(TARGETS, repeat=2):
            case = redistribute.change(redistribute.TWO, source, target, (8, 8))
            name = f"{_short(source)} → {_short(target)}"
            found.append(_row(case, name, recorded_answers(case)))
    return found


def _short(placements: Iterable[str]) -> str:
    return ",".join(SHORT[one] for one in placements)


def _row(case: Case, name: str, answers: dict[str, Answer]) -> LayoutChange:
    mesh, given, step = case.question.mesh, case.question.inputs[0], case.question.steps[0]
    assert step.to is not None
    by = implied_by_redistribution(mesh, given.layout, step.to, given.shape, ITEMSIZE)
    fired: dict[str, Fired | None] = {}
    ended: dict[str, Outcome] = {}
    for subject, answer in answers.items():
        ended[subject] = end_word(answer.end)
        fired[subject] = None
        if isinstance(answer.end, Done):
            own = answer.program if answer.program is not None else answer["y"].collectives
            fired[subject] = own
    return LayoutChange(case, name, by, fired, ended)


def format_cell(mesh: Mesh, subject: str, row: LayoutChange) -> tuple[PlanClass, str]:
    """What a subject did, as a class and in words."""
    own = row.fired[subject]
    if own is None:
        return "none", row.ended[subject]
    by, cheap = row.by, row.by.cheapest or ()
    if subject.endswith(":cheapest"):
        by = ImpliedCollectives(cheap, cheap)
    explained = explain_by_lowerings(mesh, subject, own, by.implied)
    if explained.plan is not None:
        severity = compare_collectives(mesh, subject, "y", own, by).severity
        same = explain_by_lowerings(mesh, "", own, cheap).plan is None
        words = "= cheapest" if same else f"{explained.plan}: {format_collectives(own)}"
        told = f"{words} ({_format_factor(own, row.by.implied)}, {_format_factor(own, cheap)})"
        return "costly" if severity == "costly" else "free", told
    more = (
        ""
        if total_bytes(own) == total_bytes(by.implied)
        else f" ({_format_factor(own, by.implied)})"
    )
    if explained.rules:
        return "rule", f"rule: {format_collectives(own)}{more}"
    if only_executes_plans(subject):
        return "implied", "= its plan"
    later = ", ".join(rule.name for rule in one_axis_at_a_time(mesh, subject, own, by))
    return "implied", "= implied" + (f", {later}" if later else "") + more


def _format_factor(fired: Fired, by: Fired) -> str:
    """Bytes beside those of another plan, as short as a cell needs them: ``2x``."""
    ours, theirs = total_bytes(fired), total_bytes(by)
    if theirs:
        return f"{ours / theirs:.3g}x"
    return f"{ours:g} B over none" if ours else "1x"


def page() -> str:
    """The page, in Markdown."""
    table = layout_changes()
    mesh = redistribute.TWO
    lines = [
        "# Changes of layout on 2x2",
        "",
        "Written by `python -m reports.changes` from the committed records; do not edit.",
        "",
        "All 144 changes from {R, S(0), S(1), P(sum)}² to {R, S(0), S(1)}² on a mesh"
        " `{a=2, b=2}`, an 8x8 float32 tensor of 256 bytes. *Implied* is the placement algebra,"
        " axis by axis; *cheapest* the redistribution plan of fewest bytes, then of fewest"
        " collectives. Bytes are those that the busiest device receives. A subject's cell says"
        " `= implied`; or `= its plan`, for the routes that execute one; or `rule:` and what it"
        " fired, where a named lowering rule explains it; or the kind of another plan, what it"
        " fired, and its bytes over those of the implied and of the cheapest plan. Another plan is"
        " *costly* if it moves more bytes than the implied one, else *free*.",
        "",
        *_figures(mesh, table),
        "",
        "A simpler algebra ignores nesting: it has torch at 92, 36 and 16 and JAX at 63, 20 and 61."
        " Here an axis that is inner to one that is added, removed or moved has changed too. So"
        " in 10 changes more DTensor does what is implied, or that by the rule for all-to-all,"
        " when it gathers nested axes and cuts them again. One collective over both axes, where"
        " two were implied, is a rule of its own, which explains 11 more of JAX's. Equal counts"
        " of the two frameworks depend on no algebra.",
        "",
        "| change | implied | cheapest | " + " | ".join(SUBJECTS) + " |",
        "|---|---|---|" + "---|" * len(SUBJECTS),
    ]
    for row in table:
        given, step = row.case.question.inputs[0], row.case.question.steps[0]
        assert step.to is not None
        plans = [
            planner(mesh, given.layout, step.to, given.shape)
            for planner in (implied_plan, cheapest_plan)
        ]
        costs = [f"{float(plan_bytes(mesh, plan, given.shape, ITEMSIZE)):g} B" for plan in plans]
        plans_fired = row.by.implied, row.by.cheapest or ()
        cells = [
            f"{format_collectives(one)}, {cost}" if one else "none"
            for one, cost in zip(plans_fired, costs)
        ]
        if Counter(plans_fired[0]) == Counter(plans_fired[1]):
            cells[1] = "= implied"
        cells += [format_cell(mesh, subject, row)[1] for subject in SUBJECTS]
        lines.append("| " + " | ".join([row.name, *cells]) + " |")
    return "\n".join(lines) + "\n"


def _figures(mesh: Mesh, table: list[LayoutChange]) -> list[str]:
    lines = [
        f"| subject | {' | '.join(PLAN_CLASSES.values())} |",
        "|---" * (len(PLAN_CLASSES) + 1) + "|",
    ]
    for subject in SUBJECTS:
        counted = Counter(format_cell(mesh, subject, row)[0] for row in table)
        numbers = " | ".join(str(counted[kind]) for kind in PLAN_CLASSES)
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
