"""Are the collectives that a framework fired those that its own layouts imply?

Equal; equal by a named lowering rule; or another plan, which is named by kind and measured
against the implied and the cheapest. A rule explains a count and never hides one: what it
cannot match one for one is another plan.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import msgspec
import numpy as np

from adapters.answer import Answer, Collective, Done, Observed, received
from adapters.reference.cheapest import cheapest
from adapters.reference.implied import implied
from adapters.reference.plan import Plan, as_collectives
from adapters.reference.rules import implied_by
from cases.arrays import numpy_dtype
from cases.grids import homes
from cases.layout import ranges
from cases.model import Case, Layout, Mesh, Step
from suites.aspects import mesh_of, missing
from suites.truth import Truth
from suites.verdict import Finding, agree, not_comparable

# A collective over k axes counts as k over one axis each when it is matched.
Atoms = Counter[tuple[str, str]]

# Lowering rules: what is implied, done in another way. The ledger knows each by name, with the
# reason and a link; one that it does not know is a divergence.
GATHERS = "gathers for all-to-all"
REDUCES = "reduces then slices for reduce-scatter"
MERGES = "one over several axes"
SEQUENCE = "one after the other"

# The kinds of plan that are not the implied one, by what they do that is not implied.
PLANS = (
    "fires where nothing is implied", "fires nothing", "permutes", "more", "fewer", "gathers",
    "exchanges", "reduces", "gathers, exchanges and reduces", "over groups that are no axes",
    "more than suffices",
)  # fmt: skip

# Framework -> the rules by which one kind of collective stands for another.
LOWERINGS = {
    "torch": ((GATHERS, "all-to-all", "all-gather"),),
    "jax": ((REDUCES, "reduce-scatter", "all-reduce"),),
}


class Explained(msgspec.Struct, frozen=True):
    """How counted collectives relate to implied ones.

    ``rules``: the lowering rules that it took, none if they are equal as they stand.
    ``plan``: the kind of the other plan, "" if they are equal or explained.
    """

    rules: tuple[str, ...] = ()
    plan: str = ""


def atoms(mesh: Mesh, collectives: Iterable[Collective]) -> Atoms:
    """Kinds by single axis of size > 1. Groups that fit no axes keep an axis called "?"."""
    found: Atoms = Counter()
    for one in collectives:
        for axis in one.axes or ("?",):
            if axis == "?" or mesh[axis] > 1:
                found[one.kind, axis] += 1
    return found


def _whole(mesh: Mesh, collectives: Iterable[Collective]) -> Counter[tuple[str, frozenset[str]]]:
    return Counter(
        (one.kind, frozenset(axis for axis in one.axes if mesh[axis] > 1) or frozenset("?"))
        for one in collectives
        if not one.axes or any(mesh[axis] > 1 for axis in one.axes)
    )


def explain(
    mesh: Mesh, subject: str, counted: tuple[Collective, ...], wanted: tuple[Collective, ...]
) -> Explained:
    """How what was counted follows from what is implied, for a subject's lowering rules."""
    if _whole(mesh, counted) == _whole(mesh, wanted):
        return Explained()
    rules = []
    extra, lacking = atoms(mesh, counted), atoms(mesh, wanted)
    extra, lacking = extra - lacking, lacking - extra
    for name, kind, instead in LOWERINGS.get(subject.partition("/")[0], ()):
        for (what, axis), count in list(lacking.items()):
            if what == kind and extra[instead, axis] >= count:
                extra[instead, axis] -= count
                del lacking[what, axis]
                rules.append(name)
    if +extra or +lacking:
        return Explained(plan=plan_kind(mesh, counted, wanted))
    if any(len(one.axes) > 1 for one in (*counted, *wanted)):
        rules.append(MERGES)
    return Explained(rules=tuple(dict.fromkeys(rules)))


def plan_kind(mesh: Mesh, counted: tuple[Collective, ...], wanted: tuple[Collective, ...]) -> str:
    """A name for a plan that is not the implied one, from its collectives alone: one of `PLANS`."""
    if any(not one.axes for one in counted):
        return "over groups that are no axes"
    ours, theirs = atoms(mesh, counted), atoms(mesh, wanted)
    if not theirs:
        return "fires where nothing is implied"
    if not ours:
        return "fires nothing"
    extra = {kind for kind, _ in ours - theirs}
    if "collective-permute" in extra:
        return "permutes"
    if not theirs - ours:
        return "more"
    for kinds, said in (
        (set(), "fewer"),
        ({"all-gather"}, "gathers"),
        ({"all-to-all"}, "exchanges"),
        ({"all-reduce", "reduce-scatter"}, "reduces"),
    ):
        if extra <= kinds:
            return said
    return "gathers, exchanges and reduces"


