"""What is a redistribution plan? Moves between layouts, their costs, their effect on shards.

A move is a collective over some mesh axes or a free local step. Costs come from kind and sizes,
never from a clock. Execution is NumPy on one array per mesh position, and looks only at the members
of the move's own groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from adapters.answer import Collective
from cases.layout import (
    Ranges,
    axis_groups,
    coordinates,
    divides_evenly,
    index_ranges,
    largest_shard,
    local_shape,
    reduction_order,
)
from cases.model import Layout, Mesh

MoveKind = Literal[
    "all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute", "local"
]
Shards = list[NDArray[Any]]


class Move(msgspec.Struct, frozen=True):
    """One step of a plan: its kind, the mesh axes that it runs over, and the layouts around it.

    all-gather takes ``axes``, the innermost of one dim, off that dim; all-to-all moves them to the
    innermost place of another dim; all-reduce pays pending reductions; reduce-scatter pays them and
    splits a dim; collective-permute passes whole shards on; local is what a device can do with what
    it has: slice it, or make it an addend.
    """

    kind: MoveKind
    axes: tuple[str, ...]
    before: Layout
    after: Layout


RedistributionPlan = tuple[Move, ...]


def communicating_moves(plan: RedistributionPlan) -> RedistributionPlan:
    """The moves that communicate."""
    return tuple(move for move in plan if move.kind != "local")


def cost(mesh: Mesh, move: Move, shape: tuple[int, ...]) -> int:
    """Elements that the busiest device receives, times the number of devices.

    The factor keeps the division by the group size whole. With b elements in the local operand
    and g devices in a group: all-gather (g-1)*b, all-to-all and reduce-scatter b*(g-1)/g,
    all-reduce 2*b*(g-1)/g, permute b. Uneven shards count with their actual sizes.
    """
    if move.kind == "local":
        return 0
    g = math.prod(mesh[axis] for axis in move.axes)
    if divides_evenly(mesh, move.before, shape) and divides_evenly(mesh, move.after, shape):
        return _even_cost(mesh, move, shape, g)
    before, after = (_ranges_array(mesh, one, shape) for one in (move.before, move.after))
    b, a = (np.prod(one[..., 1] - one[..., 0], axis=-1) for one in (before, after))
    match move.kind:
        case "all-gather":
            most = np.max(a - b)
        case "all-to-all":
            stop = np.minimum(before[..., 1], after[..., 1])
            kept = np.maximum(stop - np.maximum(before[..., 0], after[..., 0]), 0)
            most = np.max(a - np.prod(kept, axis=-1))
        case "reduce-scatter":
            most = np.max(a) * (g - 1)
        case "all-reduce":
            return 2 * int(np.max(b)) * (g - 1) * (mesh.size // g)
        case "collective-permute":
            moved = np.array(permute_sources(mesh, move, shape)) != np.arange(mesh.size)
            most = np.max(a[moved])
    return int(most) * mesh.size


@lru_cache(maxsize=1024)
def _ranges_array(mesh: Mesh, layout: Layout, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """`ranges` as numbers: [position, dim, start and stop]."""
    held = np.array(index_ranges(mesh, layout, shape), np.int64)
    return held.reshape(mesh.size, len(shape), 2)


def _even_cost(mesh: Mesh, move: Move, shape: tuple[int, ...], g: int) -> int:
    """As `cost`, where all shards have one size, so that one speaks for all."""
    b, a = (math.prod(largest_shard(mesh, one, shape)) for one in (move.before, move.after))
    match move.kind:
        case "all-gather":
            return (a - b) * mesh.size
        case "all-to-all":
            # Of every member, its own share stays.
            return (a - b // g) * mesh.size
        case "reduce-scatter":
            return a * (g - 1) * mesh.size
        case "all-reduce":
            return 2 * b * (g - 1) * (mesh.size // g)
        case _:
            return a * mesh.size


def plan_bytes(
    mesh: Mesh, plan: RedistributionPlan, shape: tuple[int, ...], itemsize: int
) -> Fraction:
    """Bytes that the busiest device receives over the whole plan."""
    return Fraction(sum(cost(mesh, move, shape) for move in plan) * itemsize, mesh.size)


def as_collectives(
    mesh: Mesh, plan: RedistributionPlan, shape: tuple[int, ...], itemsize: int
) -> tuple[Collective, ...]:
    """The plan's collectives in the form of an answer."""
    return tuple(
        Collective(
            kind,
            tuple(axis for axis in mesh.names if axis in move.axes),
            math.prod(mesh[axis] for axis in move.axes),
            math.prod(largest_shard(mesh, move.before, shape)) * itemsize,
        )
        for move in plan
        if (kind := move.kind) != "local"
    )


