"""Which layout does an op propagate without communication, and what does another result imply?

A rule labels every dim of the operands and the result, as in an einsum. An axis that shards a label
must shard it in every operand that has it, and shards it in the result. If the result lacks the
label, it has a pending reduction over that axis. Without a clear rule, the answer is None. This
module does not know what a framework does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import lru_cache

from adapters.reference.cheapest_plan import all_layouts
from adapters.reference.implied_plan import implied_plan, implied_plan_by_size
from adapters.reference.redistribution_plan import RedistributionPlan, communicating_moves, cost
from cases.layout import are_equivalent, axes_of_layout, canonical, index_ranges, is_even
from cases.model import Layout, Mesh, Step
from cases.ops import OPS, Op
from cases.ops.op import NO_RULE, Label, Labels

Shape = tuple[int, ...]
Axes = tuple[str, ...]
Pending = tuple[tuple[str, str], ...]
# A redistribution of an operand before the op: cost, target layout and redistribution plan.
OperandMove = tuple[tuple[int, int], Layout, RedistributionPlan]


def dim_labels(step: Step, shapes: tuple[Shape, ...]) -> Labels | None:
    """The labels of a step's tensor operands and of its result. None if the op has no rule."""
    rule = OPS[step.op].labels
    return None if rule is None else rule(shapes, step.params)


def possible_reductions(op: Op, step: Step) -> tuple[str, ...]:
    """The reductions that an op may leave pending over labels that its result lacks."""
    if op.reduces == "by reduction":
        return ("avg",) if step.params.get("reduction", "mean") == "mean" else ("sum",)
    return (op.reduces,) if isinstance(op.reduces, str) else op.reduces


def passed_reductions(op: Op, step: Step) -> frozenset[str]:
    """The pending reductions that an op passes through if its arguments have the same ones."""
    return op.linear if isinstance(op.linear, frozenset) else op.linear(step.params)


def propagate(
    mesh: Mesh, step: Step, shapes: tuple[Shape, ...], layouts: tuple[Layout, ...]
) -> Layout | None:
    """The layout of a step's result if every device computes with its local shards only.

    ``shapes`` and ``layouts``: those of the step's tensor operands, in order. None without a clear
    rule: if operands are sharded differently, or the op does not pass a pending reduction through.
    If several kinds of reduction are possible, the first that the op names is pending.
    """
    return next(possible_layouts(mesh, step, shapes, layouts), None)


def possible_layouts(
    mesh: Mesh, step: Step, shapes: tuple[Shape, ...], layouts: tuple[Layout, ...]
) -> Iterator[Layout]:
    """The layouts of `propagate`, one for each possible pending reduction."""
    named = dim_labels(step, shapes)
    if named is None:
        return
    operands, result = named
    op = OPS[step.op]
    layouts = tuple(canonical(mesh, layout) for layout in layouts)
    order: dict[str, Axes] = {}
    for names, layout in zip(operands, layouts, strict=True):
        for label, axes in zip(names, layout.dims, strict=True):
            split = split_label(mesh, label, axes)
            if split is None or any(order.setdefault(one, had) != had for one, had in split):
                return
    used_up = [axis for axes in order.values() for axis in axes]
    if len(set(used_up)) < len(used_up):
        return
    dims = []
    for label in result:
        inner = [label] if isinstance(label, str) else [name for name, _ in label]
        axes = tuple(axis for name in inner for axis in order.get(name, ()))
        again = dict(split_label(mesh, label, axes) or ((None, ()),))
        if any(again.get(name, ()) != order.get(name, ()) for name in inner):
            return
        dims.append(axes)
    at = _operand_position(step, op.addend)
    others = [index for index in range(len(layouts)) if index != at]
    owed = _pass_pending(op, step, {index: layouts[index] for index in others})
    if owed is None or any(axis in used_up for axis, _ in owed):
        return
    kept = {name for label in result for name in _label_names(label)}
    vanish = [axis for name, axes in order.items() if name not in kept for axis in axes]
    for what in possible_reductions(op, step) if vanish else ("",):
        if vanish and not (what and _can_combine(mesh, what, shapes, layouts)):
            continue
        partial = tuple(
            sorted(
                (*owed, *((axis, what) for axis in vanish)),
                key=lambda pending: mesh.names.index(pending[0]),
            )
        )
        if at is not None and set(layouts[at].partial) != set(partial):
            continue  # an added operand must have the same pending reductions
        kinds = {"sum" if kind == "avg" else kind for _, kind in partial}
        if len(kinds) <= 1:  # the framework chooses the order of different reductions
            yield Layout(tuple(dims), partial)


def _label_names(label: Label) -> tuple[str, ...]:
    return (label,) if isinstance(label, str) else tuple(name for name, _ in label)


