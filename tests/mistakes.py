"""Would a case notice a mistake? Wrong answers made on purpose from the right one.

Each seeded mistake says in which aspects it must show. A mistake that leaves the answer as it
was (permuting replicas, say) seeds nothing. Knows no framework: the right answer is the
reference's, completed with what the case implies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from adapters.answer import Answer, Collective, Done, End, Observed, Refused
from adapters.reference.evaluate import Value, cut_shards, evaluate, join_shards
from adapters.reference.implied_plan import implied_plan
from adapters.reference.meshes import observe as observe_meshes
from adapters.registry import lowerings_of
from cases.arrays import pack, unpack
from cases.layout import are_equivalent, index_ranges, offset
from cases.ledger import Aspect
from cases.model import Case, Layout, Mesh, Step
from suites.collectives import implied_by_redistribution, implied_by_step
from suites.tensors import mesh_names, mesh_of, value_aspect
from suites.truth import Truth, nondeterministic
from tests.plan_execution import execute_plan


class Mistake(msgspec.Struct, frozen=True):
    """A wrong answer, what is wrong with it, and the aspects of which one must say so."""

    name: str
    aspects: frozenset[Aspect]
    answer: Answer


def right_answer(case: Case, right: Truth, subject: str = "torch") -> Answer:
    """What a framework would answer that does exactly what is implied."""
    question = case.question
    values = evaluate(question, subject.partition("/")[0])
    seen: dict[str, Observed] = {}
    steps = {step.result: step for step in question.steps}
    for name, value in values.items():
        mesh = mesh_of(case, name)
        layout = right.layouts[name] or Layout(((),) * value.ndim)
        shards = _right_shards(case, name, mesh, layout, value, seen)
        observed = Observed(
            name, value.dtype.name, value.shape, layout, tuple(map(pack, shards)),
            tuple(map(offset, index_ranges(mesh, layout, value.shape))), (pack(value),),
            full_collectives=implied_by_redistribution(
                mesh, layout, Layout(((),) * value.ndim), value.shape, value.dtype.itemsize
            ).implied,
        )  # fmt: skip
        on_one = all(mesh_of(case, arg) == mesh for arg in _names(steps, name))
        if name in steps and on_one:
            operands = [seen[arg] for arg in steps[name].operands]
            by = implied_by_step(mesh, steps[name], operands, observed)
            # Between results that are not shown, nobody can say what was implied.
            shown = {*question.check, *(given.name for given in question.inputs)}
            told = all(arg in shown for arg in steps[name].operands)
            fired = lowered(subject, by.implied) if by is not None and told else None
            observed = msgspec.structs.replace(observed, collectives=fired)
        seen[name] = observed
    seen |= {observed.name: observed for observed in observe_meshes(question)}
    checked = {*question.check}
    said = tuple(one for name, one in seen.items() if name.partition("/")[0] in checked)
    wrong = case.expectation.refused
    end: End = Refused("ValueError", "a mesh step that is wrong", wrong) if wrong else Done()
    return Answer(question.id, subject, end, said)


def _names(steps: dict[str, Step], name: str) -> list[str]:
    """The tensors that a step uses; none of an input."""
    return steps[name].operands if name in steps else []


def _right_shards(
    case: Case, name: str, mesh: Mesh, layout: Layout, value: Value, seen: dict[str, Observed]
) -> list[Value]:
    """Shards that were moved as implied; where an op made them, cut from its value."""
    given = next((one for one in case.question.inputs if one.name == name), None)
    if given is not None and given.per_device is not None:
        return [unpack(array) for array in given.per_device]
    start, shards = Layout(((),) * value.ndim), [value] * mesh.size
    step = next((one for one in case.question.steps if one.result == name), None)
    moved = step is not None and step.op in ("redistribute", "identity")
    if step is not None and moved and mesh_of(case, str(step.args[0])) == mesh:
        before = seen[str(step.args[0])]
        assert isinstance(before.layout, Layout)
        start, shards = before.layout, _shards(before)
    return execute_plan(mesh, implied_plan(mesh, start, layout, value.shape), shards, value.shape)


def lowered(subject: str, wanted: tuple[Collective, ...]) -> tuple[Collective, ...]:
    """Implied collectives as a subject's lowering rules have them."""
    rules = lowerings_of(subject)
    instead = {kind: other for _, kind, other in rules}
    return tuple(
        msgspec.structs.replace(one, kind=instead.get(one.kind, one.kind)) for one in wanted
    )


