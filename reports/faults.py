"""What must a script show? The first fault of each framework in a judged case, as data.

Knows no framework's lines. There is no script for what a user's program cannot show: a count that
only a record pins, a counter of this suite, a redistribution plan that differs only in mesh axes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from adapters.answer import Answer, Crashed, Observed
from adapters.reference.meshes import observe as observe_meshes
from adapters.registry import framework_of, lowerings_of, only_executes_plans
from cases.arrays import Array, pack, unpack
from cases.layout import index_ranges, local_shape, offset
from cases.ledger import ASPECTS
from cases.model import Case, Layout, Mesh, Question, Tolerance
from cases.ops import OPS
from suites import observation as seen_as
from suites.array_difference import EXACT, difference
from suites.aspects import double_tolerance
from suites.judge import Judgement
from suites.observation import (
    SEVERITIES,
    Ended,
    Fired,
    OtherRedistributionPlan,
    RanksDiffer,
    TooMany,
    WrongCount,
    WrongDtype,
    WrongLayout,
    WrongOffset,
    WrongShape,
    WrongShard,
    WrongValue,
)
from suites.tensors import FULL, mesh_of, result_name
from suites.truth import Truth, truth
from suites.verdict import Finding, Verdict

Check = Literal[
    "ends",
    "full",
    "shards",
    "own shards",
    "offsets",
    "layout",
    "counts",
    "total",
    "mesh",
    "refusal",
]
Counts = dict[str, int]

# Checks in which the values of the inputs matter, and op families that refuse some values.
_VALUE_CHECKS = ("ends", "full", "shards", "own shards")
_REFUSES_BY_VALUE = ("linalg",)

# Why there is no script: it counts collectives by their kinds alone.
OTHER_AXES = "the collectives differ only in their mesh axes"
LARGER = "the collectives differ only in the sizes of their operands"


class Fault(msgspec.Struct, frozen=True):
    """One fault of one subject, and what is right instead.

    ``step``: an input, a result or a mesh step, None for the whole program. ``full``: the fault is
    in materialising it. ``mesh``: the mesh of the step's tensor. ``part`` of a mesh: "" for the
    grid, "coordinate", or an axis for the group along it. ``check`` says what is right:

    - "ends": any answer. "refusal": that the mesh step is refused.
    - "full": ``arrays[0]`` on every rank. "shards" and "mesh": ``arrays`` by mesh position.
    - "own shards": the slices ``shard_ranges`` of the framework's own full tensor.
    - "offsets": ``offsets``, where None allows any. "layout": ``layout``.
    - "counts": one of ``counts``. "total": no more collectives than in ``counts[0]``.
    """

    verdict: Verdict
    check: Check
    step: str | None
    full: bool
    observed: str
    mesh: Mesh
    seen: Observed | None = None
    arrays: tuple[Array, ...] = ()
    allowed: Tolerance = EXACT
    shard_ranges: tuple[tuple[tuple[int, int], ...], ...] = ()
    offsets: tuple[tuple[int, ...] | None, ...] = ()
    layout: Layout | None = None
    counts: tuple[Counts, ...] = ()
    part: str = ""
    others: tuple[Verdict, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether the arrays must be equal to the bit, and have no NaN."""
        bare = not self.allowed.rtol and not self.allowed.atol
        return bare and not any(np.isnan(unpack(one).astype(complex)).any() for one in self._right)

    @property
    def dtype(self) -> str:
        """The dtype of the right arrays."""
        return self._right[0].dtype

    @property
    def wide(self) -> str:
        """A dtype in which comparing what is wanted rounds nothing."""
        return "complex128" if self.dtype.startswith("complex") else "float64"

    @property
    def differs_in_shape(self) -> bool:
        """Whether the elements do not show the difference: other dtypes or shapes, empty shards."""
        seen = self.seen
        return any(
            0 in one.shape or (seen is not None and seen.dtype != one.dtype) for one in self._right
        ) or (self.check == "full" and seen is not None and seen.shape != self._right[0].shape)

    @property
    def _right(self) -> tuple[Array, ...]:
        return self.arrays or (self.seen.full if self.seen is not None else ())