def split_label(mesh: Mesh, label: Label, axes: Axes) -> tuple[tuple[str, Axes], ...] | None:
    """The axes that shard each part of a merged dim. None if a part must not be sharded.

    Axes shard the major part until its size is 1, then the next part. If an axis does not divide a
    part, the chunks of the part must end where those of the dim end, and no axis may follow.
    """
    if isinstance(label, str):
        return None if axes and label in ("", NO_RULE) else ((label, axes),)
    found: dict[str, Axes] = {name: () for name, _ in label}
    place, left = 0, label[0][1]
    for count, axis in enumerate(axes):
        while left == 1 and place + 1 < len(label):
            place += 1
            left = label[place][1]
        name = label[place][0]
        inner = math.prod(size for _, size in label[place + 1 :])
        chunk = -(-left // mesh[axis])
        if name in ("", NO_RULE):
            return None
        uneven = left % mesh[axis] and inner > 1
        if uneven and (chunk * inner != -(-left * inner // mesh[axis]) or count + 1 < len(axes)):
            return None
        found[name] += (axis,)
        left = chunk
    return tuple(found.items())


def _operand_position(step: Step, arg: int | None) -> int | None:
    """The index of an argument among the tensor operands. None if it is not a tensor."""
    if arg is None or arg >= len(step.args) or not isinstance(step.args[arg], str):
        return None
    return sum(isinstance(one, str) for one in step.args[:arg])


def _pass_pending(op: Op, step: Step, layouts: dict[int, Layout]) -> Pending | None:
    """The pending reductions that the result inherits. None if the op must not precede them."""
    owing = [index for index, layout in layouts.items() if layout.partial]
    if not owing:
        return ()
    pending = layouts[owing[0]].partial
    among = op.together or tuple(range(len(step.args)))
    places = {_operand_position(step, arg) for arg in among if arg < len(step.args)}
    if (
        places <= layouts.keys()
        and {what for _, what in pending} <= passed_reductions(op, step)
        and all(
            set(layout.partial) == set(pending)
            if index in places
            else not layout.partial
            and not any(axis in axes_of_layout(layout) for axis, _ in pending)
            for index, layout in layouts.items()
        )
    ):
        return pending
    tensors = [place for place, arg in enumerate(step.args) if isinstance(arg, str)]
    # If factors have pending sums over different axes, each device has one addend of each factor.
    if all(
        tensors[index] in op.each
        and {what for _, what in layouts[index].partial} <= op.singly
        and not any(
            axis in axes_of_layout(other)
            for axis, _ in layouts[index].partial
            for beside, other in layouts.items()
            if beside != index
        )
        for index in owing
    ):
        return tuple(itertools.chain(*(layouts[index].partial for index in owing)))
    return None


def _can_combine(
    mesh: Mesh, reduces: str, shapes: tuple[Shape, ...], layouts: tuple[Layout, ...]
) -> bool:
    """Whether local reductions combine: a mean needs equal shards, max and min no empty shard."""
    if reduces == "avg":
        return all(map(is_even, itertools.repeat(mesh), layouts, shapes))
    if reduces in ("max", "min"):
        return all(
            stop > start
            for layout, shape in zip(layouts, shapes, strict=True)
            for ranges in index_ranges(mesh, layout, shape)
            for start, stop in ranges
        )
    return True


@lru_cache(maxsize=4096)
def _operand_moves(
    mesh: Mesh, source: Layout, shape: Shape, itemsize: int, ops: tuple[str, ...]
) -> tuple[OperandMove, ...]:
    """Every redistribution of an operand before the op, the cheapest first.

    The target may keep any pending reductions of the operand, and may have those in ``ops``.
    """
    pending = canonical(mesh, source).partial
    wanted = dict.fromkeys(all_layouts(mesh, len(shape), ops))
    for layout in all_layouts(mesh, len(shape)):
        for count in range(len(pending) + 1):
            for kept in itertools.combinations(pending, count):
                if not any(axis in axes_of_layout(layout) for axis, _ in kept):
                    wanted[Layout(layout.dims, kept)] = None
    ways = []
    for number, layout in enumerate(wanted):
        price, plan = _cheaper_move(mesh, source, layout, shape, itemsize)
        ways.append((price, number, layout, plan))
    ways.sort(key=lambda way: way[:2])
    return tuple((price, layout, plan) for price, _, layout, plan in ways)


def _cheaper_move(
    mesh: Mesh, source: Layout, target: Layout, shape: Shape, itemsize: int
) -> tuple[tuple[int, int], RedistributionPlan]:
    """The cost and the redistribution plan to move an operand or a result to another layout.

    It is the implied plan, or the same moves in another order if that needs fewer bytes. For
    example, a slice before a gather makes the gather cheaper.
    """
    plan = implied_plan(mesh, source, target, shape)
    if len(plan) > 1:
        plan = min(
            plan,
            implied_plan_by_size(mesh, source, target, shape),
            key=lambda p: _elements(mesh, p, shape),
        )
    return (_elements(mesh, plan, shape) * itemsize, len(communicating_moves(plan))), plan


def _elements(mesh: Mesh, plan: RedistributionPlan, shape: Shape) -> int:
    return sum(cost(mesh, move, shape) for move in plan)


def implied_by_op(
    mesh: Mesh,
    step: Step,
    shapes: tuple[Shape, ...],
    layouts: tuple[Layout, ...],
    result: tuple[Shape, Layout],
    itemsizes: tuple[int, ...],
) -> tuple[tuple[RedistributionPlan, Shape, int], ...] | None:
    """The redistribution plans that a step implies, if its result was reported with a layout.

    They are the cheapest way to redistribute the operands, propagate, and redistribute the result
    to that layout. Each plan has the shape and item size of its tensor: the operands in order, then
    the result. None if the rule gives no layout, or does not apply to operands with these layouts.

    ``itemsizes``: bytes per element of the operands in order, then of the result.
    """
    shape, reported = result
    op, named = OPS[step.op], dim_labels(step, shapes)
    if named is None or not _has_rule(mesh, op, named, layouts):
        return None
    best: tuple[tuple[int, int], tuple[tuple[RedistributionPlan, Shape, int], ...]] | None = None
    choices = []
    at = _operand_position(step, op.addend)
    owed = {what for layout in layouts for _, what in layout.partial}
    for index, (layout, operand_shape, size) in enumerate(zip(layouts, shapes, itemsizes)):
        # If an op passes on a reduction that all operands have, others may be moved to have it.
        ops = owed & passed_reductions(op, step) if len(layouts) > 1 else set()
        if index == at:
            ops = owed | set(possible_reductions(op, step))
        ways = _operand_moves(mesh, layout, operand_shape, size, tuple(sorted(ops)))
        choices.append([way for way in ways if _can_split(mesh, named[0][index], way[1])])
    tensors = step.operands
    for price, ways in _by_price(tensors, choices):
        if best is not None and price >= best[0]:
            break
        for made in possible_layouts(mesh, step, shapes, tuple(way[1] for way in ways)):
            more: tuple[int, int] = (0, 0)
            last: RedistributionPlan = ()
            if not are_equivalent(mesh, made, reported, shape):
                more, last = _cheaper_move(mesh, made, reported, shape, itemsizes[-1])
            total = price[0] + more[0], price[1] + more[1]
            if best is None or total < best[0]:
                is_first = _find_first_moves(tensors, ways)
                plans = [
                    (way[2] if first else (), operand_shape, size)
                    for way, operand_shape, size, first in zip(ways, shapes, itemsizes, is_first)
                ]
                best = total, (*plans, (last, shape, itemsizes[-1]))
    return None if best is None else best[1]


def _has_rule(mesh: Mesh, op: Op, named: Labels, layouts: tuple[Layout, ...]) -> bool:
    """Whether the rule of an op applies to operands with these layouts."""
    for names, layout in zip(named[0], (canonical(mesh, one) for one in layouts), strict=True):
        if any(what in op.unclear for _, what in layout.partial):
            return False
        for label, axes in zip(names, layout.dims, strict=True):
            if NO_RULE in _label_names(label) and split_label(mesh, label, axes) is None:
                return False
    return True


def _can_split(mesh: Mesh, names: tuple[Label, ...], layout: Layout) -> bool:
    """Whether an operand with these labels may have a layout."""
    dims = zip(names, canonical(mesh, layout).dims, strict=True)
    return all(split_label(mesh, label, axes) is not None for label, axes in dims)


def _find_first_moves(tensors: Axes, ways: tuple[OperandMove, ...]) -> tuple[bool, ...]:
    """Whether each operand needs a move. A repeated operand moves only once to the same layout."""
    if len(set(tensors)) == len(tensors):
        return (True,) * len(tensors)
    wanted = [(name, way[1]) for name, way in zip(tensors, ways, strict=True)]
    return tuple(one not in wanted[:count] for count, one in enumerate(wanted))


def _by_price(
    tensors: Axes, choices: list[list[OperandMove]]
) -> list[tuple[tuple[int, int], tuple[OperandMove, ...]]]:
    """All combinations of one move per operand with their total cost, the cheapest first."""
    combos = []
    for ways in itertools.product(*choices):
        prices = [way[0] for way, first in zip(ways, _find_first_moves(tensors, ways)) if first]
        combos.append(((sum(p[0] for p in prices), sum(p[1] for p in prices)), ways))
    combos.sort(key=lambda combo: combo[0])
    return combos
