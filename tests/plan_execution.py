"""What does a redistribution plan do to shards? Executed in NumPy, to check plans against layouts.

There is one array for each mesh position. A move looks only at the members of its own groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.reference.redistribution_plan import (
    Move,
    RedistributionPlan,
    permute_sources,
    reduce_addends,
)
from cases.layout import Ranges, axis_groups, coordinates, index_ranges, local_shape
from cases.model import Mesh

Shards = list[NDArray[Any]]


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
