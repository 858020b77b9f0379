"""Is an answer sound and right? One row for each thing that is asked of an input or result.

A row of `TENSOR_ASPECTS` names the fields that it looks at. One guard, `check_tensor`, reports a
field as *missing* if the route promised it and does not show it. A field that was never promised
makes the line *not comparable*, with the reason.

Knows no ledger and no record. Other modules check collectives, and compare two frameworks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from numpy.typing import NDArray

from adapters.answer import Answer, Observed, Refused, Unsupported, format_end
from adapters.reference.evaluate import cut_shards, join_shards
from adapters.reference.meshes import observe as observe_meshes
from cases.arrays import Array, pack, unpack
from cases.layout import (
    are_equivalent,
    axes_of_layout,
    coordinates,
    index_ranges,
    largest_shard,
    local_shape,
    offset,
)
from cases.ledger import Aspect
from cases.model import Case, Layout, Mesh, Tolerance
from suites import observation as seen_as
from suites.array_difference import EXACT, difference, format_array
from suites.local_steps import ran_on_shards
from suites.observation import Missing, Observation, failed_ending
from suites.tensors import UNSHARDED, mesh_names, mesh_of, requested_layouts, value_aspect
from suites.truth import Truth, sampled_gradient
from suites.verdict import Finding, agree, differs, not_comparable


class Context(msgspec.Struct, frozen=True):
    """An answer to be judged, with its case, what is right, and what its route promised.

    ``missing``: by input and result, the fields that the route promised and does not show.
    ``asked``: by input and result, the layout that it has to have.
    """

    case: Case
    answer: Answer
    right: Truth
    missing: Mapping[str, frozenset[str]] = {}
    asked: Mapping[str, Layout] = {}

    @property
    def tensors(self) -> Iterator[Observed]:
        """What the answer shows of inputs and results, without the derived meshes."""
        meshes = mesh_names(self.case)
        return (one for one in self.answer.seen if one.name.partition("/")[0] not in meshes)

    def find(self, name: str) -> Observed | None:
        """What the answer shows of ``name``; None if it shows nothing."""
        return next((one for one in self.answer.seen if one.name == name), None)

    @property
    def is_dry_run(self) -> bool:
        """Whether the question has no data."""
        return self.case.question.mode == "dry run"


def make_context(
    case: Case, answer: Answer, right: Truth, lacking: Mapping[str, frozenset[str]]
) -> Context:
    """The context of an answer. ``lacking``: by name, the fields that are promised and absent."""
    return Context(
        case, answer, right.with_unsharded_step(answer), lacking, requested_layouts(case)
    )


Check = Callable[[Context, Observed], Finding | None]


class TensorAspect(msgspec.Struct, frozen=True):
    """One thing that is asked of an input or result.

    ``shows``: the fields of an `Observed` that it looks at. ``look``: gives the finding, or None.
    ``when``: whether it is asked at all.
    """

    aspect: Aspect
    shows: tuple[str, ...]
    look: Check
    when: Callable[[Context, Observed], bool] = lambda of, seen: True


def check_tensor(context: Context, row: TensorAspect, seen: Observed) -> Finding | None:
    """The finding of a row for one tensor; `Missing` if it lacks a field that was promised."""
    if not row.when(context, seen):
        return None
    lacking = context.missing.get(seen.name, frozenset())
    for field in row.shows:
        if field in lacking:
            aspect = row.aspect
            if aspect == "global":
                aspect = value_aspect(context.case, seen.name)
            return differs(seen.name, aspect, Missing(field))
    return row.look(context, seen)


def has_shards(seen: Observed) -> bool:
    """Whether the answer shows a shard, or in a dry run the shape of one."""
    return seen.local is not None or any(one is not None for one in seen.shards or ())


def check_tensors(context: Context, rows: tuple[TensorAspect, ...]) -> list[Finding]:
    """The findings of these rows for all that the answer shows, and for what it should show."""
    found = [
        finding
        for seen in context.tensors
        for row in rows
        if (finding := check_tensor(context, row, seen)) is not None
    ]
    for name, fields in context.missing.items():
        if "result" in fields:
            mesh = name.partition("/")[0] in mesh_names(context.case)
            aspect: Aspect = "meshes" if mesh else value_aspect(context.case, name)
            found.append(differs(name, aspect, Missing("result")))
    return found


def double_tolerance(allowed: Tolerance) -> Tolerance:
    """The tolerance between two results that each may be as far from the truth as ``allowed``."""
    return msgspec.structs.replace(allowed, rtol=2 * allowed.rtol, atol=2 * allowed.atol)


def global_value(case: Case, seen: Observed) -> tuple[Array, ...] | None:
    """The global value as materialised, else what the shards join to; None without either."""
    if seen.full:
        return seen.full
    layout, mesh = seen.layout, mesh_of(case, seen.name)
    shards = [unpack(one) for one in seen.shards or () if one is not None]
    if not isinstance(layout, Layout) or len(shards) < mesh.size or layout.ndim != len(seen.shape):
        return None
    held = index_ranges(mesh, layout, seen.shape)
    if any(shard.shape != local_shape(spans) for shard, spans in zip(shards, held)):
        return None
    if any(op == "avg" for _, op in layout.partial) and shards[0].dtype.kind in "biu":
        return None
    return (pack(join_shards(mesh, layout, shards, seen.shape)),)


# ---- how it ended ------------------------------------------------------------------------------


def check_ending(context: Context) -> Finding:
    """The one line about how an answer ended."""
    case, end = context.case, context.answer.end
    wanted = case.expectation.refused
    if isinstance(end, Refused) and wanted and end.step == wanted:
        return agree(end.step, "ending", why="the step is wrong, and a refusal is the right answer")
    if isinstance(end, Unsupported):
        return not_comparable(end.step or None, "ending", end.why, got=format_end(end))
    observed = failed_ending(end)
    if observed is None:
        return agree(None, "ending")
    step = getattr(end, "step", "") or None
    return differs(step, "ending", observed)


# ---- one tensor --------------------------------------------------------------------------------


def check_soundness(context: Context, seen: Observed) -> Finding | None:
    """Does an answer agree with itself?

    Every rank reports the same. The shards are slices of the answer's own global value, cut by its
    own layout. Pending reductions lead to that value. Offsets are those of the slices.
    """
    found = _find_contradiction(context, seen)
    if found is not None:
        return differs(seen.name, "soundness", found, why="the answer contradicts itself")
    if not isinstance(seen.layout, Layout):
        why = "no layout reported" if seen.layout is None else "a layout of another kind"
        return not_comparable(seen.name, "soundness", why)
    if seen.local is None and not (seen.full and has_shards(seen)):
        return not_comparable(seen.name, "soundness", "no shards or no global value")
    return agree(seen.name, "soundness")


def _find_contradiction(context: Context, seen: Observed) -> Observation | None:
    mesh, layout = mesh_of(context.case, seen.name), seen.layout
    if seen.disagreements:
        return seen_as.RanksDiffer(seen.disagreements)
    for position, other in enumerate(seen.full):
        if other != seen.full[0]:
            return seen_as.RanksDiffer((), position, seen.full[0], other)
    if not isinstance(layout, Layout):
        return None
    if layout.ndim != len(seen.shape):
        return seen_as.WrongLayout(Layout(((),) * len(seen.shape)), layout)
    if seen.local is not None:
        due = largest_shard(mesh, layout, seen.shape)
        return None if seen.local == due else seen_as.WrongShard(0, due, seen.local)
    held = index_ranges(mesh, layout, seen.shape)
    present = [(p, shard) for p, shard in enumerate(seen.shards or ()) if shard is not None]
    for p, shard in present:
        if shard.shape != local_shape(held[p]):
            return seen_as.WrongShard(p, local_shape(held[p]), shard.shape)
    for p, begins in enumerate(seen.offsets or ()):
        # Where an empty shard begins means nothing.
        if begins not in (None, offset(held[p])) and 0 not in local_shape(held[p]):
            return seen_as.WrongOffset(p, offset(held[p]), begins or ())
    if not seen.full or seen.shards is None:
        return None
    full = unpack(seen.full[0])
    if full.shape != seen.shape:
        return seen_as.WrongShape(seen.shape, full.shape)
    if layout.partial:
        # Where any value is right, one answer must still show one value only.
        allowed = msgspec.structs.replace(context.right.allowed.get(seen.name, EXACT), free=None)
        allowed = double_tolerance(allowed)
        return (
            _find_wrong_reduction(mesh, layout, seen, full, allowed)
            if len(present) == mesh.size
            else None
        )
    for p, shard in present:
        own = pack(full[tuple(slice(*span) for span in held[p])])
        if difference(own, shard, EXACT) is not None:
            return seen_as.WrongShard(p, own, shard)
    return None


def _find_wrong_reduction(
    mesh: Mesh, layout: Layout, seen: Observed, full: NDArray[Any], allowed: Tolerance
) -> Observation | None:
    """Whether the addends beside some device do not reduce to the global value.

    If those beside another device reduce to something else, the replicas differ.
    """
    shards = [unpack(shard) for shard in seen.shards or () if shard is not None]
    if any(op == "avg" for _, op in layout.partial) and full.dtype.kind in "biu":
        return None
    named, first = set(axes_of_layout(layout)), pack(join_shards(mesh, layout, shards, seen.shape))
    for p, where in enumerate(coordinates(mesh)):
        # One position for each set of replicas: the first along every named axis.
        if any(index and axis in named for axis, index in where.items()):
            continue
        total = pack(join_shards(mesh, layout, shards, seen.shape, p))
        if difference(first, total, allowed) is not None:
            return seen_as.RanksDiffer((), p, first, total)
        if difference(total, pack(full), allowed) is not None:
            return seen_as.WrongValue(total, pack(full), p, allowed)
    return None


def check_value(context: Context, seen: Observed) -> Finding | None:
    """Is the global value right? Compared with the case's right value, or the reference's."""
    case, right, name = context.case, context.right, seen.name
    aspect = value_aspect(case, name)
    typed = right.typed.get(name)
    # torch shows the shape of a local shard for a result that is no DTensor.
    if typed is not None and not (
        context.is_dry_run and seen.layout is None and seen.local == seen.shape
    ):
        if seen.dtype != typed.dtype:
            return differs(name, aspect, seen_as.WrongDtype(typed.dtype, seen.dtype))
        if seen.shape != typed.shape and (seen.full or context.is_dry_run):
            return differs(name, aspect, seen_as.WrongShape(typed.shape, seen.shape))
    if name in right.own:
        return not_comparable(name, aspect, "random numbers are each framework's own")
    wanted, fulls = right.values.get(name), global_value(case, seen)
    if context.is_dry_run or (wanted is None and not name.startswith(UNSHARDED)):
        why = "a dry run has no data" if context.is_dry_run else "no right value"
        return not_comparable(name, aspect, why)
    if wanted is None:
        return _check_sampled_gradient(case, seen)
    allowed = right.allowed.get(name, EXACT)
    if fulls is None:
        return _check_shards_of_value(context, seen, wanted, allowed)
    for position, got in enumerate(fulls):
        if (off := compare_values(wanted, got, allowed)) is not None:
            where = position if len(fulls) > 1 else None
            local = ran_on_shards(case, context.answer, seen)
            observed = msgspec.structs.replace(off, position=where, by_shards=bool(local))
            return differs(name, aspect, observed, why=local or right.explain_stated_value(name))
    return agree(name, aspect)


def compare_values(wanted: Array, got: Array, allowed: Tolerance) -> seen_as.WrongValue | None:
    """The observation of a wrong value; None if the value is right."""
    if difference(wanted, got, allowed) is None:
        return None
    return seen_as.WrongValue(wanted, got, None, allowed)


def _check_sampled_gradient(case: Case, seen: Observed) -> Finding | None:
    """Compare some elements of a recipe's unsharded gradient with differences of the NumPy loss."""
    found = sampled_gradient(case, seen)
    aspect = value_aspect(case, seen.name)
    if found is None:
        return not_comparable(seen.name, aspect, "no right value")
    wanted, got, allowed = found
    off = compare_values(wanted, got, allowed)
    return agree(seen.name, aspect) if off is None else differs(seen.name, aspect, off)