def mistakes(case: Case, answer: Answer) -> Iterator[Mistake]:
    """Every seeded mistake that differs from the right answer.

    No other value of random numbers is a mistake, as long as ranks agree on it.
    """
    random = nondeterministic(case)
    for name, aspects, change in _MISTAKES:
        for index, observed in enumerate(answer.seen):
            wrong = change(case, mesh_of(case, observed.name), observed)
            if wrong is None or wrong == observed:
                continue
            if aspects == {"global"} and observed.name in random:
                continue
            seen = (*answer.seen[:index], wrong, *answer.seen[index + 1 :])
            due = aspects
            if "global" in aspects:
                due = aspects - {"global"} | {value_aspect(case, observed.name)}
            yield Mistake(
                f"{name} in {observed.name}", due, msgspec.structs.replace(answer, seen=seen)
            )
    if wrong_step := case.expectation.refused:
        made = Observed(wrong_step, "int64", (1,), shards=(pack(np.zeros(1, np.int64)),))
        yield Mistake(
            f"a mesh made at {wrong_step}", frozenset({"meshes"}),
            msgspec.structs.replace(answer, end=Done(), seen=(*answer.seen, made)),
        )  # fmt: skip


Change = Callable[[Case, Mesh, Observed], Observed | None]


def _with_shards(observed: Observed, shards: list[Value]) -> Observed:
    return msgspec.structs.replace(observed, shards=tuple(map(pack, shards)))


def _shards(observed: Observed) -> list[Value]:
    return [unpack(shard) for shard in observed.shards or () if shard is not None]


def _relaid(mesh: Mesh, observed: Observed, dims: tuple[tuple[str, ...], ...]) -> Observed | None:
    """Shards by another layout under the layout that was asked for."""
    if not isinstance(observed.layout, Layout) or observed.layout.partial:
        return None
    return _with_shards(observed, cut_shards(mesh, Layout(dims), unpack(observed.full[0])))


def _axes_swapped(case: Case, mesh: Mesh, observed: Observed) -> Observed | None:
    if len(mesh.axes) < 2 or not isinstance(observed.layout, Layout):
        return None
    one, other = mesh.names[0], mesh.names[-1]
    names = {one: other, other: one}
    return _relaid(
        mesh, observed,
        tuple(tuple(names.get(axis, axis) for axis in axes) for axes in observed.layout.dims),
    )  # fmt: skip


def _shard_order(case: Case, mesh: Mesh, observed: Observed) -> Observed | None:
    if not isinstance(observed.layout, Layout):
        return None
    return _relaid(mesh, observed, tuple(axes[::-1] for axes in observed.layout.dims))


def _ranks_permuted(case: Case, mesh: Mesh, observed: Observed) -> Observed | None:
    shards = _shards(observed)
    if not isinstance(observed.layout, Layout) or observed.layout.partial:
        return None  # addends may lie anywhere
    return _with_shards(observed, shards[1:] + shards[:1])


def _stale_shard(case: Case, mesh: Mesh, observed: Observed) -> Observed | None:
    shards = _shards(observed)
    if not shards or not observed.full:
        return None
    stale = [*shards[:-1], np.zeros_like(shards[-1])]
    layout = observed.layout
    if isinstance(layout, Layout) and layout.partial:
        # Where a maximum is owed, an addend of nothing may be as good as any.
        total = join_shards(mesh, layout, stale, observed.shape)
        if np.array_equal(total, unpack(observed.full[0])):
            return None
    return _with_shards(observed, stale)


def _rows_permuted(case: Case, mesh: Mesh, observed: Observed) -> Observed | None:
    if not observed.full:
        return None
    full = unpack(observed.full[0])
    return msgspec.structs.replace(
        observed, full=(pack(np.roll(full, 1, 0) if full.ndim else full),)
    )


def _reduction_dropped(case: Case, mesh: Mesh, observed: Observed) -> Observed | None:
    given = [one for one in case.question.inputs if one.layout.partial and one.per_device]
    if not given or given[0].shape != observed.shape or given[0].per_device is None:
        return None
    if given[0].per_device[0].shape != observed.shape:
        return None
    return msgspec.structs.replace(observed, full=(given[0].per_device[0],))