def say(collectives: Iterable[Collective]) -> str:
    """Collectives as a person writes them: ``2 all-gather(a), all-reduce(a,b)``."""
    counted = Counter(f"{one.kind}({','.join(one.axes) or '?'})" for one in collectives)
    return ", ".join(f"{n} {what}" if n > 1 else what for what, n in counted.items()) or "none"


def factor(counted: Iterable[Collective], wanted: Iterable[Collective]) -> str:
    """Bytes received by the busiest device, counted over wanted: ``3.0x``."""
    ours, theirs = (sum(map(received, one)) for one in (counted, wanted))
    if theirs == 0:
        return "1x" if ours == 0 else f"{ours:g} B over none of"
    return f"{ours / theirs:.3g}x"


class Measure(msgspec.Struct, frozen=True):
    """What a step implies, and the cheapest that would do where it is a change of layout."""

    implied: tuple[Collective, ...]
    cheapest: tuple[Collective, ...] | None = None


def measure(
    mesh: Mesh, source: Layout, target: Layout, shape: tuple[int, ...], itemsize: int
) -> Measure:
    """What a change of layout implies, and its cheapest plan."""
    # Devices that see another mesh have the same, and no part in it.
    mesh = Mesh(tuple((name, mesh[name]) for name in mesh.named), tuple(range(_seen_by(mesh))))

    def counted(plan: Plan) -> tuple[Collective, ...]:
        return as_collectives(mesh, plan, shape, itemsize)

    return Measure(
        counted(implied(mesh, source, target, shape)),
        counted(cheapest(mesh, source, target, shape)),
    )


def _seen_by(mesh: Mesh) -> int:
    """How many devices each device sees."""
    return math.prod(mesh[name] for name in mesh.named)


def _itemsize(dtype: str) -> int:
    return int(np.dtype(numpy_dtype(dtype)).itemsize)


def step_measure(
    mesh: Mesh, step: Step, operands: list[Observed], result: Observed
) -> Measure | None:
    """What a step implies by the layouts reported around it; None if no rule says."""
    sources = [operand.layout for operand in operands]
    if not all(isinstance(one, Layout) for one in (*sources, result.layout)):
        return None
    known = tuple(one for one in sources if isinstance(one, Layout))
    assert isinstance(result.layout, Layout)
    if step.op in ("redistribute", "identity"):
        return measure(mesh, known[0], result.layout, result.shape, _itemsize(result.dtype))
    plans = implied_by(
        mesh, step, tuple(one.shape for one in operands), known,
        (result.shape, result.layout),
        (*(_itemsize(one.dtype) for one in operands), _itemsize(result.dtype)),
    )  # fmt: skip
    if plans is None:
        return None
    return Measure(
        tuple(
            one
            for plan, shape, itemsize in plans
            for one in as_collectives(mesh, plan, shape, itemsize)
        )
    )


def held(
    mesh: Mesh, subject: str, step: str | None, counted: tuple[Collective, ...], by: Measure
) -> Finding:
    """The finding for counted collectives against what is implied."""
    explained = explain(mesh, subject, counted, by.implied)
    # Counts are what is held; bytes may differ with the order, and are told.
    times = factor(counted, by.implied)
    worth = "" if times == "1x" else f"{times} the implied plan's bytes"
    if not explained.plan:
        rules = explained.rules or _sequence(mesh, subject, counted, by)
        if not rules:
            return agree(step, "collectives", why=worth)
        return Finding(
            step, "collectives", "reference", "agree", f"rule: {' and '.join(rules)}",
            say(by.implied), say(counted), worth,
        )  # fmt: skip
    worth = f"{times} the implied plan's bytes"
    if by.cheapest is not None:
        worth += f", {factor(counted, by.cheapest)} the cheapest's ({say(by.cheapest)})"
    return Finding(
        step, "collectives", "reference", "divergence", f"plan: {explained.plan}",
        say(by.implied), say(counted), worth,
    )  # fmt: skip


def _sequence(
    mesh: Mesh, subject: str, counted: tuple[Collective, ...], by: Measure
) -> tuple[str, ...]:
    """Whether what was done one axis at a time could have been one collective over them all."""
    if by.cheapest is None or subject.startswith("jax/shard_map"):
        return ()
    merged = atoms(mesh, counted) == atoms(mesh, by.cheapest)
    return (SEQUENCE,) if merged and len(by.cheapest) < len(counted) else ()


