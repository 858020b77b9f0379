"""Are the collectives that a framework fired those that its own layouts imply?

They may be equal, equal by a named lowering rule, or another plan. Another plan is costly if it
moves more bytes than the implied one, and free if it does not. A rule explains a count and never
hides one: where collectives do not match one for one, it is another plan.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import msgspec
import numpy as np

from adapters.answer import Collective, Done, Observed
from adapters.reference.cheapest_plan import cheapest_plan
from adapters.reference.implied_plan import implied_plan
from adapters.reference.propagation import implied_by_op
from adapters.reference.redistribution_plan import RedistributionPlan, as_collectives
from adapters.registry import Lowering, Lowerings, lowerings_of, only_executes_plans
from cases.arrays import numpy_dtype
from cases.layout import index_ranges
from cases.ledger import RedistributionPlanKind
from cases.mesh_derivation import meshes_of_tensors
from cases.model import Case, Layout, Mesh, Step
from suites.aspects import Context
from suites.observation import (
    Fired,
    Missing,
    OtherRedistributionPlan,
    TooMany,
    WrongCount,
    total_bytes,
)
from suites.simplified_program import needed_steps
from suites.tensors import FULL, mesh_of, result_name
from suites.verdict import Finding, agree, differs, not_comparable

# When it is matched, a collective over k axes counts as k collectives over one axis each.
CountsByAxis = Counter[tuple[str, str]]


MERGED_AXES = Lowering(
    "one over several axes",
    "one collective runs over several mesh axes at once",
)
ONE_AXIS_AT_A_TIME = Lowering(
    "one after the other",
    "two collectives over one axis each, where one over both would do",
    "https://github.com/pytorch/pytorch/issues/171916",
)


class LoweringResult(msgspec.Struct, frozen=True):
    """How counted collectives relate to implied ones.

    ``rules``: the lowering rules that were needed; none if the two are equal. ``plan``: the kind of
    the other plan; None if they are equal or explained.
    """

    rules: tuple[Lowering, ...] = ()
    plan: RedistributionPlanKind | None = None


def count_by_axis(mesh: Mesh, collectives: Iterable[Collective]) -> CountsByAxis:
    """Kinds by single axis of size > 1. Groups that fit no axes are counted under the axis "?"."""
    found: CountsByAxis = Counter()
    for one in collectives:
        for axis in one.axes or ("?",):
            if axis == "?" or mesh[axis] > 1:
                found[one.kind, axis] += 1
    return found


def _count_by_axes(
    mesh: Mesh, collectives: Iterable[Collective]
) -> Counter[tuple[str, frozenset[str]]]:
    return Counter(
        (one.kind, frozenset(axis for axis in one.axes if mesh[axis] > 1) or frozenset("?"))
        for one in collectives
        if not one.axes or any(mesh[axis] > 1 for axis in one.axes)
    )


def explain_by_lowerings(
    mesh: Mesh,
    counted: tuple[Collective, ...],
    wanted: tuple[Collective, ...],
    lowerings: Lowerings = (),
) -> LoweringResult:
    """How the counted collectives follow from the implied ones, by a framework's lowering rules."""
    if _count_by_axes(mesh, counted) == _count_by_axes(mesh, wanted):
        return LoweringResult()
    rules: list[Lowering] = []
    extra, lacking = count_by_axis(mesh, counted), count_by_axis(mesh, wanted)
    extra, lacking = extra - lacking, lacking - extra
    for rule, implied, instead in lowerings:
        for (kind, axis), count in list(lacking.items()):
            if kind == implied and extra[instead, axis] >= count:
                extra[instead, axis] -= count
                del lacking[kind, axis]
                rules.append(rule)
    if +extra or +lacking:
        return LoweringResult(plan=plan_kind(mesh, counted, wanted))
    if any(len(one.axes) > 1 for one in (*counted, *wanted)):
        rules.append(MERGED_AXES)
    return LoweringResult(rules=tuple(dict.fromkeys(rules)))


