"""Which cause explains a finding? By the ledger, in program order; later findings inherit it.

The first wrong, refused or costly finding of an answer needs a cause of its own. What follows from
a wrong or refused result inherits that result's cause. Knows no record.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import cache

import msgspec

from adapters.answer import Answer, Crashed, Hung, Refused
from adapters.reference.evaluate import join_shards
from cases.arrays import Array, pack, unpack
from cases.facts import Facts
from cases.layout import coordinates, index_ranges, local_shape
from cases.ledger import ASPECTS, Cause, Relation, can_show_in
from cases.model import Case, Layout, Mesh
from suites import observation as seen_as
from suites.observation import (
    BrokenContract,
    DryRunDiffers,
    Ended,
    Observation,
    OtherRedistributionPlan,
    WrongValue,
)
from suites.relations import relations
from suites.tensors import FULL, mesh_of, result_name, upstream
from suites.truth import Truth
from suites.verdict import Finding


class Explanation(msgspec.Struct, frozen=True):
    """What explains a finding: ``cause``, or None if nothing does.

    ``first``: the finding fits the cause itself, and inherits nothing. ``others``: ids of further
    causes that fit; there must be none.
    """

    cause: Cause | None = None
    first: bool = False
    others: tuple[str, ...] = ()


UNEXPLAINED = Explanation()


def find_causes(
    case: Case,
    answer: Answer,
    found: Sequence[Finding],
    ledger: Sequence[Cause],
    fact: Facts,
    right: Truth,
) -> list[Explanation]:
    """What explains each finding about an answer, in their order."""
    out = [UNEXPLAINED] * len(found)
    bad = [index for index, one in enumerate(found) if one.bad]
    if not bad:
        return out
    causes = [one for one in ledger if answer.subject in one.subject
              or answer.subject.partition("/")[0] in one.subject]  # fmt: skip
    place = {name: number for number, name in enumerate(_program_order(case))}

    def order(index: int) -> tuple[int, bool, int]:
        one = found[index]
        last = len(place) if one.step is None else -1
        at = place.get(result_name(one.step).partition("/")[0], last)
        # A result is there before it is materialised.
        return at, (one.step or "").endswith(FULL), ASPECTS.index(one.aspect)

    bad.sort(key=order)
    wrong: dict[str, Explanation] = {}
    for index in bad:
        if found[index].severity == "costly" or out[index].cause is not None:
            continue
        step = found[index].step
        above = upstream(case, step)
        inherited = next((wrong[name] for name in wrong if name in above), None)
        if inherited is not None:
            out[index] = msgspec.structs.replace(inherited, first=False, others=())
            continue
        # All that is wrong with one result has one cause, in whichever aspect it shows best.
        alike = [i for i in bad if found[i].step == step and found[i].severity != "costly"]
        for shows in alike:
            fit = _matching_causes(case, answer, found[shows], causes, fact, right)
            if fit:
                first = Explanation(fit[0], True, tuple(cause.id for cause in fit[1:]))
                for i in alike:
                    out[i] = msgspec.structs.replace(first, first=i == shows)
                wrong[result_name(step)] = first
                break
    for index in bad:
        costly = found[index]
        if costly.severity != "costly":
            continue
        above = upstream(case, costly.step)
        inherited = next((wrong[name] for name in wrong if name in above), None)
        if inherited is not None:
            out[index] = msgspec.structs.replace(inherited, first=False, others=())
        elif fit := _matching_causes(case, answer, costly, causes, fact, right):
            out[index] = Explanation(fit[0], True, tuple(cause.id for cause in fit[1:]))
    return out


def _program_order(case: Case) -> list[str]:
    question = case.question
    names_ = [step.result for step in question.mesh_steps if not step.after]
    names_ += [given.name for given in question.inputs]
    names_ += [step.result for step in question.steps]
    names_ += [step.result for step in question.mesh_steps if step.after]
    return names_ + [name for name in question.check if name not in names_]


def _matching_causes(
    case: Case,
    answer: Answer,
    found: Finding,
    causes: Sequence[Cause],
    fact: Facts,
    right: Truth,
) -> list[Cause]:
    """The causes that a finding fits, in the order of the ledger."""
    observed = found.observation
    if observed is None:
        return []
    kind = seen_as.kind_name(observed)
    steps = ops_at_fault(case, found.step, {one.name for one in answer.seen})
    asked = isinstance(observed, WrongValue) and observed.by_shards
    fit = [
        one
        for one in causes
        # A framework that did what it was asked is not at fault, whatever the result looks like.
        if (one.documented or not asked)
        and kind in one.observed
        and (not one.aspect or found.aspect in one.aspect)
        and _message_fits(one, observed)
        and _plan_fits(one, observed)
        and can_show_in(one, case, fact, steps)
    ]
    if not isinstance(observed, WrongValue) or not any(one.relation for one in fit):
        return fit
    holding = relations_of(case, answer, found, right)
    return [one for one in fit if not one.relation or holding & {*one.relation}]


def relations_of(case: Case, answer: Answer, found: Finding, right: Truth) -> frozenset[Relation]:
    """All relations of a wrong value to the right one; none for any other finding."""
    one = found.observation
    if not isinstance(one, WrongValue):
        return frozenset()
    return relations(
        one.wanted, one.got, one.allowed, _operands(case, found.step, right),
        _addends(case, answer, found.step),
    )  # fmt: skip


def ending_message(observed: Observation) -> str:
    """The message with which a framework ended early; "" if there is none.

    For a dry run that ended in another way than the run with data: the message of the run with
    data. For one whose local shape differs: both shapes.
    """
    if isinstance(observed, DryRunDiffers):
        return "; ".join(
            f"{one.what}: {one.before}, dry {one.after}" for one in observed.differences
        )
    if not isinstance(observed, Ended):
        return ""
    match observed.end:
        case Refused(error, line):
            return f"{error}: {line}"
        case Hung(why, _, raised):
            return raised or why
        case Crashed(how):
            return how


def _message_fits(cause: Cause, observed: Observation) -> bool:
    return not cause.message or bool(_pattern(cause.message).search(ending_message(observed)))


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def _plan_fits(cause: Cause, observed: Observation) -> bool:
    if not cause.cases.plan:
        return True
    return (
        isinstance(observed, OtherRedistributionPlan | BrokenContract)
        and observed.kind in cause.cases.plan
    )


def ops_at_fault(
    case: Case, step: str | None, shown: Collection[str] | None = None
) -> Collection[str]:
    """The ops that can be at fault where a finding shows at a step, as `CasePattern.step` has them.

    The step's own op, those of earlier steps that are not checked, and those that a gradient goes
    through. ``shown``: the part of what is checked that the answer shows; all of it if None.
    """
    question, name = case.question, result_name(step)
    made = {one.result: one for one in question.steps}
    if question.recipe is not None:
        return {name or "program", "full" if (step or "").endswith(FULL) else name}
    if step is not None and step.endswith(FULL):
        return {"full"}
    if step is None:
        return {"program", *(one.op for one in question.steps)}
    if name in {given.name for given in question.inputs}:
        return {"input"}
    if name not in made:
        ops = {one.result: one.op for one in question.mesh_steps}
        return {ops.get(name.partition("/")[0], name)}
    found, waiting = set[str](), [name]
    checked = {*question.check} if shown is None else {*question.check} & {*shown}
    while waiting:
        one = made[waiting.pop()]
        found.add(one.op)
        through = "grad" in found
        waiting += [arg for arg in one.operands if arg in made and (through or arg not in checked)]
    return found


def _operands(case: Case, step: str | None, right: Truth) -> list[Array]:
    made = {one.result: one for one in case.question.steps}
    names = made[result_name(step)].operands if result_name(step) in made else ()
    return [right.values[name] for name in names if name in right.values]


def _addends(case: Case, answer: Answer, step: str | None) -> list[Array]:
    """What devices hold of pending reductions: at the step itself, its operands and the inputs.

    Both what single devices hold, and the whole addend where it is split over other axes.
    """
    above = upstream(case, step)
    found = [
        array
        for given in case.question.inputs
        if given.name in above and given.layout.partial
        for array in given.per_device or ()
    ]
    for seen in answer.seen:
        if seen.name in above and isinstance(seen.layout, Layout) and seen.layout.partial:
            shards = [array for array in seen.shards or () if array is not None]
            found += shards + _joined(mesh_of(case, seen.name), seen.layout, shards, seen.shape)
    return found


def _joined(mesh: Mesh, layout: Layout, shards: list[Array], shape: tuple[int, ...]) -> list[Array]:
    """The whole addends of a pending reduction, where each is split over some axes."""
    held = map(local_shape, index_ranges(mesh, layout, shape) if layout.ndim == len(shape) else ())
    if not any(layout.dims) or [one.shape for one in shards] != list(held):
        return []
    arrays, owing = [unpack(one) for one in shards], {axis for axis, _ in layout.partial}
    return [
        pack(join_shards(mesh, Layout(layout.dims), arrays, shape, p))
        for p, where in enumerate(coordinates(mesh))
        if all(axis in owing or not index for axis, index in where.items())
    ]