def needs_values(question: Question, fault: Fault) -> bool:
    """Whether a script needs the values of the inputs, not just their shapes."""
    choosy = any(OPS[step.op].family in _REFUSES_BY_VALUE for step in question.steps)
    return choosy or fault.check in _VALUE_CHECKS


class NoScript(Exception):
    """No script can show it; the text says why."""


def find_faults(
    case: Case, judgement: Judgement, answers: Mapping[str, Answer]
) -> tuple[dict[str, Fault], dict[str, str]]:
    """By framework: the first fault that a script can show; or why there is none.

    Divergences come before known ones, and the gravest first. Then the order is that of the steps,
    of `ASPECTS` and of the routes.
    """
    bad = [
        (verdict, finding)
        for verdict, finding in zip(judgement.verdicts, judgement.findings)
        if (verdict.verdict in ("divergence", "known") or verdict.severity == "documented")
        and not only_executes_plans(verdict.subject)
    ]
    names = [given.name for given in case.question.inputs]
    names += [step.result for step in case.question.steps]
    place = {name: number for number, name in enumerate(names)}
    subjects = list(answers)

    def first(one: tuple[Verdict, Finding]) -> tuple[bool, int, int, int, int]:
        verdict, _ = one
        step = place.get(result_name(verdict.step), -1)
        grave = SEVERITIES.index(verdict.severity or "free")
        order = ASPECTS.index(verdict.aspect), subjects.index(verdict.subject)
        return (verdict.verdict != "divergence", grave, step, *order)

    found: dict[str, Fault] = {}
    missing: dict[str, str] = {}
    for verdict, finding in sorted(bad, key=first):
        framework = framework_of(verdict.subject)
        if framework in found:
            continue
        try:
            fault = _describe_fault(case, verdict, finding, answers, truth(case, framework))
        except NoScript as error:
            missing.setdefault(framework, f"{verdict.aspect}: {error}")
            continue
        others = tuple(
            v for v, _ in bad if framework_of(v.subject) == framework and v is not verdict
        )
        found[framework] = msgspec.structs.replace(fault, others=others)
    return found, {name: why for name, why in missing.items() if name not in found}


def _describe_fault(
    case: Case,
    verdict: Verdict,
    finding: Finding,
    answers: Mapping[str, Answer],
    right: Truth,
) -> Fault:
    observed = finding.observation
    answer = answers[verdict.subject]
    name = result_name(verdict.step)
    mesh = mesh_of(case, name)
    seen = next((one for one in answer.seen if one.name == name), None)
    if seen is not None and seen.mesh is not None:
        mesh = seen.mesh
    kind = "" if observed is None else seen_as.kind_name(observed)
    full = (verdict.step or "").endswith(FULL)
    fault = Fault(verdict, "ends", name or None, full, kind, mesh, seen)
    replace = msgspec.structs.replace
    if verdict.aspect == "meshes":
        return _mesh_fault(case, fault)
    match observed:
        case Ended(Crashed()):
            # A process that died did not say at which step.
            return replace(fault, step=None, full=False)
        case Ended():
            return fault
        case OtherRedistributionPlan(_, implied, fired, _):
            return _plan_fault(fault, implied, fired)
        case WrongCount(wanted, fired):
            return _count_fault(fault, [wanted], _count_kinds(fired))
        case TooMany(enough, _):
            return replace(fault, check="total", counts=(enough,))
        case WrongLayout(wanted_layout, _):
            return replace(fault, check="layout", layout=wanted_layout)
        case WrongOffset():
            assert seen is not None
            stated = case.expectation.offsets.get(name)
            offsets = stated if verdict.aspect == "shards" else _offsets_of_layout(mesh, seen)
            return replace(fault, check="offsets", offsets=offsets or ())
        case RanksDiffer() if seen is None:
            # Ranks raised different errors, or some raised and others finished.
            return replace(fault, step=None, full=False)
        case WrongValue() | WrongDtype() | WrongShape() | WrongShard() | RanksDiffer():
            return _value_fault(case, fault, answers, right)
    raise NoScript("only the records or the counters of this suite show it, and no program does")


