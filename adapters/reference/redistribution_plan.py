"""What is a redistribution plan? A sequence of moves between layouts, with costs.

A move is a collective over mesh axes or a free local step. Costs follow from kinds and sizes. They
are not measured.
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
    coordinates,
    divides_evenly,
    index_ranges,
    largest_shard,
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
