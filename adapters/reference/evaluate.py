"""What is the right value? Ops run in NumPy on global arrays. Shards are slices of the results.

A layout never changes a value here. This module does not know what a framework computes.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.reference.gradient import gradient, one_sided
from adapters.reference.redistribution_plan import reduce_addends
from cases.arrays import unpack
from cases.layout import axis_groups, coordinates, index_ranges, reduction_order
from cases.mesh_derivation import meshes_of_tensors
from cases.model import Input, Layout, Mesh, Question, Step
from cases.ops import OPS
from cases.ops.op import FrameworkMeaning, widen

Value = NDArray[Any]


def global_array(given: Input, mesh: Mesh) -> Value:
    """The global array of an input on ``mesh``. The arrays of devices are reduced and joined."""
    if given.value is not None:
        return unpack(given.value)
    assert given.per_device is not None
    locals_ = [unpack(array) for array in given.per_device]
    return join_shards(mesh, given.layout, locals_, given.shape)


def join_shards(
    mesh: Mesh, layout: Layout, shards: list[Value], shape: tuple[int, ...], replica: int = 0
) -> Value:
    """The global array of the shards of a layout, one per mesh position.

    Irregular shards are concatenated in the order of their positions. The replica that contains
    mesh position ``replica`` is used. Pending reductions are performed in the order due.
    """
    reduced = list(shards)
    for group in reduction_order(layout.partial):
        for op in sorted({op for _, op in group}):
            axes = tuple(axis for axis in mesh.names if (axis, op) in group)
            before = list(reduced)
            for members in axis_groups(mesh, axes):
                total = reduce_addends([before[m] for m in members], op)
                for m in members:
                    reduced[m] = total
    axes = tuple(axis for order in layout.dims for axis in order)
    beside = coordinates(mesh)[replica]
    firsts = [
        p
        for p, where in enumerate(coordinates(mesh))
        if all(index == beside[axis] or axis in axes for axis, index in where.items())
    ]
    ranges = index_ranges(mesh, layout, shape)
    if all(reduced[p].shape == tuple(b - a for a, b in ranges[p]) for p in firsts):
        out = np.empty(shape, shards[0].dtype)
        for p in firsts:
            out[tuple(slice(a, b) for a, b in ranges[p])] = reduced[p]
        return out
    split = [dim for dim, order in enumerate(layout.dims) if order]
    if len(split) != 1:
        raise ValueError("irregular shards can be laid end to end along one dim only")
    return np.concatenate([reduced[p] for p in firsts], axis=split[0])


def cut_shards(mesh: Mesh, layout: Layout, value: Value) -> list[Value]:
    """The local shard at each mesh position.

    Raises:
        ValueError: the layout is partial. The value does not determine the addends.
    """
    if layout.partial:
        raise ValueError("a partial layout does not determine its addends")
    return [
        value[tuple(slice(start, stop) for start, stop in ranges)]
        for ranges in index_ranges(mesh, layout, value.shape)
    ]


class UndefinedValue(ValueError):
    """A step is undefined for its operands. ``step`` is the name of its result."""

    def __init__(self, step: str, why: str):
        super().__init__(why)
        self.step = step


def meaning(step: Step, values: dict[str, Value], framework: str = "") -> Value:
    """The value of a step's result for the values of its operands.

    ``framework``: use the meaning that this framework defines, if it differs.

    Raises:
        UndefinedValue: for example, an index is out of range or a matrix has no inverse.
    """
    args = step.arguments(values)
    means = OPS[step.op].meaning
    if (special := _framework_meaning(step, args, framework)) is not None:
        means = special.meaning
    # Infinities and NaN are valid values.
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            return np.asarray(means(*args, **step.params))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise UndefinedValue(step.result, str(error)) from None


def _framework_meaning(
    step: Step, args: tuple[Any, ...], framework: str
) -> FrameworkMeaning | None:
    """The meaning of a step in a framework. None if the row of the op applies."""
    special = OPS[step.op].apart.get(framework)
    return special if special is not None and special.differs(args, step.params) else None


# The judgement of a case needs its values several times, and gradients are slow.
_kept: deque[tuple[Question, str, dict[str, Value]]] = deque(maxlen=8)


def evaluate(question: Question, framework: str = "") -> dict[str, Value]:
    """The global value of every input and result. Callers must not write to the arrays.

    ``framework``: use the meanings that this framework defines. Values that do not differ are the
    same array objects as without it.

    Raises:
        UndefinedValue: a step has no value.
    """
    for kept, name, values in _kept:
        if kept is question and name == framework:
            return dict(values)
    base = evaluate(question) if framework else None
    values = _evaluate(question, framework, base)
    _kept.append((question, framework, values))
    return dict(values)


def _evaluate(
    question: Question, framework: str, base: dict[str, Value] | None
) -> dict[str, Value]:
    """Evaluate a question. ``base``: the values without the meanings of ``framework``."""
    if base is None:
        with np.errstate(all="ignore"):
            on = meshes_of_tensors(question)
            values = {given.name: global_array(given, on[given.name]) for given in question.inputs}
    else:
        values = {given.name: base[given.name] for given in question.inputs}
    for step in question.steps:
        if base is not None and _is_unchanged(question, step, values, base, framework):
            values[step.result] = base[step.result]
        elif step.op == "grad":
            of, by = map(str, step.args)
            slope = gradient(_as_function(question, values, of, by), values[by])
            values[step.result] = slope.astype(values[by].dtype)
        else:
            values[step.result] = meaning(step, values, framework)
    return values


def slopes_of_sides(
    question: Question, values: dict[str, Value], step: Step
) -> tuple[Value, Value]:
    """The left and the right slope for a ``grad`` step whose function has a kink."""
    of, by = map(str, step.args)
    return one_sided(_as_function(question, values, of, by), values[by])


def _is_unchanged(
    question: Question, step: Step, values: dict[str, Value], base: dict[str, Value], framework: str
) -> bool:
    """Whether the value of a step in a framework is the one in ``base``."""
    names = [arg for arg in step.args if isinstance(arg, str)]
    if step.op == "grad":
        names += [before.result for before in steps_between(question, *names)]
    args = step.arguments(values)
    same = all(values[name] is base[name] for name in names)
    return same and _framework_meaning(step, args, framework) is None


def _as_function(
    question: Question, values: dict[str, Value], name: str, by: str
) -> Callable[[Value], Value]:
    """The result ``name`` as a function of the input ``by``. Real numbers are float64."""
    steps = steps_between(question, name, by)
    fixed: dict[str, Value] = {one: widen(value) for one, value in values.items()}

    def function(moved: Value) -> Value:
        found = {**fixed, by: moved}
        for step in steps:
            found[step.result] = meaning(step, found)
        return found[name]

    return function


def steps_between(question: Question, name: str, by: str) -> list[Step]:
    """The steps between ``by`` and ``name``, in program order."""
    after, wanted = {by}, {name}
    for step in question.steps:
        if after & set(step.args):
            after.add(step.result)
    for step in reversed(question.steps):
        if step.result in wanted:
            wanted |= {*step.operands}
    return [step for step in question.steps if step.result in after & wanted]
