"""Are two arrays the same? And if not, where do they first differ?

Bit for bit, or within a tolerance that is stated with its reason; never looser.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from adapters.reference.evaluate import (
    UndefinedValue,
    Value,
    global_array,
    meaning,
    slopes_of_sides,
)
from adapters.reference.gradient import ERROR, is_kink
from cases.arrays import Array, pack, unpack
from cases.mesh_derivation import meshes_of_tensors
from cases.model import Case, Layout, Question, Step, Tolerance
from cases.ops import OPS, Op, tolerance
from cases.ops.op import widen
from suites.error_bounds import error_bounds, largest_size

EXACT = Tolerance()

# Whole numbers up to here are exact in the dtype, and so are sums of them that stay below.
_LARGEST_WHOLE = {"float16": 2**11, "bfloat16": 2**8, "float32": 2**24, "float64": 2**53}


def is_whole(array: NDArray[Any]) -> bool:
    """Whether every element is a whole number that its dtype holds with room to spare."""
    if array.dtype.kind in "biu":
        return True
    if array.dtype.name not in _LARGEST_WHOLE:
        return False
    wide = array.astype(np.float64)
    small = np.abs(wide) < _LARGEST_WHOLE[array.dtype.name]
    return bool(np.all(np.isfinite(wide) & (wide == np.trunc(wide)) & small))


def magnitudes(question: Question, values: Mapping[str, Value]) -> dict[str, Value]:
    """A bound on every number that a sum meets on its way: the program with nothing that cancels.

    Floats are taken in float64, inputs and addends by their absolute values, and subtraction as
    addition. Integers may be indices, so they keep the reference's ``values``. A step that has no
    value in this form has no bound.
    """
    found, on = {}, meshes_of_tensors(question)
    for given in question.inputs:
        # The addends of every pending reduction count as if they were all summed.
        layout = Layout(given.layout.dims, tuple((axis, "sum") for axis, _ in given.layout.partial))
        parts = None if given.per_device is None else tuple(map(_absolute, given.per_device))
        value = None if given.value is None else _absolute(given.value)
        grown = msgspec.structs.replace(given, value=value, per_device=parts, layout=layout)
        found[given.name] = global_array(grown, on[given.name])
    for step in question.steps:
        op = _GROWN.get(step.op, step.op)
        args = tuple(arg if isinstance(arg, str) else abs(arg) for arg in step.args)
        if values[step.result].dtype.kind in "biu":
            found[step.result] = values[step.result]
        elif all(name in found for name in step.operands):
            with suppress(UndefinedValue):
                grown_step = msgspec.structs.replace(step, op=op, args=args)
                found[step.result] = meaning(grown_step, found)
    return found


_GROWN = {"subtract": "add", "negative": "identity", "inplace_subtract": "inplace_add"}


def _absolute(array: Array) -> Array:
    values = unpack(array)
    return array if values.dtype.kind in "biu" else pack(np.abs(widen(values)).astype(np.float64))


def tolerances(
    case: Case, values: Mapping[str, Value], framework: str = ""
) -> dict[str, Tolerance]:
    """How closely each input and result must match, and which elements may have any value.

    ``values``: the reference's, by the meaning that ``framework`` has.
    """
    grown = magnitudes(case.question, values)
    # They cost more than the values themselves, and most cases are exact.
    bounds = cache(lambda: error_bounds(case, values, grown))
    allowed = {name: tolerance_for(case, name, values, grown, bounds) for name in values}
    for name, mask in undetermined(case.question, values, allowed, framework).items():
        why = (
            f"{int(mask.sum())} of {mask.size} elements are left out: a step or a comparison falls"
            " within the error of what it is taken of"
        )
        why = "; ".join(filter(None, (allowed[name].why, why)))
        allowed[name] = msgspec.structs.replace(allowed[name], why=why, free=pack(mask))
    return allowed


def tolerance_for(
    case: Case,
    name: str,
    values: Mapping[str, Value],
    grown: Mapping[str, Value],
    bounds: Callable[[], Mapping[str, NDArray[np.float64]]],
) -> Tolerance:
    """How closely ``name`` must match: bit for bit where it can be, else within roundings.

    Bit for bit if data were only moved, or if everything on the way is a whole number and stays
    one. Otherwise within the roundings of all ops on the way, of the element and of the largest
    element of the result, and the `error_bounds` beyond them. ``values``: the reference's global
    values by name. ``grown``: their `magnitudes`. ``bounds``: gives the error bounds of all
    elements.
    """
    steps = {step.result: step for step in case.question.steps}
    waiting, line = [name], dict[str, None]()
    while waiting:
        this = waiting.pop()
        line[this] = None
        if this in steps:
            waiting += steps[this].operands
    ops = {this: OPS[steps[this].op] for this in line if this in steps}
    owed = any(given.layout.partial for given in case.question.inputs if given.name in line)
    if all(op.moves for op in ops.values()) and not owed:
        return EXACT
    if all(op.whole for op in ops.values()) and all(is_whole(values[this]) for this in line):
        room = min(_LARGEST_WHOLE.get(values[this].dtype.name, 2**53) for this in line)
        if all(
            values[this].dtype.kind in "biu" or (this in grown and (grown[this] < room).all())
            for this in line
        ):
            return EXACT
    if case.expectation.tolerance is not None:
        return case.expectation.tolerance
    made = [(op, values[this].dtype.name) for this, op in ops.items()]
    return _allowed(
        made, values[name], bounds()[name], max(largest_size(values[this]) for this in line)
    )


def _allowed(
    made: Sequence[tuple[Op, str]], value: Value, bound: NDArray[np.float64], largest: float
) -> Tolerance:
    """The roundings of ops together, absolute ones from the largest element of ``value``.

    ``made``: each op and the dtype of its result, which may be narrower than that of ``value``.
    ``bound``: how far each element may be off. It adds what cancellation does to small elements, up
    to the roundings of the ``largest`` value met on the way.
    """
    dtype = value.dtype.name
    inexact = [one for one in made if not one[0].moves] or list(made) or [(OPS["sum"], dtype)]
    parts = [
        max(tolerance(op, dtype), tolerance(op, own) if tolerance(op, dtype).rtol else EXACT,
            key=lambda part: part.rtol)
        for op, own in inexact
    ]  # fmt: skip
    rtol = sum(part.rtol for part in parts)
    why = "; ".join(dict.fromkeys(part.why for part in parts))
    if any(op.name == "grad" for op, _ in made) and rtol < ERROR:
        rtol, why = ERROR, "differences are no closer to the derivative"
    size = np.abs(widen(value)).astype(np.float64)
    beyond = float(np.max(bound - rtol * np.where(np.isfinite(size), size, 0), initial=0))
    once = max((part.rtol / op.roundings for part, (op, _) in zip(parts, inexact)), default=0.0)
    return Tolerance(
        rtol, max(min(beyond, rtol * max(1.0, largest)), once * largest_size(value)), why
    )


# How values are moved within their errors: all down or up, to the nearest whole number, to the
# number they are compared with, neighbours and operands in opposite directions, and up or down at
# random.
_WAYS = ("down", "up", "whole", "met", "even", "odd", "drawn", "again", "once more", "last")


def undetermined(
    question: Question,
    values: Mapping[str, Value],
    allowed: Mapping[str, Tolerance],
    framework: str = "",
) -> dict[str, NDArray[np.bool_]]:
    """The results with elements whose right value is not determined, by name.

    An op that jumps (a floor, a comparison, the place of a maximum) is done again on operands that
    are moved within their errors, and so is all that follows from it. The question does not
    determine an element that comes out differently in any of several ways.
    """
    found: dict[str, NDArray[np.bool_]] = {}
    kinks = _kinks(question, values)
    if not kinks and not any(_steps_on(step, values, allowed) for step in question.steps):
        return found
    for way in _WAYS:
        moved, lost = dict(values), set[str]()
        for step in question.steps:
            if step.result in kinks:
                left, right = kinks[step.result]
                side = left if way == "down" else right
                moved[step.result] = side.astype(values[step.result].dtype)
                found[step.result] = is_kink(left, right)
            names = step.operands
            taken = (
                _perturb_operands(step, moved, allowed, way)
                if _steps_on(step, moved, allowed)
                else moved
            )
            if step.op == "grad" or all(taken[name] is values[name] for name in names):
                continue
            try:
                made = meaning(step, taken, framework)
            except UndefinedValue:
                lost.add(step.result)
                made = values[step.result]
            if lost & {*names, step.result} or made.shape != values[step.result].shape:
                lost.add(step.result)
                mask = np.ones(values[step.result].shape, np.bool_)
            else:
                mask = _differing_elements(values[step.result], made, _twice(allowed, step))
                if mask.any():
                    # Where a remainder is off because its operand is, nothing has jumped.
                    moved[step.result] = np.where(mask, made, values[step.result])
            if mask.any():
                found[step.result] = found.get(step.result, np.zeros(mask.shape, np.bool_)) | mask
    return found


def _kinks(question: Question, values: Mapping[str, Value]) -> dict[str, tuple[Value, Value]]:
    """By gradient, the slopes on both sides, for those that have a kink somewhere.

    Any slope between the two is right there, and frameworks choose.
    """
    found = {}
    for step in question.steps:
        if step.op == "grad":
            left, right = slopes_of_sides(question, dict(values), step)
            if is_kink(left, right).any():
                found[step.result] = left, right
    return found


def _steps_on(
    step: Step, values: Mapping[str, Value], allowed: Mapping[str, Tolerance]
) -> list[str]:
    """The operands at which a step jumps, and that need not be exact."""
    if not OPS[step.op].jumps or (step.op == "astype" and values[step.result].dtype.kind in "fcV"):
        return []
    return [
        arg
        for arg in step.operands
        if values[arg].dtype.kind not in "biuc" and (allowed[arg].rtol or allowed[arg].atol)
    ]


def _perturb_operands(
    step: Step, values: Mapping[str, Value], allowed: Mapping[str, Tolerance], way: str
) -> dict[str, Value]:
    """``values`` with the operands at which a step jumps moved within their errors."""
    made, signs = dict(values), np.random.default_rng(_WAYS.index(way))
    for place, name in enumerate(_steps_on(step, values, allowed), way == "odd"):
        value = np.asarray(widen(values[name]))
        error = allowed[name].atol + allowed[name].rtol * np.abs(value)
        error = np.where(np.isfinite(value), error, 0)
        if way in ("whole", "met"):
            others = [arg for arg in step.args if arg != name] if way == "met" else []
            other = values[others[0]] if others and isinstance(others[0], str) else (
                others[0] if others else np.rint(value)
            )  # fmt: skip
            if np.broadcast_shapes(value.shape, np.shape(other)) != value.shape:
                continue
            # Equal infinities have no difference to measure.
            with np.errstate(invalid="ignore"):
                near = np.abs(value - other) <= 2 * error
            to = np.where(near, other, value)
        else:
            drawn = signs.choice((-1, 1), value.shape)
            if way in ("even", "odd"):
                drawn = 1 - 2 * ((np.arange(value.size).reshape(value.shape) + place) % 2)
            to = value + error * {"down": -1, "up": 1}.get(way, drawn)
        made[name] = to.astype(values[name].dtype)
    return made


def _twice(allowed: Mapping[str, Tolerance], step: Step) -> Tolerance:
    """The limit beyond which a result has jumped, and has not just moved with its operands."""
    met = [allowed[name] for name in (step.result, *step.operands)]
    return Tolerance(2 * max(one.rtol for one in met), 2 * max(one.atol for one in met))


def _differing_elements(wanted: Value, got: Value, allowed: Tolerance) -> NDArray[np.bool_]:
    """Where two arrays of one shape differ by more than is allowed; NaN equals NaN."""
    if wanted.dtype.kind in "biu":
        return np.asarray(wanted != got)
    wider = np.complex128 if wanted.dtype.kind == "c" else np.float64
    a, b = wanted.astype(wider), got.astype(wider)
    # Equal infinities have no difference to measure.
    with np.errstate(invalid="ignore"):
        close = np.abs(b - a) <= allowed.atol + allowed.rtol * np.abs(a)
    return np.asarray(~(close | (a == b) | (np.isnan(a) & np.isnan(b))))


def tolerance_of_shard(allowed: Tolerance, spans: tuple[tuple[int, int], ...]) -> Tolerance:
    """The tolerance of a shard that holds these index ranges of the whole."""
    if allowed.free is None:
        return allowed
    mask = unpack(allowed.free)[tuple(slice(*span) for span in spans)]
    return msgspec.structs.replace(allowed, free=pack(mask))


def difference(wanted: Array, got: Array, allowed: Tolerance) -> str | None:
    """Where and how ``got`` first differs from ``wanted``; None if it does not.

    NaN equals NaN. Dtype and shape come before values. Elements that may have any value do not
    count.
    """
    if got.shape != wanted.shape:
        return f"shape {list(got.shape)}, wanted {list(wanted.shape)}"
    if got.dtype != wanted.dtype:
        return f"dtype {got.dtype}, wanted {wanted.dtype}"
    if got.data == wanted.data:
        return None
    one, other = unpack(wanted), unpack(got)
    bad = _differing_elements(one, other, allowed)
    if allowed.free is not None:
        free = unpack(allowed.free)
        # Which elements of the whole a part holds is not known here: see `tolerance_of_shard`.
        bad = bad & ~(free if free.shape == bad.shape else free.any())
    if not bad.any():
        return None
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    off = f"{int(bad.sum())} of {bad.size} elements differ, first at {list(index)}: "
    return f"{off}wanted {one[index]}, got {other[index]}"


def format_array(array: Array, most: int = 32) -> str:
    """The elements on one line, shortened in the middle where there are more than ``most``."""
    values = unpack(array)
    if values.size == 0:
        return f"[] {list(array.shape)}"
    if values.dtype.kind not in "biuc":
        values = values.astype(np.float64)
    text: str = np.array2string(
        values,
        separator=" ",
        threshold=most,
        edgeitems=2,
        max_line_width=10**6,
        formatter={"float_kind": lambda x: f"{x:.9g}"},
    )
    return " ".join(text.replace("\n", " ").split())