def plan_kind(mesh: Mesh, counted: Fired, wanted: Fired) -> RedistributionPlanKind:
    """A name for a plan that is not the implied one, from its collectives alone."""
    if any(not one.axes for one in counted):
        return "over groups that are no axes"
    ours, theirs = count_by_axis(mesh, counted), count_by_axis(mesh, wanted)
    if not theirs:
        return "fires where nothing is implied"
    if not ours:
        return "fires nothing"
    extra = {kind for kind, _ in ours - theirs}
    if "collective-permute" in extra:
        return "permutes"
    if not theirs - ours:
        return "more"
    return plan_kind_of_extra(extra)


def plan_kind_of_extra(extra: Iterable[str]) -> RedistributionPlanKind:
    """A name for what a plan does beyond what is implied, by the kinds of its collectives."""
    kinds = {*extra}
    if not kinds:
        return "fewer"
    if "collective-permute" in kinds:
        return "permutes"
    if kinds == {"all-gather"}:
        return "gathers"
    if kinds == {"all-to-all"}:
        return "exchanges"
    if kinds <= {"all-reduce", "reduce-scatter"}:
        return "reduces"
    return "gathers, exchanges and reduces"


class ImpliedCollectives(msgspec.Struct, frozen=True):
    """What a step implies; and for a change of layout, the cheapest plan."""

    implied: tuple[Collective, ...]
    cheapest: tuple[Collective, ...] | None = None


def implied_by_redistribution(
    mesh: Mesh, source: Layout, target: Layout, shape: tuple[int, ...], itemsize: int
) -> ImpliedCollectives:
    """What a change of layout implies, and its cheapest plan."""
    # Devices that see another mesh hold the same and take no part.
    mesh = Mesh(
        tuple((name, mesh[name]) for name in mesh.layout_axes), tuple(range(_seen_by(mesh)))
    )

    def counted(plan: RedistributionPlan) -> tuple[Collective, ...]:
        return as_collectives(mesh, plan, shape, itemsize)

    return ImpliedCollectives(
        counted(implied_plan(mesh, source, target, shape)),
        counted(cheapest_plan(mesh, source, target, shape)),
    )


def _seen_by(mesh: Mesh) -> int:
    """How many devices each device sees."""
    return math.prod(mesh[name] for name in mesh.layout_axes)


def _itemsize(dtype: str) -> int:
    return int(np.dtype(numpy_dtype(dtype)).itemsize)


def implied_by_step(
    mesh: Mesh, step: Step, operands: list[Observed], result: Observed
) -> ImpliedCollectives | None:
    """What a step implies by the layouts reported around it; None if there is no rule."""
    sources = [operand.layout for operand in operands]
    if not all(isinstance(one, Layout) for one in (*sources, result.layout)):
        return None
    known = tuple(one for one in sources if isinstance(one, Layout))
    assert isinstance(result.layout, Layout)
    if step.op in ("redistribute", "identity"):
        return implied_by_redistribution(
            mesh, known[0], result.layout, result.shape, _itemsize(result.dtype)
        )
    plans = implied_by_op(
        mesh, step, tuple(one.shape for one in operands), known,
        (result.shape, result.layout),
        (*(_itemsize(one.dtype) for one in operands), _itemsize(result.dtype)),
    )  # fmt: skip
    if plans is None:
        return None
    return ImpliedCollectives(
        tuple(
            one
            for plan, shape, itemsize in plans
            for one in as_collectives(mesh, plan, shape, itemsize)
        )
    )


def compare_collectives(
    mesh: Mesh, subject: str, step: str | None, counted: Fired, by: ImpliedCollectives
) -> Finding:
    """The finding for counted collectives, compared with what is implied."""
    explained = explain_by_lowerings(mesh, counted, by.implied, lowerings_of(subject))
    if explained.plan is not None:
        observed = OtherRedistributionPlan(explained.plan, by.implied, counted, by.cheapest)
        return differs(step, "collectives", observed)
    rules = explained.rules or one_axis_at_a_time(mesh, subject, counted, by)
    why = "; ".join(f"{rule.name}: {rule.why}" for rule in rules)
    if not rules and total_bytes(counted) > total_bytes(by.implied):
        observed = OtherRedistributionPlan("larger operands", by.implied, counted, by.cheapest)
        return differs(step, "collectives", observed)
    if not rules and total_bytes(counted) < total_bytes(by.implied):
        why = "the same collectives in another order, with smaller operands"
    return agree(step, "collectives", why=why)