def _reduction_doubled(case: Case, mesh: Mesh, observed: Observed) -> Observed | None:
    full = unpack(observed.full[0]) if observed.full else np.zeros((), bool)
    if full.dtype.kind == "b":
        return None
    return msgspec.structs.replace(observed, full=(pack((full + full).astype(full.dtype)),))


def _rank_apart(case: Case, mesh: Mesh, observed: Observed) -> Observed | None:
    if mesh.size == 1 or not observed.full or not observed.full[0].size:
        return None
    full = unpack(observed.full[0])
    other = pack(~full if full.dtype.kind == "b" else (3 * full + 1).astype(full.dtype))
    return msgspec.structs.replace(observed, full=(*observed.full * (mesh.size - 1), other))


def _wrong_layout(case: Case, mesh: Mesh, observed: Observed) -> Observed | None:
    """The right values under the claim that everything is replicated."""
    if not isinstance(observed.layout, Layout):
        return None
    claim = Layout(((),) * observed.layout.ndim)
    if are_equivalent(mesh, claim, observed.layout, observed.shape) or not observed.full[0].size:
        return None
    if all(shard == observed.full[0] for shard in observed.shards or ()):
        return None  # so it is, as where an average of equals is owed
    return msgspec.structs.replace(observed, layout=claim)


def _one_more(case: Case, mesh: Mesh, observed: Observed) -> Observed | None:
    axis = next((axis for axis, size in mesh.axes if size > 1), None)
    if observed.collectives is None or axis is None:
        return None
    more = Collective("all-gather", (axis,), mesh[axis], 4)
    return msgspec.structs.replace(observed, collectives=(*observed.collectives, more))


def _one_fewer(case: Case, mesh: Mesh, observed: Observed) -> Observed | None:
    if not observed.collectives:
        return None
    return msgspec.structs.replace(observed, collectives=observed.collectives[:-1])


def _grid_permuted(case: Case, mesh: Mesh, observed: Observed) -> Observed | None:
    if observed.name.partition("/")[0] not in mesh_names(case) or observed.dtype == "bool":
        return None
    return _with_shards(observed, [np.roll(grid, 1) for grid in _shards(observed)])


def _coordinate_permuted(case: Case, mesh: Mesh, observed: Observed) -> Observed | None:
    if observed.name not in mesh_names(case) or observed.offsets is None:
        return None
    return msgspec.structs.replace(observed, offsets=observed.offsets[1:] + observed.offsets[:1])


def _comparison_denied(case: Case, mesh: Mesh, observed: Observed) -> Observed | None:
    if observed.name not in mesh_names(case) or observed.dtype != "bool":
        return None
    return _with_shards(observed, [~shard for shard in _shards(observed)])


_VALUES: frozenset[Aspect] = frozenset({"soundness", "global"})
_SHARDS: frozenset[Aspect] = frozenset({"soundness", "shards"})
_COUNTS: frozenset[Aspect] = frozenset({"collectives"})

_MISTAKES: tuple[tuple[str, frozenset[Aspect], Change], ...] = (
    ("axes swapped", _SHARDS, _axes_swapped),
    ("shard order wrong", _SHARDS, _shard_order),
    ("ranks permuted", _SHARDS, _ranks_permuted),
    ("a stale shard", _SHARDS, _stale_shard),
    ("rows permuted", frozenset({"global"}), _rows_permuted),
    ("reduction dropped", frozenset({"global"}), _reduction_dropped),
    ("reduction doubled", frozenset({"global"}), _reduction_doubled),
    ("one rank apart", _VALUES, _rank_apart),
    ("wrong layout reported", frozenset({"soundness", "layout"}), _wrong_layout),
    ("devices of a mesh permuted", frozenset({"meshes"}), _grid_permuted),
    ("coordinates permuted", frozenset({"meshes"}), _coordinate_permuted),
    ("meshes that compare otherwise", frozenset({"meshes"}), _comparison_denied),
    ("a collective too many", _COUNTS, _one_more),
    ("a collective too few", _COUNTS, _one_fewer),
)
