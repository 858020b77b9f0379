"""What is plain about a case before anything runs? Facts by which a ledger names cases.

Read off the tensors whose layout the question states: its inputs, and results asked for in one.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from cases.grids import homes
from cases.layout import groups, is_even, normal
from cases.model import Case, Layout, Mesh
from cases.ops import OPS
from cases.program import shapes

Where = Literal["input", "result", "no"]


class Facts(msgspec.Struct, frozen=True):
    """The facts of one case.

    ``ascending``: along every axis that splits something, groups list their devices in
    ascending order. ``uneven``: something is split into unequal shards. ``indivisible``: where,
    first, a size is no multiple of the devices that it is split over. ``empty``: something has
    no elements. ``newly_partial``: a result is asked to owe a reduction that its operand does
    not. ``pending``: the reductions that something owes, or has to by the case's own word.
    ``several_meshes``: not everything lies on one mesh. ``random``: an op draws random numbers.
    """

    ascending: bool
    uneven: bool
    indivisible: Where
    empty: bool
    newly_partial: bool
    swaps_partial: bool
    pending: frozenset[str]
    several_meshes: bool
    random: bool


def facts(case: Case) -> Facts:
    """The facts of a case."""
    question = case.question
    meshes = homes(question)
    layouts: dict[str, Layout] = {one.name: one.layout for one in question.inputs}
    typed = shapes(question)
    newly = swaps = False
    for step in question.steps:
        first = next((arg for arg in step.args if isinstance(arg, str)), None)
        if step.to is not None:
            layouts[step.result] = step.to
            alone = first and len(step.args) == 1 and meshes[first] == meshes[step.result]
            before = layouts.get(first) if first and alone else None
            if before is not None:
                newly |= not set(step.to.partial) <= set(before.partial)
                swaps |= _swaps(meshes[step.result], before, step.to)
    tensors = [(meshes[name], layout, typed[name].shape) for name, layout in layouts.items()]
    stated = case.expectation.layouts.values()
    inputs = len(question.inputs)
    where: Where = "no"
    if any(_is_indivisible(*tensor) for tensor in tensors):
        where = "result"
    if any(_is_indivisible(*tensor) for tensor in tensors[:inputs]):
        where = "input"
    return Facts(
        ascending=all(_is_ascending(mesh, layout) for mesh, layout, _ in tensors),
        uneven=any(one.irregular for one in question.inputs)
        or not all(is_even(*tensor) for tensor in tensors),
        indivisible=where,
        empty=any(0 in shape for _, _, shape in tensors),
        newly_partial=newly,
        swaps_partial=swaps,
        pending=frozenset(
            op for layout in (*layouts.values(), *stated) for _, op in layout.partial
        ),
        several_meshes=any(mesh != tensors[0][0] for mesh, _, _ in tensors),
        random=any(OPS[step.op].own for step in question.steps),
    )


def _is_indivisible(mesh: Mesh, layout: Layout, shape: tuple[int, ...]) -> bool:
    return any(
        size % math.prod(mesh[axis] for axis in axes)
        for size, axes in zip(shape, layout.dims, strict=True)
    )


def _is_ascending(mesh: Mesh, layout: Layout) -> bool:
    return all(
        [mesh.devices[p] for p in group] == sorted(mesh.devices[p] for p in group)
        for axes in layout.dims
        for axis in axes
        for group in groups(mesh, (axis,))
    )


def _swaps(mesh: Mesh, before: Layout, after: Layout) -> bool:
    ours, theirs = (set(normal(mesh, one).partial) for one in (before, after))
    return bool(ours - theirs) and bool(theirs - ours)
