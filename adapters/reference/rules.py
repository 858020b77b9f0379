"""Which layout does an op give, when nothing needs to move? And what does another result imply?

A rule is a statement about labels: every dim of an operand carries one, as in an einsum. An
axis that splits a label splits it in every operand that has it and in the result; where the
label vanishes, a reduction is owed over that axis. Where no rule is clear, it says None
rather than guess: then nothing is implied.
"""

from __future__ import annotations

import itertools
from functools import lru_cache

from adapters.reference.cheapest import every_layout
from adapters.reference.implied import implied
from adapters.reference.plan import Plan, collectives, cost
from cases.layout import is_even, normal, ranges, same, used
from cases.model import Layout, Mesh, Step
from cases.ops import OPS, Op
from cases.ops.row import Labels

Shape = tuple[int, ...]


def labels(step: Step, shapes: tuple[Shape, ...]) -> Labels | None:
    """The labels of a step's tensor operands and of its result; None if the op has no rule."""
    rule = OPS[step.op].labels
    return None if rule is None else rule(shapes, step.params)


def reduces(op: Op, step: Step) -> str:
    """The reduction that an op is over the labels that vanish."""
    if op.reduces == "by reduction":
        return "avg" if step.params.get("reduction", "mean") == "mean" else "sum"
    return op.reduces


def propagate(
    mesh: Mesh, step: Step, shapes: tuple[Shape, ...], layouts: tuple[Layout, ...]
) -> Layout | None:
    """The layout of a step's result if every device works on the shards that it has.

    ``shapes`` and ``layouts`` are those of the step's tensor operands, in order. None where no
    rule is clear: operands split differently, a reduction that the op does not pass through.
    """
    named = labels(step, shapes)
    if named is None:
        return None
    operands, result = named
    op = OPS[step.op]
    layouts = tuple(normal(mesh, layout) for layout in layouts)
    order: dict[str, tuple[str, ...]] = {}
    for names, layout in zip(operands, layouts, strict=True):
        for name, axes in zip(names, layout.dims, strict=True):
            if (not name and axes) or order.setdefault(name, axes) != axes:
                return None
    split = [axis for axes in order.values() for axis in axes]
    if len(set(split)) < len(split):
        return None
    owed = _passed(op, step, layouts)
    if owed is None or any(axis in split for axis, _ in owed):
        return None
    paid = [
        (axis, reduces(op, step))
        for name, axes in order.items()
        if name not in result
        for axis in axes
    ]
    if paid and not (reduces(op, step) and _fit(mesh, reduces(op, step), shapes, layouts)):
        return None
    partial = (*owed, *paid)
    if (
        len({what for _, what in partial} - {"sum", "avg"})
        + (any(what in ("sum", "avg") for _, what in partial))
        > 1
    ):
        return None  # which of the reductions is due first is the framework's to say
    return Layout(
        tuple(order.get(name, ()) for name in result),
        tuple(sorted(partial, key=lambda pending: mesh.names.index(pending[0]))),
    )


def _passed(op: Op, step: Step, layouts: tuple[Layout, ...]) -> tuple[tuple[str, str], ...] | None:
    """The operands' pending reductions, where the op may be done before them."""
    owing = [index for index, layout in enumerate(layouts) if layout.partial]
    if not owing:
        return ()
    pending = layouts[owing[0]].partial
    tensors = [arg for arg in step.args if isinstance(arg, str)]
    alike = all(set(layout.partial) == set(pending) for layout in layouts)
    if alike and len(tensors) == len(step.args) and {what for _, what in pending} <= op.linear:
        return pending
    places = [index for index, arg in enumerate(step.args) if isinstance(arg, str)]
    if (
        len(owing) == 1
        # What may be added to it, a bias, is added once.
        and len(step.args) == len(op.args)
        and places[owing[0]] in op.each
        and {what for _, what in pending} <= {"sum", "avg"}
        and not any(axis in used(other) for axis, _ in pending
                    for index, other in enumerate(layouts) if index != owing[0])
    ):  # fmt: skip
        return pending
    return None