def _check_shards_of_value(
    context: Context, seen: Observed, wanted: Array, allowed: Tolerance
) -> Finding | None:
    """Check shards of what has no global value, such as a parameter outside the parallel plan."""
    aspect, layout = value_aspect(context.case, seen.name), context.asked.get(seen.name)
    if layout is None or layout.partial or seen.shards is None:
        return not_comparable(seen.name, aspect, "neither a global value nor shards")
    pieces = cut_shards(mesh_of(context.case, seen.name), layout, unpack(wanted))
    for position, (due, got) in enumerate(zip(map(pack, pieces), seen.shards)):
        if got is not None and got.shape != due.shape:
            return not_comparable(seen.name, aspect, "the shards are those of another layout")
        if got is not None and difference(due, got, allowed) is not None:
            return differs(seen.name, aspect, seen_as.WrongShard(position, due, got))
    return agree(seen.name, aspect)


def check_layout(context: Context, seen: Observed) -> Finding | None:
    """Is the layout the one that the case asks for, or the one of the parallel plan?"""
    wanted, mesh = context.asked[seen.name], mesh_of(context.case, seen.name)
    if seen.layout is None:
        return _check_local_shapes(mesh, seen, wanted)
    fits = isinstance(seen.layout, Layout) and seen.layout.ndim == wanted.ndim
    if fits and are_equivalent(mesh, wanted, seen.layout, seen.shape):  # type: ignore[arg-type]
        return agree(seen.name, "layout")
    return differs(seen.name, "layout", seen_as.WrongLayout(wanted, seen.layout))


