"""What is a redistribution plan? A sequence of moves between layouts, with costs and execution.

A move is a collective over mesh axes or a free local step. Costs follow from kinds and sizes. They
are not measured. Execution uses NumPy on one array per mesh position. It reads only the members of
a move's groups.
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
    """One move of a redistribution plan over the mesh axes ``axes``.

    An all-gather removes the innermost axes of one dim. An all-to-all moves them to the innermost
    place of another dim. An all-reduce performs pending reductions. A reduce-scatter performs them
    and shards a dim. A collective-permute sends whole shards. A local move slices the shard of each
    device, or makes it an addend.
    """

    kind: MoveKind
    axes: tuple[str, ...]
    before: Layout
    after: Layout


RedistributionPlan = tuple[Move, ...]


def communicating_moves(plan: RedistributionPlan) -> RedistributionPlan:
    """The moves of a redistribution plan that communicate."""
    return tuple(move for move in plan if move.kind != "local")


def cost(mesh: Mesh, move: Move, shape: tuple[int, ...]) -> int:
    """The elements that the busiest device receives, times the number of devices.

    The factor makes the division by the group size exact. With b elements in the local operand and
    g devices in a group: all-gather (g-1)*b, all-to-all and reduce-scatter b*(g-1)/g, all-reduce
    2*b*(g-1)/g, permute b. Uneven shards count with their actual sizes.
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
    """The `index_ranges` as an array: [position, dim, start and stop]."""
    ranges = np.array(index_ranges(mesh, layout, shape), np.int64)
    return ranges.reshape(mesh.size, len(shape), 2)


def _even_cost(mesh: Mesh, move: Move, shape: tuple[int, ...], g: int) -> int:
    """The `cost` of a move between layouts with equal shards."""
    b, a = (math.prod(largest_shard(mesh, one, shape)) for one in (move.before, move.after))
    match move.kind:
        case "all-gather":
            return (a - b) * mesh.size
        case "all-to-all":
            # Every member keeps its own share.
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
    """The bytes that the busiest device receives in a redistribution plan."""
    return Fraction(sum(cost(mesh, move, shape) for move in plan) * itemsize, mesh.size)


def as_collectives(
    mesh: Mesh, plan: RedistributionPlan, shape: tuple[int, ...], itemsize: int
) -> tuple[Collective, ...]:
    """The collectives of a redistribution plan in the form of an answer."""
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
    """The contents of each mesh position: index ranges, and the index of its addends.

    Two positions with equal contents hold equal arrays. Pending reductions are merged by kind, in
    the order due, so the axis of an addend does not matter.
    """
    orders = [
        (op, tuple(axis for axis in mesh.names if (axis, op) in group))
        for group in reduction_order(layout.partial)
        for op in sorted({op for _, op in group})
    ]
    contents = []
    for where, local in zip(coordinates(mesh), index_ranges(mesh, layout, shape), strict=True):
        addend = []
        for op, axes in orders:
            index = 0
            for axis in axes:
                index = index * mesh[axis] + where[axis]
            addend.append((op, math.prod(mesh[axis] for axis in axes), index))
        contents.append((local, tuple(addend)))
    return tuple(contents)


def permute_sources(mesh: Mesh, move: Move, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The mesh position from which each position receives its shard in a permute.

    As many shards as possible stay in place. Each position sends to exactly one.

    Raises:
        ValueError: the two layouts do not have the same shards equally often.
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
    """The reduction of addends with equal shapes. A sum has 64 bits and is rounded once.

    Raises:
        ValueError: an average of integers is not an integer.
    """
    if op in ("sum", "avg"):
        dtype = addends[0].dtype
        # In NumPy, bfloat16 has its own dtype kind.
        integral, complex_ = dtype.kind in "biu", dtype.kind == "c"
        wide = dtype if integral else np.complex128 if complex_ else np.float64
        total = np.sum(np.stack([one.astype(wide) for one in addends]), axis=0, dtype=wide)
        if op == "avg":
            if integral:
                raise ValueError("the average of integers is no integer")
            total = total / len(addends)
        return np.asarray(total).astype(dtype)
    return reduce(_COMBINE[op], addends)


def execute_plan(
    mesh: Mesh, plan: RedistributionPlan, shards: Shards, shape: tuple[int, ...]
) -> Shards:
    """The shards after all moves of a plan. ``shards`` has one array per mesh position."""
    for move in plan:
        shards = _DO[move.kind](mesh, move, shards, shape)
    return shards


def _find_freed_dim(move: Move) -> tuple[int, tuple[str, ...]]:
    """The dim that an all-gather or all-to-all unshards, and the removed axes in order."""
    for dim, (before, after) in enumerate(zip(move.before.dims, move.after.dims, strict=True)):
        if len(after) < len(before):
            return dim, before[len(after) :]
    raise ValueError(f"{move.kind} frees no dim")


def _slice_shard(
    array: NDArray[Any], ranges: Ranges, wanted: Ranges, dims: Sequence[int]
) -> NDArray[Any]:
    """The part of a shard with the index ranges ``ranges`` that is in ``wanted`` along ``dims``."""
    index = [slice(None)] * array.ndim
    for dim in dims:
        index[dim] = slice(wanted[dim][0] - ranges[dim][0], wanted[dim][1] - ranges[dim][0])
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
            # A shard becomes an addend: the global tensor with zeros outside the shard.
            addend = np.zeros(local_shape(afters[p]), shards[p].dtype)
            _slice_shard(addend, afters[p], befores[p], range(len(shape)))[...] = shards[p]
            new.append(addend)
            continue
        shard = _slice_shard(shards[p], befores[p], afters[p], range(len(shape)))
        for axis, op in owed:
            # For sum and product, other addends are neutral. For avg, max and min, all are equal.
            if op in ("sum", "product") and where[axis]:
                shard = np.full_like(shard, op == "product" and _is_first_addend(move, where, axis))
        new.append(shard)
    return new


def _is_first_addend(move: Move, where: dict[str, int], axis: str) -> bool:
    """Whether a position is first along every axis of a sum that is due before ``axis``'s product.

    Only there the neutral addend of the product is 1, because the ones would be summed.
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
