"""Which collectives does a change of layout imply? The rules apply to each mesh axis.

S(i)→R implies an all-gather, S(i)→S(j) an all-to-all, P→R an all-reduce, and P→S a reduce-scatter.
R→S and R→P need no collective. Neither does S(i)→P(sum), because a shard padded with zeros is an
addend. Nested axes depend on one another:

* If an axis of a dim is added, removed or moved, the shards of all inner axes of that dim change.
  Those axes are gathered, innermost first, and sliced again, outermost first.
* Before a reduction is performed, earlier ones that do not commute with it are performed.

If changes wait for one another, as when two axes exchange their dims, the innermost mesh axis among
them is gathered. This module counts no bytes and does not search for a cheaper redistribution plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from adapters.reference.redistribution_plan import Move, MoveKind, RedistributionPlan
from cases.layout import are_equivalent, canonical, reduction_order
from cases.model import Layout, Mesh

Pending = frozenset[tuple[str, str]]


@lru_cache(maxsize=65536)
def implied_plan(
    mesh: Mesh, source: Layout, target: Layout, shape: tuple[int, ...]
) -> RedistributionPlan:
    """The moves from ``source`` to ``target``, including local slices.

    Axes of size 1 never communicate. Equivalent layouts need no moves.
    """
    return _plan(mesh, source, target, shape, _FIRST)


@lru_cache(maxsize=65536)
def implied_plan_by_size(
    mesh: Mesh, source: Layout, target: Layout, shape: tuple[int, ...]
) -> RedistributionPlan:
    """The `implied_plan` in another order: moves that shrink shards first, gathers last."""
    return _plan(mesh, source, target, shape, _SMALLER)


def _plan(
    mesh: Mesh, source: Layout, target: Layout, shape: tuple[int, ...], order: tuple[str, ...]
) -> RedistributionPlan:
    if are_equivalent(mesh, source, target, shape):
        return ()
    source, target = canonical(mesh, source), canonical(mesh, target)
    waiting = _find_changed_axes(mesh, source, target)
    now, plan = source, []
    while waiting:
        ready = _ready_moves(mesh, now, target, waiting)
        if order:
            ready = iter(sorted(ready, key=lambda move: order.index(move.kind)))
        move = next(ready, None) or _break_cycle(mesh, now, waiting)
        plan.append(move)
        now = move.after
        if _role_of(now, move.axes[0]) == _role_of(target, move.axes[0]):
            waiting.remove(move.axes[0])
    return tuple(plan)


# The order of moves that are ready: mesh order, or by kind.
_FIRST: tuple[str, ...] = ()
_SMALLER = ("local", "reduce-scatter", "all-to-all", "all-reduce", "all-gather")


def _role_of(layout: Layout, axis: str) -> tuple[str, ...] | int | None:
    """The dim that an axis shards, its pending reduction, or None."""
    for dim, axes in enumerate(layout.dims):
        if axis in axes:
            return dim
    for name, op in layout.partial:
        if name == axis:
            return ("partial", op)
    return None


def _find_changed_axes(mesh: Mesh, source: Layout, target: Layout) -> list[str]:
    """The axes that need a move, in mesh order."""
    kept: set[str] = set()
    for ours, theirs in zip(source.dims, target.dims, strict=True):
        for one, other in zip(ours, theirs):
            if one != other:
                break
            kept.add(one)
    kept |= {
        axis
        for axis, _ in _find_kept_pending(
            reduction_order(source.partial), reduction_order(target.partial)
        )
    }
    resting = {
        axis
        for axis in mesh.names
        if _role_of(source, axis) is None and _role_of(target, axis) is None
    }
    return [axis for axis in mesh.names if axis not in kept | resting]


def _find_kept_pending(ours: tuple[Pending, ...], theirs: tuple[Pending, ...]) -> Pending:
    wanted: Pending = frozenset().union(*theirs)
    kept: Pending = frozenset()
    order = []
    for group in reversed(ours):
        kept |= group & wanted
        order.append(group & wanted)
        if not group <= wanted:
            break
    # Reductions that stay pending must be due in the same order on both sides.
    others = [group & kept for group in reversed(theirs) if group & kept]
    return kept if [group for group in order if group] == others else frozenset()


def _is_ready(now: Layout, target: Layout, axis: str, dim: int) -> bool:
    """Whether an axis that is added to a dim now would be at its final place."""
    place = target.dims[dim].index(axis)
    return now.dims[dim] == target.dims[dim][:place]


def _ready_moves(mesh: Mesh, now: Layout, target: Layout, waiting: list[str]) -> Iterator[Move]:
    """The possible moves of waiting axes to their targets, in mesh order. Empty if all wait."""
    for axis in waiting:
        here, there = _role_of(now, axis), _role_of(target, axis)
        arrives = isinstance(there, int) and there != here and _is_ready(now, target, axis, there)
        if isinstance(here, int):
            if now.dims[here][-1] != axis:
                continue
            if there == ("partial", "sum"):
                yield _move("local", now, target, axis, there)
            elif here == there or not isinstance(there, int):
                yield _move("all-gather", now, target, axis)
            elif arrives:
                yield _move("all-to-all", now, target, axis, there)
        elif here is not None:
            if not any(name == axis for name, _ in reduction_order(now.partial)[0]):
                continue
            if not isinstance(there, int):
                yield _move("all-reduce", now, target, axis)
            elif arrives:
                yield _move("reduce-scatter", now, target, axis, there)
        elif arrives or not isinstance(there, int):
            yield _move("local", now, target, axis, there)


def _break_cycle(mesh: Mesh, now: Layout, waiting: list[str]) -> Move:
    for axis in reversed(waiting):
        here = _role_of(now, axis)
        if isinstance(here, int) and now.dims[here][-1] == axis:
            return _move("all-gather", now, now, axis)
    first = next(
        axis for axis in waiting if any(name == axis for name, _ in reduction_order(now.partial)[0])
    )
    return _move("all-reduce", now, now, first)


def _move(
    kind: MoveKind,
    now: Layout,
    target: Layout,
    axis: str,
    to: int | tuple[str, ...] | None = None,
) -> Move:
    dims = [tuple(name for name in axes if name != axis) for axes in now.dims]
    partial = tuple(pending for pending in now.partial if pending[0] != axis)
    if isinstance(to, int):
        dims[to] += (axis,)
    elif to is not None:
        partial = order_pending((*partial, (axis, to[1])), target.partial)
    return Move(kind, (axis,), now, Layout(tuple(dims), partial))


def order_pending(
    partial: tuple[tuple[str, str], ...], wanted: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    """The pending reductions in the order of ``wanted``. Reductions not in it come first."""
    return tuple(
        sorted(partial, key=lambda pending: wanted.index(pending) if pending in wanted else -1)
    )