def _check_local_shapes(mesh: Mesh, seen: Observed, wanted: Layout) -> Finding:
    """Where no layout is reported, do the shards' shapes fit the layout that was asked for?"""
    held = [local_shape(one) for one in index_ranges(mesh, wanted, seen.shape)]
    got = [None if one is None else one.shape for one in seen.shards or ()]
    if seen.local is not None:
        held, got = [largest_shard(mesh, wanted, seen.shape)], [seen.local]
    for position, (due, one) in enumerate(zip(held, got)):
        if one is not None and one != due:
            return differs(seen.name, "layout", seen_as.WrongShard(position, due, one))
    return not_comparable(seen.name, "layout", "no layout reported")


def check_stated_shards(context: Context, seen: Observed) -> Finding | None:
    """Are shards and offsets the ones that the case states?"""
    said, name = context.case.expectation, seen.name
    shards = zip(said.shards.get(name, ()), seen.shards or ())
    for position, (wanted, got) in enumerate(shards):
        if got is not None and difference(wanted, got, EXACT) is not None:
            observed = seen_as.WrongShard(position, wanted, got)
            return differs(
                name, "shards", observed, why=_explain_stated_shard(context, name, position, wanted)
            )
    offsets = zip(said.offsets.get(name, ()), seen.offsets or ())
    for position, (begins, ours) in enumerate(offsets):
        if ours is not None and begins != ours:
            return differs(name, "shards", seen_as.WrongOffset(position, begins, ours))
    if name in said.shards and not any(seen.shards or ()):
        return not_comparable(name, "shards", "the case states shards, and none are shown")
    if name in said.offsets and not any(one is not None for one in seen.offsets or ()):
        return not_comparable(name, "shards", "the case states offsets, and none are shown")
    return agree(name, "shards")