def _mesh_fault(case: Case, fault: Fault) -> Fault:
    """A fault of a derived mesh: that it was made, its grid, a coordinate or a group."""
    replace = msgspec.structs.replace
    name, _, axis = (fault.step or "").partition("/")
    if name == case.expectation.refused:
        return replace(fault, check="refusal")
    right = next(one for one in observe_meshes(case.question) if one.name == fault.step)
    arrays = case.expectation.meshes.get(name) if not axis else None
    if fault.observed == "wrong offset":
        axis = "coordinate"
        arrays = tuple(pack(np.array(where)) for where in right.offsets or () if where is not None)
    arrays = arrays or tuple(one for one in right.shards or () if one is not None)
    return replace(fault, check="mesh", step=name, part=axis, arrays=arrays)


def _value_fault(case: Case, fault: Fault, answers: Mapping[str, Answer], right: Truth) -> Fault:
    """A fault of a value: the full tensor, else a shard, else that the two do not fit together."""
    replace = msgspec.structs.replace
    name, verdict, seen = fault.step or "", fault.verdict, fault.seen
    assert seen is not None
    allowed = right.allowed.get(name, EXACT)
    if verdict.aspect == "shards":
        if verdict.against == "reference":
            return replace(fault, check="shards", arrays=case.expectation.shards[name])
        theirs = answers[verdict.against][name].shards or ()
        whole = tuple(one for one in theirs if one is not None)
        if len(whole) < fault.mesh.size:
            raise NoScript("the shards to compare with are not all known")
        return replace(fault, check="shards", arrays=whole, allowed=double_tolerance(allowed))
    wanted = None if name in right.own else right.values.get(name)
    if wanted is not None and any(difference(wanted, full, allowed) for full in seen.full):
        return replace(fault, check="full", arrays=(wanted,), allowed=allowed)
    if fault.observed == "ranks differ" and len(set(seen.full)) > 1:
        # Random numbers have no right value, but all ranks must have those of the first.
        return replace(fault, check="full", arrays=seen.full[:1])
    layout = seen.layout
    if not isinstance(layout, Layout) or layout.partial or seen.disagreements:
        raise NoScript("ranks report different layouts, or partial shards have a wrong sum")
    held = index_ranges(fault.mesh, layout, seen.shape)
    if wanted is not None:
        value = unpack(wanted)
        cut = tuple(pack(value[tuple(slice(*span) for span in spans)]) for spans in held)
        pairs = zip(cut, seen.shards or (), strict=False)
        if any(got is not None and difference(own, got, allowed) for own, got in pairs):
            return replace(fault, check="shards", arrays=cut, allowed=allowed)
    return replace(fault, check="own shards", held=held)


def _offsets_of_layout(mesh: Mesh, seen: Observed) -> tuple[tuple[int, ...] | None, ...]:
    """The offset of each shard by the reported layout; None where it is empty."""
    assert isinstance(seen.layout, Layout)
    held = index_ranges(mesh, seen.layout, seen.shape)
    return tuple(None if 0 in local_shape(spans) else offset(spans) for spans in held)


def _plan_fault(fault: Fault, implied: Fired, fired: Fired) -> Fault:
    wanted = _count_kinds(implied)
    forms = [wanted]
    # Lowered collectives are right too, and so is one collective over several axes.
    for _, kind, instead in lowerings_of(fault.verdict.subject):
        kinds = [str(instead if one.kind == kind else one.kind) for one in implied]
        forms.append(dict(Counter(kinds)))
    forms += [dict.fromkeys(one, 1) for one in forms]
    if _count_kinds(fired) == wanted and [one.axes for one in fired] == [
        one.axes for one in implied
    ]:
        raise NoScript(LARGER)
    return _count_fault(fault, forms, _count_kinds(fired))


def _count_fault(fault: Fault, forms: Sequence[Counts], got: Counts) -> Fault:
    if got == forms[0]:
        raise NoScript(OTHER_AXES)
    distinct = [one for at, one in enumerate(forms) if one not in forms[:at] and one != got]
    return msgspec.structs.replace(fault, check="counts", counts=tuple(distinct))


def _count_kinds(fired: Fired) -> Counts:
    """How many collectives of each kind."""
    return dict(Counter(one.kind for one in fired))
