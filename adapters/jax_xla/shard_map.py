"""Do the reference's redistribution plans give the right shards, and which collectives run?

Each move of a redistribution plan runs as a ``lax`` collective inside ``jax.shard_map``. Only
programs that change layouts and compute nothing have such plans. The observed layout is what JAX
reports. It follows from ``out_specs``, which is the target of the redistribution plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jax import lax

from adapters.answer import Observed
from adapters.jax_xla import arrays, compat
from adapters.jax_xla.answer_in_progress import AnswerInProgress, observe_without_data
from adapters.jax_xla.compiled_program import Compiler, output_structs, run
from adapters.reference.redistribution_plan import Move, RedistributionPlan, permute_sources
from adapters.unsupported import CannotAnswer
from cases.arrays import pack
from cases.layout import is_even
from cases.model import Layout, Mesh, Question

PlanFinder = Callable[[Mesh, Layout, Layout, tuple[int, ...]], RedistributionPlan]


def answer(
    compiler: Compiler, question: Question, notes: AnswerInProgress, planner: PlanFinder
) -> None:
    """Write the observations of the redistribution plans of ``planner`` into ``notes``.

    Raises:
        RefusedByJax: JAX refused a step or an input.
    """
    for step in question.steps:
        if step.op not in ("redistribute", "identity") or not isinstance(step.args[0], str):
            raise CannotAnswer("plans are for changes of layout alone", step.result)
    if any(given.mesh is not None for given in question.inputs):
        raise CannotAnswer("a plan knows one mesh")
    derived = {step.result for step in question.mesh_steps}
    views = {given.view for given in question.inputs}
    if derived & {*views, *question.check, *(s.params.get("view") for s in question.steps)}:
        raise CannotAnswer("plans are for meshes that are not derived")
    mesh = question.mesh
    there = arrays.jax_mesh(mesh, "Auto")
    values: dict[str, arrays.ArrayOrStruct] = {}
    layouts: dict[str, Layout] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for given in question.inputs:
        values[given.name] = arrays.place_input(given, mesh, there, True, notes.is_dry_run)
        layouts[given.name], shapes[given.name] = given.layout, given.shape
        if notes.wants(given.name):
            notes.see(_observed(given.name, values[given.name], given.layout, mesh), mesh)
    for step in question.steps:
        name = str(step.args[0])
        source, shape = layouts[name], shapes[name]
        target = source if step.to is None else step.to
        plan = planner(mesh, source, target, shape)
        for move in plan:
            _check(move, mesh, shape, step.result)
        moved = _mapped(plan, source, target, mesh, shape)
        program = notes.keep_complaints(compiler.compile(step.result, moved, [values[name]], mesh))
        result = output_structs(program) if notes.is_dry_run else run(program, [values[name]])
        notes.count_memory(program, (value for other, value in values.items() if other != name))
        values[step.result], layouts[step.result], shapes[step.result] = result, target, shape
        if notes.wants(step.result):
            seen = _observed(step.result, result, target, mesh)
            notes.see(msgspec.structs.replace(seen, collectives=program.collectives), mesh)


def _observed(name: str, array: arrays.ArrayOrStruct, layout: Layout, mesh: Mesh) -> Observed:
    """The observation of an array. Leading dims with the addends of ``layout`` are left out."""
    lead = len(layout.partial)
    reported, note = arrays.layout_of(array, mesh)
    if lead and isinstance(reported, Layout):
        reported = Layout(reported.dims[lead:], layout.partial)
    if isinstance(array, jax.ShapeDtypeStruct):
        return observe_without_data(name, array, reported, note, lead)
    shards, offsets = arrays.shards_of(array, mesh)
    if lead and isinstance(reported, Layout):
        shards = tuple(
            shard and msgspec.structs.replace(shard, shape=shard.shape[lead:]) for shard in shards
        )
        offsets = tuple(offset and offset[lead:] for offset in offsets)
    # A partial array has no global value until it is reduced.
    full = () if lead else (pack(np.asarray(array)),)
    shape = array.shape[lead:]
    return Observed(name, array.dtype.name, shape, reported, shards, offsets, full, note=note)


_SCATTERED = ("sum", "avg")


def _check(move: Move, mesh: Mesh, shape: tuple[int, ...], step: str) -> None:
    """Raise `CannotAnswer` if JAX has no collective for a move."""
    if not (is_even(mesh, move.before, shape) and is_even(mesh, move.after, shape)):
        raise CannotAnswer("uneven shards: shard_map has one local shape for all", step)
    if move.kind not in ("all-reduce", "reduce-scatter"):
        return
    op = dict(move.before.partial)[move.axes[0]]
    if op == "product":
        raise CannotAnswer("lax has no collective product", step)
    if move.kind == "reduce-scatter" and op not in _SCATTERED:
        raise CannotAnswer(f"lax has no reduce-scatter by {op}", step)


def _mapped(
    plan: RedistributionPlan, source: Layout, target: Layout, mesh: Mesh, shape: tuple[int, ...]
) -> Callable[..., Any]:
    """The redistribution plan as a function of an array with its addends on leading dims."""

    def moved(x: jax.Array) -> jax.Array:
        x = x.reshape(x.shape[len(source.partial) :])
        for move in plan:
            x = _MOVES[move.kind](x, move, mesh, shape)
        return x.reshape((1,) * len(target.partial) + x.shape)

    return compat.shard_map(
        moved,
        arrays.jax_mesh(mesh, "Auto"),
        arrays.partition_spec(arrays.stacked_layout(source)),
        arrays.partition_spec(arrays.stacked_layout(target)),
        # JAX cannot infer that gathered values are replicated. The suite checks the shards.
        checked=False,
    )


def _removed_axes(move: Move) -> tuple[int, tuple[str, ...]]:
    """The dim that a move unshards, and the removed mesh axes, major to minor."""
    for dim, (before, after) in enumerate(zip(move.before.dims, move.after.dims, strict=True)):
        if len(after) < len(before):
            return dim, before[len(after) :]
    raise ValueError(f"{move} frees no dim")


def _added_axes(move: Move) -> list[tuple[int, tuple[str, ...]]]:
    """The dims that a move shards further, and the added mesh axes, major to minor."""
    return [
        (dim, after[len(before) :])
        for dim, (before, after) in enumerate(zip(move.before.dims, move.after.dims, strict=True))
        if len(after) > len(before)
    ]


def _all_gather(x: jax.Array, move: Move, mesh: Mesh, shape: tuple[int, ...]) -> jax.Array:
    dim, axes = _removed_axes(move)
    gathered: jax.Array = lax.all_gather(x, axes, axis=dim, tiled=True)
    return gathered


def _all_to_all(x: jax.Array, move: Move, mesh: Mesh, shape: tuple[int, ...]) -> jax.Array:
    dim, axes = _removed_axes(move)
    ((to, order),) = _added_axes(move)
    if axes != order:
        # lax.all_to_all gives piece k to member k in the order of ``axes``. Reorder the pieces so
        # that each member gets the piece of its place in ``order``.
        sizes = [mesh[axis] for axis in order]
        lead, tail = x.shape[:to], x.shape[to + 1 :]
        pieces = x.reshape((*lead, *sizes, -1, *tail))
        places = [to + order.index(axis) for axis in axes]
        rest = range(to + len(sizes), pieces.ndim)
        x = pieces.transpose(*range(to), *places, *rest).reshape(x.shape)
    moved: jax.Array = lax.all_to_all(x, axes, split_axis=to, concat_axis=dim, tiled=True)
    return moved


_REDUCE: dict[str, Callable[..., Any]] = {
    "sum": lax.psum,
    "avg": lax.psum,
    "max": lax.pmax,
    "min": lax.pmin,
}


def _averaged(total: jax.Array, move: Move, mesh: Mesh, dtype: Any) -> jax.Array:
    """The sum or average in the dtype of the tensor. The psum of a bool tensor is an integer."""
    if dict(move.before.partial)[move.axes[0]] == "avg":
        for axis in move.axes:
            total = total / mesh[axis]
    return total.astype(dtype)


def _all_reduce(x: jax.Array, move: Move, mesh: Mesh, shape: tuple[int, ...]) -> jax.Array:
    reduce = _REDUCE[dict(move.before.partial)[move.axes[0]]]
    return _averaged(reduce(x, move.axes), move, mesh, x.dtype)


def _reduce_scatter(x: jax.Array, move: Move, mesh: Mesh, shape: tuple[int, ...]) -> jax.Array:
    ((dim, axes),) = _added_axes(move)
    total = lax.psum_scatter(x, axes, scatter_dimension=dim, tiled=True)
    return _averaged(total, move, mesh, x.dtype)


def _permute(x: jax.Array, move: Move, mesh: Mesh, shape: tuple[int, ...]) -> jax.Array:
    pairs = [(source, target) for target, source in enumerate(permute_sources(mesh, move, shape))]
    permuted: jax.Array = lax.ppermute(x, mesh.names, pairs)
    return permuted


def _local(x: jax.Array, move: Move, mesh: Mesh, shape: tuple[int, ...]) -> jax.Array:
    split = {axis: dim for dim, axes in enumerate(move.before.dims) for axis in axes}
    for axis, _ in move.after.partial:
        if axis in split:
            # A shard becomes an addend: the global tensor with zeros outside the shard.
            dim, size = split[axis], x.shape[split[axis]]
            whole = jnp.zeros((*x.shape[:dim], size * mesh[axis], *x.shape[dim + 1 :]), x.dtype)
            return lax.dynamic_update_slice_in_dim(whole, x, lax.axis_index(axis) * size, dim)
    for dim, axes in _added_axes(move):
        size = x.shape[dim]
        for axis in axes:
            size //= mesh[axis]
        x = lax.dynamic_slice_in_dim(x, lax.axis_index(axes) * size, size, dim)
    for axis, op in move.after.partial:
        # For a sum or product, the other addends are neutral. For avg, max and min, all are equal.
        if (axis, op) not in move.before.partial and op in ("sum", "product"):
            neutral = jnp.full_like(x, op == "product")
            x = jnp.where(lax.axis_index(axis) == 0, x, neutral)
    return x


_MOVES = {
    "all-gather": _all_gather,
    "all-to-all": _all_to_all,
    "all-reduce": _all_reduce,
    "reduce-scatter": _reduce_scatter,
    "collective-permute": _permute,
    "local": _local,
}