def _explain_stated_shard(context: Context, name: str, position: int, wanted: Array) -> str:
    """Where the case states another shard than the reference has, a sentence that says so."""
    value, layout = context.right.values.get(name), context.asked.get(name)
    if value is None or layout is None or layout.partial:
        return ""
    due = pack(cut_shards(mesh_of(context.case, name), layout, unpack(value))[position])
    if difference(due, wanted, EXACT) is None:
        return ""
    return f"wanted is the case's own word; the reference has {format_array(due)}"


def _states_shards(context: Context, seen: Observed) -> bool:
    said = context.case.expectation
    return seen.name in said.shards or seen.name in said.offsets


def check_ranks_agree(context: Context, seen: Observed) -> Finding | None:
    """Do all ranks have the same unsharded step of a recipe?"""
    if seen.disagreements:
        return differs(seen.name, "soundness", seen_as.RanksDiffer(seen.disagreements))
    for position, other in enumerate(seen.full):
        if other != seen.full[0]:
            observed = seen_as.RanksDiffer((), position, seen.full[0], other)
            return differs(seen.name, "soundness", observed)
    return None


TENSOR_ASPECTS: tuple[TensorAspect, ...] = (
    TensorAspect("soundness", ("layout", "shards", "offsets", "local"), check_soundness,
        lambda of, seen: not seen.name.startswith(UNSHARDED)),
    TensorAspect("soundness", ("full",), check_ranks_agree,
        lambda of, seen: seen.name.startswith(UNSHARDED)),
    TensorAspect("global", ("full", "dtype"), check_value),
    TensorAspect("layout", ("layout",), check_layout, lambda of, seen: seen.name in of.asked),
    TensorAspect("shards", ("shards",), check_stated_shards, _states_shards),
)  # fmt: skip