def one_axis_at_a_time(
    mesh: Mesh, subject: str, counted: Fired, by: ImpliedCollectives
) -> tuple[Lowering, ...]:
    """The rule, where one collective over both axes would have done what was done axis by axis."""
    if by.cheapest is None or only_executes_plans(subject):
        return ()
    merged = count_by_axis(mesh, counted) == count_by_axis(mesh, by.cheapest)
    return (ONE_AXIS_AT_A_TIME,) if merged and len(by.cheapest) < len(counted) else ()


def check_collectives(context: Context) -> list[Finding]:
    """Findings on each step's collectives, each materialisation's, and the whole program's."""
    case, answer = context.case, context.answer
    found = [_check_program(context, answer.program)] if answer.program is not None else []
    if "program" in context.missing.get("", ()):
        found.append(differs(None, "collectives", Missing("collectives")))
    steps = {step.result: step for step in case.question.steps}
    for seen in context.tensors:
        mesh, layout = mesh_of(case, seen.name), seen.layout
        fits = isinstance(layout, Layout) and layout.ndim == len(seen.shape)
        if seen.full_collectives is not None and fits:
            assert isinstance(layout, Layout)
            whole = Layout(((),) * layout.ndim)
            by = implied_by_redistribution(mesh, layout, whole, seen.shape, _itemsize(seen.dtype))
            name = f"{seen.name}{FULL}"
            found.append(compare_collectives(mesh, answer.subject, name, seen.full_collectives, by))
        elif "full_collectives" in context.missing.get(seen.name, ()):
            found.append(differs(f"{seen.name}{FULL}", "collectives", Missing("collectives")))
        if seen.name not in steps:
            continue
        if "collectives" in context.missing.get(seen.name, ()):
            found.append(differs(seen.name, "collectives", Missing("collectives")))
        elif seen.collectives is not None:
            found.append(_check_step(context, steps[seen.name], seen, seen.collectives))
    return _apply_stated_counts(context, found)


def _check_step(context: Context, step: Step, seen: Observed, counted: Fired) -> Finding:
    """Compare what a step fired with what the layouts reported around it imply."""
    case, subject = context.case, context.answer.subject
    mesh = mesh_of(case, step.result)
    names = step.operands
    known = [one for name in names if (one := _operand(context, name)) is not None]
    by: ImpliedCollectives | None = None
    typed = context.right.typed
    for one in (*known, seen):
        if one.name in typed and one.shape != typed[one.name].shape:
            found = f"{one.name} has another shape, of which no rule says anything"
            return not_comparable(step.result, "collectives", found)
    why = "no rule gives the reported layout" if known else "the operands are not checked"
    if any(mesh_of(case, name) != mesh for name in names):
        why = "between two meshes nothing is implied"
        if len(known) == len(names) and _keeps_shards(case, names[0], known[0], seen):
            by = ImpliedCollectives((), ())
    elif len(known) == len(names):
        by = implied_by_step(mesh, step, known, seen)
    if by is None:
        return not_comparable(step.result, "collectives", why)
    if subject.endswith(":cheapest"):
        # It executes that plan, so it is compared with that plan.
        planned = by.cheapest or by.implied
        by = ImpliedCollectives(planned, planned)
    return compare_collectives(mesh, subject, step.result, counted, by)


def _operand(context: Context, name: str) -> Observed | None:
    """An operand as reported, or an input as the question places it."""
    seen = context.find(name)
    if seen is not None:
        return seen
    for given in context.case.question.inputs:
        if given.name == name:
            return Observed(name, given.dtype, given.shape, given.layout)
    return None


def _keeps_shards(case: Case, name: str, before: Observed, after: Observed) -> bool:
    """Whether every device holds the same of the result, on another mesh, as of the operand."""
    held = []
    for at, one in ((name, before), (after.name, after)):
        mesh = mesh_of(case, at)
        if not isinstance(one.layout, Layout) or one.layout.partial:
            return False
        held.append(dict(zip(mesh.devices, index_ranges(mesh, one.layout, one.shape), strict=True)))
    return held[0] == held[1]