@lru_cache(maxsize=65536)
def device_contents(
    mesh: Mesh, layout: Layout, shape: tuple[int, ...]
) -> tuple[tuple[Any, ...], ...]:
    """What each mesh position holds: index ranges, and which addend of each pending reduction.

    Two positions with equal contents hold equal arrays. Pending reductions are counted by kind, in
    the order due, so that it does not matter over which axis an addend is one.
    """
    orders = [
        (op, tuple(axis for axis in mesh.names if (axis, op) in group))
        for group in reduction_order(layout.partial)
        for op in sorted({op for _, op in group})
    ]
    held = []
    for where, local in zip(coordinates(mesh), index_ranges(mesh, layout, shape), strict=True):
        addend = []
        for op, axes in orders:
            index = 0
            for axis in axes:
                index = index * mesh[axis] + where[axis]
            addend.append((op, math.prod(mesh[axis] for axis in axes), index))
        held.append((local, tuple(addend)))
    return tuple(held)


def permute_sources(mesh: Mesh, move: Move, shape: tuple[int, ...]) -> tuple[int, ...]:
    """For a permute: the mesh position from which each position's shard comes.

    As many as possible stay where they are; each position sends to exactly one.

    Raises:
        ValueError: the layouts do not hold the same shards equally often.
    """
    befores, afters = (
        device_contents(mesh, move.before, shape),
        device_contents(mesh, move.after, shape),
    )
    if sorted(befores) != sorted(afters):
        raise ValueError(f"no permutation takes {move.before} to {move.after}")
    taken = [befores[p] == afters[p] for p in range(mesh.size)]
    spare: dict[Any, list[int]] = {}
    for p in range(mesh.size):
        if not taken[p]:
            spare.setdefault(befores[p], []).append(p)
    return tuple(p if taken[p] else spare[afters[p]].pop(0) for p in range(mesh.size))


_COMBINE = {"max": np.maximum, "min": np.minimum, "product": np.multiply}


def reduce_addends(addends: Sequence[NDArray[Any]], op: str) -> NDArray[Any]:
    """The reduction of equally shaped addends, summed in 64 bits and rounded once.

    Raises:
        ValueError: an average of integers, which is no integer.
    """
    if op in ("sum", "avg"):
        dtype = addends[0].dtype
        # For NumPy, bfloat16 is of a kind of its own.
        whole, complex_ = dtype.kind in "biu", dtype.kind == "c"
        wide = dtype if whole else np.complex128 if complex_ else np.float64
        total = np.sum(np.stack([one.astype(wide) for one in addends]), axis=0, dtype=wide)
        if op == "avg":
            if whole:
                raise ValueError("the average of integers is no integer")
            total = total / len(addends)
        return np.asarray(total).astype(dtype)
    return reduce(_COMBINE[op], addends)


def execute_plan(
    mesh: Mesh, plan: RedistributionPlan, shards: Shards, shape: tuple[int, ...]
) -> Shards:
    """The shards after every move of the plan; ``shards`` holds one array per mesh position."""
    for move in plan:
        shards = _DO[move.kind](mesh, move, shards, shape)
    return shards


