"""Which facts about a case are known before anything runs? A ledger selects cases by them.

They come from tensors with a stated layout: inputs, and results that are asked for in a layout.
Refuses to know answers.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from cases.layout import axis_groups, canonical, is_even
from cases.mesh_derivation import meshes_of_tensors
from cases.model import Case, Layout, Mesh, Step
from cases.ops import OPS
from cases.program import infer_types

SplitWhere = Literal["input", "result", "no"]


class Facts(msgspec.Struct, frozen=True):
    """The facts of one case.

    ``ascending``: along each axis that splits a tensor, devices are in ascending order, and so
    are those of a mesh from which others are derived. ``minor_first``: a minor mesh axis splits
    a dim before a major one. ``uneven``: a tensor has unequal shards. ``irregular``: an input has
    shards that break the chunk rule. ``indivisible``: where a size is first no multiple of its
    number of devices. ``empty``: a tensor has no elements. ``newly_partial``: a result is asked
    to have a pending reduction that its operand lacks; ``swaps_partial``: in place of another.
    ``pending``: all pending reductions. ``several_meshes``: the tensors lie on more than one mesh.
    ``ops``: the ops of the program. ``repeated``: one of them occurs twice. ``number``: one takes
    a number in place of a tensor. ``random``: one draws random numbers.
    """

    ascending: bool
    minor_first: bool
    uneven: bool
    irregular: bool
    indivisible: SplitWhere
    empty: bool
    newly_partial: bool
    swaps_partial: bool
    pending: frozenset[str]
    several_meshes: bool
    ops: frozenset[str]
    repeated: bool
    number: bool
    random: bool


def facts(case: Case) -> Facts:
    """The facts of a case."""
    question = case.question
    meshes = meshes_of_tensors(question)
    layouts: dict[str, Layout] = {one.name: one.layout for one in question.inputs}
    typed = infer_types(question)
    newly = swaps = False
    for step in question.steps:
        first = next(iter(step.operands), None)
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
    where: SplitWhere = "no"
    if any(_is_indivisible(*tensor) for tensor in tensors):
        where = "result"
    if any(_is_indivisible(*tensor) for tensor in tensors[:inputs]):
        where = "input"
    devices, ops = list(question.mesh.devices), [step.op for step in question.steps]
    return Facts(
        ascending=all(_is_ascending(mesh, layout) for mesh, layout, _ in tensors)
        and (not question.mesh_steps or devices == sorted(devices)),
        minor_first=any(_is_minor_first(mesh, layout) for mesh, layout, _ in tensors),
        uneven=any(one.irregular for one in question.inputs)
        or not all(is_even(*tensor) for tensor in tensors),
        irregular=any(one.irregular for one in question.inputs),
        indivisible=where,
        empty=any(0 in shape for _, _, shape in tensors),
        newly_partial=newly,
        swaps_partial=swaps,
        pending=frozenset(
            op for layout in (*layouts.values(), *stated) for _, op in layout.partial
        ),
        several_meshes=any(mesh != tensors[0][0] for mesh, _, _ in tensors),
        ops=frozenset(ops),
        repeated=len({*ops}) < len(ops),
        number=any(_has_number(step) for step in question.steps),
        random=any(OPS[op].own for op in ops),
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
        for group in axis_groups(mesh, (axis,))
    )


def _is_minor_first(mesh: Mesh, layout: Layout) -> bool:
    places = [[mesh.names.index(axis) for axis in axes] for axes in layout.dims]
    return any(one != sorted(one) for one in places)


def _has_number(step: Step) -> bool:
    # Some ops take the number as a keyword.
    return "value" in step.params or any(not isinstance(arg, str) for arg in step.args)


def _swaps(mesh: Mesh, before: Layout, after: Layout) -> bool:
    ours, theirs = (set(canonical(mesh, one).partial) for one in (before, after))
    return bool(ours - theirs) and bool(theirs - ours)