# ---- derived meshes ----------------------------------------------------------------------------


def check_meshes(context: Context) -> list[Finding]:
    """Does every device see the derived meshes as the reference does, or as the case states?

    Each device shows the grid of devices, its coordinate, and its group along each axis. A mesh
    step that is invalid must make no mesh.
    """
    case, found = context.case, list[Finding]()
    names = mesh_names(case) & {*case.question.check}
    for right in observe_meshes(case.question) if names else ():
        if right.name.partition("/")[0] not in names:
            continue
        seen = context.find(right.name)
        if seen is None:
            continue
        for field in ("shards", "offsets"):
            if field in context.missing.get(right.name, ()):
                found.append(differs(right.name, "meshes", Missing(field)))
                break
        else:
            observed, doubt = _compare_mesh(case, right, seen)
            found.append(
                agree(right.name, "meshes")
                if observed is None
                else differs(right.name, "meshes", observed, why=doubt)
            )
    made = context.find(case.expectation.refused) if case.expectation.refused else None
    if made is not None:
        got = next((one for one in made.shards or () if one is not None), None)
        why = "the step is wrong, and must make no mesh"
        found.append(differs(made.name, "meshes", seen_as.NotRefused(got), why=why))
    return found


def _compare_mesh(case: Case, right: Observed, seen: Observed) -> tuple[Observation | None, str]:
    wanted, doubt = case.expectation.meshes.get(right.name, right.shards) or (), ""
    if seen.disagreements:
        return seen_as.RanksDiffer(seen.disagreements), ""
    if wanted != right.shards:
        doubt = "wanted is the case's own word; the reference has another grid"
    for position, (due, got) in enumerate(zip(wanted, seen.shards or ())):
        if due is not None and got is not None and difference(due, got, EXACT) is not None:
            return seen_as.WrongMesh(position, due, got), doubt
    for position, (begins, ours) in enumerate(zip(right.offsets or (), seen.offsets or ())):
        if begins is not None and ours is not None and begins != ours:
            return seen_as.WrongOffset(position, begins, ours), doubt
    if seen.dtype != right.dtype:
        return seen_as.WrongDtype(right.dtype, seen.dtype), ""
    if seen.shape != right.shape:
        return seen_as.WrongShape(right.shape, seen.shape), ""
    return None, ""