def _find_freed_dim(move: Move) -> tuple[int, tuple[str, ...]]:
    """The dim that a gather or all-to-all frees, and the axes that leave it, in their order."""
    for dim, (before, after) in enumerate(zip(move.before.dims, move.after.dims, strict=True)):
        if len(after) < len(before):
            return dim, before[len(after) :]
    raise ValueError(f"{move.kind} frees no dim")


def _slice_shard(
    array: NDArray[Any], held: Ranges, wanted: Ranges, dims: Sequence[int]
) -> NDArray[Any]:
    """The part of a shard with the ranges ``held`` that lies in ``wanted`` along some dims."""
    index = [slice(None)] * array.ndim
    for dim in dims:
        index[dim] = slice(wanted[dim][0] - held[dim][0], wanted[dim][1] - held[dim][0])
    return array[tuple(index)]


def _gather(mesh: Mesh, move: Move, shards: Shards, shape: tuple[int, ...]) -> Shards:
    dim, order = _find_freed_dim(move)
    befores, afters = index_ranges(mesh, move.before, shape), index_ranges(mesh, move.after, shape)
    split = [d for d in range(len(shape)) if len(move.after.dims[d]) > len(move.before.dims[d])]
    new = list(shards)
    for group in axis_groups(mesh, order):
        for p in group:
            parts = [_slice_shard(shards[m], befores[m], afters[p], split) for m in group]
            new[p] = np.concatenate(parts, axis=dim)
    return new


def _reduce(mesh: Mesh, move: Move, shards: Shards, shape: tuple[int, ...]) -> Shards:
    op = dict(move.before.partial)[move.axes[0]]
    befores, afters = index_ranges(mesh, move.before, shape), index_ranges(mesh, move.after, shape)
    new = list(shards)
    for group in axis_groups(mesh, move.axes):
        total = reduce_addends([shards[m] for m in group], op)
        for p in group:
            new[p] = _slice_shard(total, befores[p], afters[p], range(len(shape)))
    return new


def _permute(mesh: Mesh, move: Move, shards: Shards, shape: tuple[int, ...]) -> Shards:
    return [shards[p] for p in permute_sources(mesh, move, shape)]


def _local(mesh: Mesh, move: Move, shards: Shards, shape: tuple[int, ...]) -> Shards:
    befores, afters = index_ranges(mesh, move.before, shape), index_ranges(mesh, move.after, shape)
    split = {axis for axes in move.before.dims for axis in axes}
    owed = [pending for pending in move.after.partial if pending not in move.before.partial]
    new = []
    for p, where in enumerate(coordinates(mesh)):
        if any(axis in split for axis, _ in owed):
            # A shard is an addend of the whole: itself, and zero elsewhere.
            addend = np.zeros(local_shape(afters[p]), shards[p].dtype)
            _slice_shard(addend, afters[p], befores[p], range(len(shape)))[...] = shards[p]
            new.append(addend)
            continue
        shard = _slice_shard(shards[p], befores[p], afters[p], range(len(shape)))
        for axis, op in owed:
            # One addend is the value and the others neutral; avg, max and min take it everywhere.
            if op in ("sum", "product") and where[axis]:
                shard = np.full_like(shard, op == "product" and _is_first_addend(move, where, axis))
        new.append(shard)
    return new


def _is_first_addend(move: Move, where: dict[str, int], axis: str) -> bool:
    """Whether a position is first along every axis of a sum that is due before ``axis``'s product.

    There alone stands its neutral 1: ones on all of them would add up.
    """
    order = [name for name, _ in move.after.partial]
    sums = [name for name, op in move.after.partial if op == "sum"]
    return not any(where[name] for name in sums if order.index(name) < order.index(axis))


_DO = {
    "all-gather": _gather,
    "all-to-all": _gather,
    "all-reduce": _reduce,
    "reduce-scatter": _reduce,
    "collective-permute": _permute,
    "local": _local,
}
