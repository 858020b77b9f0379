"""How far may a right result be off? A bound for each element, carried from step to step.

A step adds the roundings of its own op. It passes on the errors of its operands as far as they
change its result: the step is done again on operands that are moved within their errors. So a large
number that a later step makes irrelevant, such as the -1e9 of an attention mask, allows nothing.
Does not know what a framework answered.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from adapters.reference.evaluate import UndefinedValue, Value, meaning
from adapters.reference.gradient import ERROR
from cases.model import Case, Step
from cases.ops import OPS, tolerance
from cases.ops.op import widen
from suites.tensors import upstream

Bound = NDArray[np.float64]

# How operands are moved within their errors: all up, all down, and by two random patterns of signs.
_WAYS = ("up", "down", "drawn", "drawn again")
# The worst pattern of signs may do this much more than those that are tried.
_SAFETY = 2.0
# Sums of products cancel. Their roundings are those of the absolute products.
_SUMMING = ("reduction", "contraction", "convolution", "attention", "ordering", "fft", "linalg")


def error_bounds(
    case: Case, values: Mapping[str, Value], magnitudes: Mapping[str, Value]
) -> dict[str, Bound]:
    """For each input and result, the absolute error that each element may have, in the same shape.

    ``values``: the reference's. ``magnitudes``: the same with nothing that cancels, where it is
    known.
    """
    found: dict[str, Bound] = {}
    # Infinities and NaN have no error: they are right or wrong.
    with np.errstate(all="ignore"):
        for given in case.question.inputs:
            value = values[given.name]
            found[given.name] = np.zeros(value.shape)
            if given.layout.partial and given.name in magnitudes and value.dtype.kind not in "biu":
                rtol = tolerance(OPS["sum"], value.dtype.name).rtol
                found[given.name] = _finite(rtol * np.abs(widen(magnitudes[given.name])))
        for step in case.question.steps:
            found[step.result] = (
                _of_gradient(case, step, values)
                if step.op == "grad"
                else _of_step(step, values, found)
            )
    return found


def _of_step(step: Step, values: Mapping[str, Value], errors: Mapping[str, Bound]) -> Bound:
    """The roundings of the op itself, and its operands' errors as far as it passes them on."""
    op, value = OPS[step.op], values[step.result]
    rtol = 0.0 if op.moves else tolerance(op, value.dtype.name).rtol
    if value.dtype.kind in "biu":
        return np.zeros(value.shape)
    total = rtol * np.abs(widen(value)).astype(np.float64)
    names = step.operands
    real = [name for name in names if values[name].dtype.kind not in "biu"]
    if not rtol and not any(errors[name].any() for name in real):
        return np.zeros(value.shape)
    wide = {name: widen(values[name]) for name in names}
    base = _done(step, wide, value.shape)
    if base is None or not real:
        return _finite(total)
    if op.family in _SUMMING:
        grown = _done(step, wide | {name: np.abs(wide[name]) for name in real}, value.shape)
        if grown is not None:
            total = total + rtol * np.abs(grown)
    # An op that jumps turns a small error into a whole step. Such elements are left out elsewhere.
    # Operands are rounded once on the way into the op.
    if not op.jumps:
        once = rtol / op.roundings
        worst = np.zeros(value.shape)
        for way in _WAYS:
            moved = wide | {
                name: _moved(wide[name], errors[name] + once * np.abs(wide[name]), way, place)
                for place, name in enumerate(real)
            }
            again = _done(step, moved, value.shape)
            if again is not None:
                worst = np.maximum(worst, _finite(np.abs(again - base)))
        total = total + _SAFETY * worst
    return _finite(total)


def _of_gradient(case: Case, step: Step, values: Mapping[str, Value]) -> Bound:
    """From the roundings of every op on the way, and the largest of gradient, loss and inputs."""
    of, by = map(str, step.args)
    made = {one.result: OPS[one.op] for one in case.question.steps}
    on_the_way = upstream(case, of)
    dtype = values[step.result].dtype.name
    rtol = sum(tolerance(made[name], dtype).rtol for name in on_the_way if name in made)
    ends = (on_the_way - made.keys()) | {of, by, step.result}
    scale = max(1.0, *(largest_size(values[name]) for name in ends))
    return np.full(values[step.result].shape, max(ERROR, rtol) * scale)


def _done(step: Step, values: Mapping[str, Value], shape: tuple[int, ...]) -> Value | None:
    """The result of a step on these operands; None if it has none of this shape."""
    try:
        made = widen(meaning(step, dict(values)))
    except UndefinedValue:
        return None
    return made if made.shape == shape and made.dtype.kind not in "biu" else None


def _moved(value: Value, error: Bound, way: str, place: int) -> Value:
    signs: Bound | float = 1.0 if way == "up" else -1.0
    if way.startswith("drawn"):
        drawn = np.random.default_rng([place, len(way)])
        signs = drawn.choice((-1.0, 1.0), value.shape)
    return np.asarray(np.where(np.isfinite(value), value + signs * error, value))


def _finite(bound: Value) -> Bound:
    """A bound with 0 where it is not finite: there the value itself is NaN or infinite."""
    return np.nan_to_num(np.asarray(bound, np.float64), nan=0.0, posinf=0.0, neginf=0.0)


def largest_size(value: Value) -> float:
    """The largest absolute value among the finite elements; 0 if there are none."""
    size = np.abs(widen(value)).astype(np.float64)
    return float(np.max(size[np.isfinite(size)], initial=0))
