"""Which indices does each mesh position hold under a layout, and when are two layouts equivalent?

Index arithmetic only. Refuses to know values, collectives and notations.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

from cases.model import Layout, Mesh

Range = tuple[int, int]
Ranges = tuple[Range, ...]


def chunk(start: int, stop: int, parts: int, index: int) -> Range:
    """The ``index``-th of ``parts`` chunks of [start, stop).

    This is the rule of ``torch.chunk`` and of DTensor's Shard. Chunks are ceil(size / parts)
    long until nothing is left, so 5 rows in 4 chunks are 2, 2, 1, 0.
    """
    step = -(-(stop - start) // parts)
    return min(start + index * step, stop), min(start + (index + 1) * step, stop)


def coordinate(mesh: Mesh, position: int) -> dict[str, int]:
    """The coordinate of a row-major mesh position: axis name -> index along it."""
    where = {}
    for name, size in reversed(mesh.axes):
        position, where[name] = divmod(position, size)
    return {name: where[name] for name in mesh.names}


@lru_cache(maxsize=4096)
def coordinates(mesh: Mesh) -> tuple[dict[str, int], ...]:
    """`coordinate` of every mesh position."""
    return tuple(coordinate(mesh, position) for position in range(mesh.size))


@lru_cache(maxsize=65536)
def index_ranges(mesh: Mesh, layout: Layout, shape: tuple[int, ...]) -> tuple[Ranges, ...]:
    """For each mesh position, the range [start, stop) that it holds of each tensor dim.

    If several axes split one dim, each splits the chunks of the axis before it.
    """
    held = []
    for where in coordinates(mesh):
        local = []
        for size, axes in zip(shape, layout.dims, strict=True):
            span = (0, size)
            for axis in axes:
                span = chunk(*span, mesh[axis], where[axis])
            local.append(span)
        held.append(tuple(local))
    return tuple(held)


def local_shape(held: Ranges) -> tuple[int, ...]:
    """The shape of a shard that holds these ranges."""
    return tuple(stop - start for start, stop in held)


def largest_shard(mesh: Mesh, layout: Layout, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the largest shard. The first position holds it."""
    local = []
    for size, axes in zip(shape, layout.dims, strict=True):
        for axis in axes:
            size = -(-size // mesh[axis])
        local.append(size)
    return tuple(local)


def divides_evenly(mesh: Mesh, layout: Layout, shape: tuple[int, ...]) -> bool:
    """Whether every dim has elements and all its chunks are equally long.

    Then two axis orders never give the same chunks.
    """
    return all(
        size > 0 and size % math.prod(mesh[axis] for axis in axes) == 0
        for size, axes in zip(shape, layout.dims, strict=True)
    )


def offset(held: Ranges) -> tuple[int, ...]:
    """The global index at which a shard begins, even if it is empty."""
    return tuple(start for start, _ in held)


@lru_cache(maxsize=1024)
def axis_groups(mesh: Mesh, axes: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """The groups of mesh positions that differ only along ``axes``.

    Each group is in the order of ``axes``, major to minor.
    """
    found: dict[tuple[int, ...], list[tuple[tuple[int, ...], int]]] = {}
    for position, where in enumerate(coordinates(mesh)):
        rest = tuple(index for name, index in where.items() if name not in axes)
        found.setdefault(rest, []).append((tuple(where[axis] for axis in axes), position))
    return tuple(tuple(position for _, position in sorted(group)) for group in found.values())


def canonical(mesh: Mesh, layout: Layout) -> Layout:
    """The layout without axes of size 1."""
    return Layout(
        tuple(tuple(axis for axis in axes if mesh[axis] > 1) for axes in layout.dims),
        tuple((axis, op) for axis, op in layout.partial if mesh[axis] > 1),
    )


def commute(one: str, other: str) -> bool:
    """Whether the order of two pending reductions is irrelevant."""
    return one == other or {one, other} == {"sum", "avg"}


def reduction_order(partial: tuple[tuple[str, str], ...]) -> tuple[frozenset[tuple[str, str]], ...]:
    """Pending reductions in the order in which they are due. Those that commute form a group."""
    grouped: list[set[tuple[str, str]]] = []
    for pending in partial:
        if grouped and all(commute(pending[1], op) for _, op in grouped[-1]):
            grouped[-1].add(pending)
        else:
            grouped.append({pending})
    return tuple(frozenset(group) for group in grouped)


def are_equivalent(mesh: Mesh, one: Layout, other: Layout, shape: tuple[int, ...]) -> bool:
    """Whether every mesh position holds the same ranges with the same pending reductions.

    Axes of size 1 are ignored.
    """
    one, other = canonical(mesh, one), canonical(mesh, other)
    if one == other:
        return True
    if reduction_order(one.partial) != reduction_order(other.partial):
        return False
    if divides_evenly(mesh, one, shape) and divides_evenly(mesh, other, shape):
        return one.dims == other.dims
    return index_ranges(mesh, one, shape) == index_ranges(mesh, other, shape)


def axes_of_layout(layout: Layout) -> tuple[str, ...]:
    """All axes that the layout names. Those that split a dim come first."""
    return tuple(itertools.chain(*layout.dims)) + tuple(axis for axis, _ in layout.partial)


def is_even(mesh: Mesh, layout: Layout, shape: tuple[int, ...]) -> bool:
    """Whether all shards have the same shape."""
    if divides_evenly(mesh, layout, shape):
        return True
    return len({local_shape(held) for held in index_ranges(mesh, layout, shape)}) == 1