def _check_program(context: Context, counted: Fired) -> Finding:
    """Compare a program that is compiled as one with the sum of the steps that are checked.

    Equal steps are merged, and steps that no checked result needs are left out.
    """
    case, right = context.case, context.right

    def unknown(why: str) -> Finding:
        return not_comparable(None, "collectives", why)

    if not isinstance(context.answer.end, Done):
        return unknown("the program did not end")
    meshes = {*meshes_of_tensors(case.question).values()} or {case.question.mesh}
    if len(meshes) > 1:
        return unknown("the program runs on several meshes")
    (mesh,) = meshes
    known = dict[str, Observed]()
    total: list[Collective] = []
    best: list[Collective] | None = []
    for given in case.question.inputs:
        known[given.name] = Observed(given.name, given.dtype, given.shape, given.layout)
    for step in needed_steps(case.question):
        names = step.operands
        reported = context.find(step.result)
        layout = None if reported is None else reported.layout
        layout = layout or right.layouts[step.result]
        if layout is None or any(name not in known for name in names):
            return unknown(f"the layout of {step.result} is not known")
        typed = right.typed[step.result]
        known[step.result] = Observed(step.result, typed.dtype, typed.shape, layout)
        by = implied_by_step(mesh, step, [known[name] for name in names], known[step.result])
        if by is None:
            return unknown(f"no rule for {step.result}")
        total += by.implied
        best = None if best is None or by.cheapest is None else [*best, *by.cheapest]
    measured = ImpliedCollectives(tuple(total), None if best is None else tuple(best))
    return compare_collectives(mesh, context.answer.subject, None, counted, measured)


def _apply_stated_counts(context: Context, found: list[Finding]) -> list[Finding]:
    """What the case states about collectives comes before what layouts imply."""
    said: dict[str | None, Finding] = {}
    if context.answer.subject == "torch":
        for step, wanted in context.case.expectation.counts.items():
            said[step] = _check_count(step, wanted, _fired_at(context, step))
    if (enough := _check_sufficient(context)) is not None:
        said[None] = enough
    for one in found:
        stated = said.get(one.step)
        if stated is None:
            said[one.step] = one
        elif stated.severity is None and one.severity is not None:
            # The count is as stated, and still more than implied.
            said[one.step] = msgspec.structs.replace(one, why=stated.why)
    return [*said.values()]


def _fired_at(context: Context, step: str) -> Fired | None:
    seen = context.find(result_name(step))
    if seen is None:
        return None
    return seen.full_collectives if step.endswith(FULL) else seen.collectives


def _check_count(step: str | None, wanted: dict[str, int], fired: Fired | None) -> Finding:
    if fired is None:
        return not_comparable(step, "collectives", "not counted")
    if dict(Counter(one.kind for one in fired)) == wanted:
        return agree(step, "collectives", why="as the source counts them")
    return differs(step, "collectives", WrongCount(wanted, fired))


def _check_sufficient(context: Context) -> Finding | None:
    """Whether a program fired more collectives than the case's source says suffice.

    Only the number over all kinds is compared, since another plan may use other kinds.
    """
    case, answer = context.case, context.answer
    enough = case.expectation.sufficient
    if enough is None or not isinstance(answer.end, Done) or only_executes_plans(answer.subject):
        return None
    fired = answer.program
    if fired is None:
        seen = [context.find(step.result) for step in case.question.steps]
        if any(one is None or one.collectives is None for one in seen):
            return not_comparable(None, "collectives", "not every step is checked")
        fired = tuple(one for own in seen if own is not None for one in own.collectives or ())
    if len(fired) <= sum(enough.values()):
        return agree(None, "collectives", why="no more than suffice")
    return differs(None, "collectives", TooMany(enough, fired))


def same_counts(one: Fired, other: Fired) -> bool:
    """Whether two subjects fired the same kinds equally often."""
    return Counter(c.kind for c in one) == Counter(c.kind for c in other)