def collectives(case: Case, answer: Answer, right: Truth) -> list[Finding]:
    """Each step's collectives, each materialisation's, and the whole program's where it is one."""
    findings = missing(case, answer, "collectives")
    if answer.program is not None:
        findings.append(_program(case, answer, answer.program, right))
    seen = {observed.name: observed for observed in answer.seen}
    steps = {step.result: step for step in case.question.steps}
    for observed in answer.seen:
        mesh = mesh_of(case, observed.name)
        if observed.full_collectives is not None and isinstance(observed.layout, Layout):
            whole = Layout(((),) * observed.layout.ndim)
            by = measure(mesh, observed.layout, whole, observed.shape, _itemsize(observed.dtype))
            findings.append(
                held(mesh, answer.subject, f"{observed.name}/full", observed.full_collectives, by)
            )
        if observed.collectives is None or observed.name not in steps:
            continue
        step = steps[observed.name]
        names = [arg for arg in step.args if isinstance(arg, str)]
        operands = [_operand(case, seen, name) for name in names]
        known = [one for one in operands if one is not None]
        by_step = None
        misshapen = [
            one.name for one in (*known, observed)
            if one.name in right.typed and one.shape != right.typed[one.name].shape
        ]  # fmt: skip
        if misshapen:
            why = f"of {misshapen[0]}, which has another shape, no rule says anything"
            findings.append(
                not_comparable(observed.name, "collectives", why, got=say(observed.collectives))
            )
            continue
        if any(mesh_of(case, name) != mesh for name in names):
            if len(known) == len(names) and _stays(case, names[0], known[0], observed):
                by_step = Measure((), ())
        elif len(known) == len(names):
            by_step = step_measure(mesh, step, known, observed)
        if by_step is not None and answer.subject.endswith(":cheapest"):
            # It executes that plan, so that plan is what it is held against.
            planned = by_step.cheapest or by_step.implied
            by_step = Measure(planned, planned)
        if by_step is None:
            why = "no rule gives the reported layout" if known else "operands not checked"
            if any(mesh_of(case, name) != mesh for name in names):
                why = "between two meshes nothing is implied"
            findings.append(
                not_comparable(observed.name, "collectives", why, got=say(observed.collectives))
            )
        else:
            findings.append(
                held(mesh, answer.subject, observed.name, observed.collectives, by_step)
            )
    return findings


def _operand(case: Case, seen: dict[str, Observed], name: str) -> Observed | None:
    """An operand as reported, or an input as the question places it."""
    if name in seen:
        return seen[name]
    for given in case.question.inputs:
        if given.name == name:
            return Observed(name, given.dtype, given.shape, given.layout)
    return None


def _stays(case: Case, name: str, before: Observed, after: Observed) -> bool:
    """Whether every device has of the result, on another mesh, what it had of the operand."""
    held = []
    for at, one in ((name, before), (after.name, after)):
        mesh = mesh_of(case, at)
        if not isinstance(one.layout, Layout) or one.layout.partial:
            return False
        held.append(dict(zip(mesh.devices, ranges(mesh, one.layout, one.shape), strict=True)))
    return held[0] == held[1]


def _program(case: Case, answer: Answer, counted: tuple[Collective, ...], right: Truth) -> Finding:
    """A program compiled as one is held against the sum of its steps."""
    if not isinstance(answer.end, Done):
        return not_comparable(None, "collectives", "the program did not end")
    meshes = {*homes(case.question).values()} or {case.question.mesh}
    if len(meshes) > 1:
        return not_comparable(None, "collectives", "a program on several meshes", got=say(counted))
    (mesh,) = meshes
    seen = dict[str, Observed]()
    total: list[Collective] = []
    best: list[Collective] | None = []
    for given in case.question.inputs:
        seen[given.name] = Observed(given.name, given.dtype, given.shape, given.layout)
    last = {observed.name: observed for observed in answer.seen}
    for step in case.question.steps:
        names = [arg for arg in step.args if isinstance(arg, str)]
        reported = last.get(step.result)
        layout = reported.layout if reported is not None and reported.layout is not None else None
        layout = layout or right.layouts[step.result]
        if layout is None or any(name not in seen for name in names):
            return not_comparable(None, "collectives", f"the layout of {step.result} is not known",
                                  got=say(counted))  # fmt: skip
        typed = right.typed[step.result]
        seen[step.result] = Observed(step.result, typed.dtype, typed.shape, layout)
        by = step_measure(mesh, step, [seen[name] for name in names], seen[step.result])
        if by is None:
            return not_comparable(None, "collectives", f"no rule for {step.result}",
                                  got=say(counted))  # fmt: skip
        total += by.implied
        best = None if best is None or by.cheapest is None else [*best, *by.cheapest]
    measured = Measure(tuple(total), None if best is None else tuple(best))
    return held(mesh, answer.subject, None, counted, measured)


def same_counts(one: tuple[Collective, ...], other: tuple[Collective, ...]) -> bool:
    """Whether two subjects fired the same kinds equally often: the bare counts."""
    return Counter(c.kind for c in one) == Counter(c.kind for c in other)
