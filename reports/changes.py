"""Which collectives does each change of layout on 2x2 take? A table of 144, from the records."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Literal

import msgspec

from adapters.answer import Answer, Done
from adapters.reference.cheapest_plan import cheapest_plan
from adapters.reference.implied_plan import implied_plan
from adapters.reference.redistribution_plan import plan_bytes
from adapters.registry import FRAMEWORKS, lowerings_of, only_executes_plans
from cases.catalogue import redistribute
from cases.model import Case, Mesh
from reports.judged_catalogue import Outcome, end_word
from reports.tell import recorded_answers
from reports.templates import DOCS, render
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

PAGE = DOCS / "changes-2x2.md"
SOURCES = ("R", "S(0)", "S(1)", "P(sum)")
TARGETS = ("R", "S(0)", "S(1)")
# How the table writes placements.
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
    """One change, what it implies, and by subject what it fired and how it ended.

    ``fired``: None where a subject did not finish.
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
    for subject, answer in answers.items():
        fired[subject] = None
        if isinstance(answer.end, Done):
            whole = answer.program
            fired[subject] = answer["y"].collectives if whole is None else whole
    ended = {subject: end_word(answer.end) for subject, answer in answers.items()}
    return LayoutChange(case, name, by, fired, ended)


def format_cell(mesh: Mesh, subject: str, row: LayoutChange) -> tuple[PlanClass, str]:
    """What a subject did: its class, and the text of the cell."""
    own = row.fired[subject]
    if own is None:
        return "none", row.ended[subject]
    by, cheap = row.by, row.by.cheapest or ()
    if subject.endswith(":cheapest"):
        by = ImpliedCollectives(cheap, cheap)
    explained = explain_by_lowerings(mesh, own, by.implied, lowerings_of(subject))
    if explained.plan is not None:
        severity = compare_collectives(mesh, subject, "y", own, by).severity
        same = explain_by_lowerings(mesh, own, cheap).plan is None
        text = "= cheapest" if same else f"{explained.plan}: {format_collectives(own)}"
        text += f" ({_format_factor(own, row.by.implied)}, {_format_factor(own, cheap)})"
        return "costly" if severity == "costly" else "free", text
    equal = total_bytes(own) == total_bytes(by.implied)
    more = "" if equal else f" ({_format_factor(own, by.implied)})"
    if explained.rules:
        return "rule", f"rule: {format_collectives(own)}{more}"
    if only_executes_plans(subject):
        return "implied", "= its plan"
    later = ", ".join(rule.name for rule in one_axis_at_a_time(mesh, subject, own, by))
    return "implied", "= implied" + (f", {later}" if later else "") + more


def _format_factor(fired: Fired, by: Fired) -> str:
    """Bytes relative to those of another plan, as short as a cell needs them: ``2x``."""
    ours, theirs = total_bytes(fired), total_bytes(by)
    if theirs:
        return f"{ours / theirs:.3g}x"
    return f"{ours:g} B over none" if ours else "1x"


def page() -> str:
    """The page, in Markdown."""
    changes, mesh = layout_changes(), redistribute.TWO
    counts, equal_counts = [], []
    for subject in SUBJECTS:
        classes = Counter(format_cell(mesh, subject, row)[0] for row in changes)
        counts.append([subject, *(classes[one] for one in PLAN_CLASSES)])
    for subject in SUBJECTS[1:3]:
        pairs = [(row.fired["torch"], row.fired[subject]) for row in changes]
        equal = sum(
            one is not None and other is not None and same_counts(one, other)
            for one, other in pairs
        )
        equal_counts.append((subject, equal))
    return render(
        PAGE.name,
        classes=[*PLAN_CLASSES.values()],
        counts=counts,
        equal_counts=equal_counts,
        subjects=[*SUBJECTS],
        rows=[_cells(mesh, row) for row in changes],
    )


def _cells(mesh: Mesh, row: LayoutChange) -> list[str]:
    """A change's name, what it implies, what is cheapest, and what each subject did."""
    given, step = row.case.question.inputs[0], row.case.question.steps[0]
    assert step.to is not None
    fired = row.by.implied, row.by.cheapest or ()
    cells = []
    for planner, collectives in zip((implied_plan, cheapest_plan), fired):
        plan = planner(mesh, given.layout, step.to, given.shape)
        cost = float(plan_bytes(mesh, plan, given.shape, ITEMSIZE))
        text = f"{format_collectives(collectives)}, {cost:g} B" if collectives else "none"
        cells.append(text)
    if Counter(fired[0]) == Counter(fired[1]):
        cells[1] = "= implied"
    return [row.name, *cells, *(format_cell(mesh, subject, row)[1] for subject in SUBJECTS)]