def _fit(mesh: Mesh, reduces: str, shapes: tuple[Shape, ...], layouts: tuple[Layout, ...]) -> bool:
    """Whether local reductions may be combined: equal shards for a mean, none empty for max."""
    if reduces == "avg":
        return all(map(is_even, itertools.repeat(mesh), layouts, shapes))
    if reduces in ("max", "min"):
        return all(
            stop > start
            for layout, shape in zip(layouts, shapes, strict=True)
            for held in ranges(mesh, layout, shape)
            for start, stop in held
        )
    return True


@lru_cache(maxsize=4096)
def _ways(
    mesh: Mesh, source: Layout, shape: Shape, itemsize: int, ops: tuple[str, ...]
) -> tuple[tuple[tuple[int, int], Layout, Plan], ...]:
    """Every layout that an operand could be moved to first, cheapest first, with the move.

    It may go on owing any of what it owes, and come to owe ``ops``.
    """
    pending = normal(mesh, source).partial
    wanted = dict.fromkeys(every_layout(mesh, len(shape), ops))
    for layout in every_layout(mesh, len(shape)):
        for count in range(len(pending) + 1):
            for kept in itertools.combinations(pending, count):
                if not any(axis in used(layout) for axis, _ in kept):
                    wanted[Layout(layout.dims, kept)] = None
    ways = []
    for number, layout in enumerate(wanted):
        plan = implied(mesh, source, layout, shape)
        price = sum(cost(mesh, move, shape) for move in plan) * itemsize
        ways.append(((price, len(collectives(plan))), number, layout, plan))
    ways.sort(key=lambda way: way[:2])
    return tuple((price, layout, plan) for price, _, layout, plan in ways)


def implied_by(
    mesh: Mesh,
    step: Step,
    shapes: tuple[Shape, ...],
    layouts: tuple[Layout, ...],
    result: tuple[Shape, Layout],
    itemsizes: tuple[int, ...],
) -> tuple[tuple[Plan, Shape, int], ...] | None:
    """What a step implies, given the layout that its result was reported to have.

    The cheapest relayout of the operands, and of what the rule then gives, that ends in that
    layout: a reduction paid at once is paid on the result. Plans come with the shape and item
    size of the tensor that they move: the operands in order, then the result. None where the
    rule gives nothing however the operands are laid out.

    ``itemsizes``: bytes per element of the operands in order, then of the result.
    """
    shape, reported = result
    best: tuple[tuple[int, int], tuple[tuple[Plan, Shape, int], ...]] | None = None
    # Where an op passes on what all its operands owe, one that owes nothing may come to.
    owed = {op for layout in layouts for _, op in layout.partial} & OPS[step.op].linear
    ops = tuple(sorted(owed)) if len(layouts) > 1 else ()
    choices = [
        _ways(mesh, layout, own, size, ops) for layout, own, size in zip(layouts, shapes, itemsizes)
    ]
    for ways in _by_price(choices):
        price = sum(way[0][0] for way in ways), sum(way[0][1] for way in ways)
        if best is not None and price >= best[0]:
            break
        given = propagate(mesh, step, shapes, tuple(way[1] for way in ways))
        if given is None:
            continue
        last: Plan = ()
        if not same(mesh, given, reported, shape):
            last = implied(mesh, given, reported, shape)
            more = sum(cost(mesh, move, shape) for move in last) * itemsizes[-1]
            price = price[0] + more, price[1] + len(collectives(last))
        if best is None or price < best[0]:
            plans = [(way[2], own, size) for way, own, size in zip(ways, shapes, itemsizes)]
            best = price, (*plans, (last, shape, itemsizes[-1]))
    return None if best is None else best[1]


def _by_price(
    choices: list[tuple[tuple[tuple[int, int], Layout, Plan], ...]],
) -> itertools.chain[tuple[tuple[tuple[int, int], Layout, Plan], ...]]:
    """All combinations of one way per operand, cheapest first."""
    combos = list(itertools.product(*choices))
    combos.sort(key=lambda ways: (sum(w[0][0] for w in ways), sum(w[0][1] for w in ways)))
    return itertools.chain(combos)
