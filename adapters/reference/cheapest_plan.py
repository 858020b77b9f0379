"""What is the cheapest redistribution plan? It has the fewest bytes, then the fewest collectives.

It is a shortest path over layouts. A collective acts on one tensor dim (an all-to-all on two) and
one or more mesh axes. A permute sends whole shards. Local slices are free. The cost of the implied
plan, which is one of the paths, bounds the search. No framework is asked.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from functools import lru_cache

from adapters.reference.implied_plan import implied_plan, order_pending
from adapters.reference.redistribution_plan import (
    Move,
    MoveKind,
    RedistributionPlan,
    communicating_moves,
    cost,
    device_contents,
    permute_sources,
)
from cases.layout import (
    are_equivalent,
    axes_of_layout,
    canonical,
    coordinates,
    divides_evenly,
    reduction_order,
)
from cases.model import Layout, Mesh


@lru_cache(maxsize=65536)
def cheapest_plan(
    mesh: Mesh, source: Layout, target: Layout, shape: tuple[int, ...]
) -> RedistributionPlan:
    """The redistribution plan with the least (elements at the busiest device, collectives).

    In a tie, the plan that is found first wins. The order depends only on the arguments.
    """
    if are_equivalent(mesh, source, target, shape):
        return ()
    source, target = canonical(mesh, source), canonical(mesh, target)
    known = implied_plan(mesh, source, target, shape)
    bound = (sum(cost(mesh, move, shape) for move in known), len(communicating_moves(known)))
    best = {source: (0, 0)}
    last_move: dict[Layout, Move] = {}
    queue = [((0, 0), 0, source)]
    tick = itertools.count(1)
    while queue:
        price, _, now = heapq.heappop(queue)
        if price > best[now]:
            continue
        if now == target or _is_target(mesh, now, target, shape):
            return _path(last_move, source, now)
        for move, elements in _edges(mesh, now, target.partial, shape):
            then = (price[0] + elements, price[1] + (move.kind != "local"))
            if then <= bound and (move.after not in best or then < best[move.after]):
                best[move.after] = then
                last_move[move.after] = move
                heapq.heappush(queue, (then, next(tick), move.after))
    raise AssertionError("the implied plan is a path of its own search")


def _is_target(mesh: Mesh, now: Layout, target: Layout, shape: tuple[int, ...]) -> bool:
    """Whether a layout gives every position the contents of the target layout."""
    if reduction_order(now.partial) != reduction_order(target.partial):
        return False
    if divides_evenly(mesh, now, shape) and divides_evenly(mesh, target, shape):
        return now.dims == target.dims
    return device_contents(mesh, now, shape) == device_contents(mesh, target, shape)


def _path(last_move: dict[Layout, Move], source: Layout, end: Layout) -> RedistributionPlan:
    plan: list[Move] = []
    while end != source:
        plan.append(last_move[end])
        end = last_move[end].before
    return tuple(reversed(plan))


@lru_cache(maxsize=65536)
def _edges(
    mesh: Mesh, now: Layout, owed: tuple[tuple[str, str], ...], shape: tuple[int, ...]
) -> tuple[tuple[Move, int], ...]:
    """The moves from a layout with their costs. All searches share them."""
    return tuple((move, cost(mesh, move, shape)) for move in _moves(mesh, now, owed, shape))


def _moves(
    mesh: Mesh, now: Layout, owed: tuple[tuple[str, str], ...], shape: tuple[int, ...]
) -> Iterator[Move]:
    yield from _locals(mesh, now, owed)
    for dim, order in enumerate(now.dims):
        for start in range(len(order)):
            suffix, rest = order[start:], order[:start]
            yield _move("all-gather", suffix, now, {dim: rest})
            for other in range(now.ndim):
                if other != dim:
                    for arriving in itertools.permutations(suffix):
                        split = now.dims[other] + arriving
                        yield _move("all-to-all", suffix, now, {dim: rest, other: split})
    if now.partial:
        first = reduction_order(now.partial)[0]
        for op in sorted({op for _, op in first}):
            pending = [axis for axis in mesh.names if (axis, op) in first]
            for count in range(1, len(pending) + 1):
                for axes in itertools.combinations(pending, count):
                    yield _move("all-reduce", axes, now, {}, paid=axes)
                    for dim in range(now.ndim):
                        for arriving in itertools.permutations(axes):
                            split = now.dims[dim] + arriving
                            yield _move("reduce-scatter", axes, now, {dim: split}, paid=axes)
    yield from _permutes(mesh, now, shape)


def _move(
    kind: MoveKind,
    axes: tuple[str, ...],
    now: Layout,
    dims: dict[int, tuple[str, ...]],
    paid: tuple[str, ...] = (),
) -> Move:
    after = Layout(
        tuple(dims.get(dim, order) for dim, order in enumerate(now.dims)),
        tuple(pending for pending in now.partial if pending[0] not in paid),
    )
    return Move(kind, axes, now, after)


def _locals(mesh: Mesh, now: Layout, owed: tuple[tuple[str, str], ...]) -> Iterator[Move]:
    resting = [axis for axis in mesh.names if axis not in axes_of_layout(now) and mesh[axis] > 1]
    for axis in resting:
        for dim in range(now.ndim):
            yield _move("local", (axis,), now, {dim: (*now.dims[dim], axis)})
    innermost = {axes[-1]: dim for dim, axes in enumerate(now.dims) if axes}
    for axis, op in owed:
        dims = now.dims
        if axis in innermost and op == "sum":
            freed = innermost[axis]
            dims = (*dims[:freed], dims[freed][:-1], *dims[freed + 1 :])
        elif axis not in resting:
            continue
        partial = order_pending((*now.partial, (axis, op)), owed)
        yield Move("local", (axis,), now, Layout(dims, partial))


def _permutes(mesh: Mesh, now: Layout, shape: tuple[int, ...]) -> Iterator[Move]:
    ops = tuple(sorted({op for _, op in now.partial}))
    for after in _layouts_by_shards(mesh, len(shape), ops, shape).get(
        _shards_key(mesh, now, shape), ()
    ):
        if after == now:
            continue
        move = Move("collective-permute", mesh.names, now, after)
        pairs = [(s, p) for p, s in enumerate(permute_sources(mesh, move, shape)) if s != p]
        if not pairs:
            yield Move("local", mesh.names, now, after)
            continue
        where = coordinates(mesh)
        axes = tuple(
            axis for axis in mesh.names if any(where[s][axis] != where[p][axis] for s, p in pairs)
        )
        yield Move("collective-permute", axes, now, after)


@lru_cache(maxsize=256)
def _layouts_by_shards(
    mesh: Mesh, ndim: int, ops: tuple[str, ...], shape: tuple[int, ...]
) -> dict[tuple[object, ...], list[Layout]]:
    """All layouts, grouped by their shards. A permute connects the layouts of a group."""
    found: dict[tuple[object, ...], list[Layout]] = {}
    for layout in all_layouts(mesh, ndim, ops):
        found.setdefault(_shards_key(mesh, layout, shape), []).append(layout)
    return found


def _shards_key(mesh: Mesh, layout: Layout, shape: tuple[int, ...]) -> tuple[object, ...]:
    """The shards of a layout, whichever device holds each. Permuted layouts have the same."""
    if not divides_evenly(mesh, layout, shape):
        return tuple(sorted(device_contents(mesh, layout, shape)))
    # The numbers of chunks of each dim and of addends of each kind. All occur equally often.
    chunks = tuple(math.prod(mesh[axis] for axis in axes) for axes in layout.dims)
    owed = tuple(
        (op, math.prod(mesh[axis] for axis, other in group if other == op))
        for group in reduction_order(layout.partial)
        for op in sorted({op for _, op in group})
    )
    return chunks, owed


def all_layouts(mesh: Mesh, ndim: int, ops: tuple[str, ...] = ()) -> tuple[Layout, ...]:
    """All layouts of an ``ndim``-d tensor over the axes of size > 1, in every order of axes.

    ``ops``: the reductions that may be pending, due in mesh order.
    """
    layouts = [Layout(((),) * ndim)]
    for axis in (name for name in mesh.names if mesh[name] > 1):
        grown = []
        for layout in layouts:
            grown.append(layout)
            grown += [Layout(layout.dims, (*layout.partial, (axis, op))) for op in ops]
            for dim, order in enumerate(layout.dims):
                for place in range(len(order) + 1):
                    split = (*order[:place], axis, *order[place:])
                    dims = (*layout.dims[:dim], split, *layout.dims[dim + 1 :])
                    grown.append(Layout(dims, layout.partial))
        layouts = grown
    return tuple(layouts)
