"""Are two arrays the same? And if not, where do they first differ?

Bit for bit, or within a tolerance that somebody stated with its reason; never looser.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from adapters.reference.gradient import ERROR
from adapters.reference.values import meaning, whole
from cases.arrays import Array, pack, unpack
from cases.grids import homes
from cases.model import Case, Layout, Question, Tolerance
from cases.ops import OPS, Op, tolerance
from cases.ops.row import wide

EXACT = Tolerance()

# Whole numbers up to here are exact in the dtype, and so is any sum of them that stays below.
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


def magnitudes(question: Question) -> dict[str, NDArray[Any]]:
    """A bound on whatever a sum meets on its way: the program with nothing that cancels.

    Floats in float64, absolute inputs and addends, and subtraction as addition. Integers,
    which may be indices, keep their dtype.
    """
    found, on = {}, homes(question)
    for given in question.inputs:
        # The addends of what is owed count as if they were all summed.
        layout = Layout(given.layout.dims, tuple((axis, "sum") for axis, _ in given.layout.partial))
        parts = None if given.per_device is None else tuple(map(_absolute, given.per_device))
        value = None if given.value is None else _absolute(given.value)
        grown = msgspec.structs.replace(given, value=value, per_device=parts, layout=layout)
        found[given.name] = whole(grown, on[given.name])
    for step in question.steps:
        op = _GROWN.get(step.op, step.op)
        args = tuple(arg if isinstance(arg, str) else abs(arg) for arg in step.args)
        found[step.result] = meaning(msgspec.structs.replace(step, op=op, args=args), found)
    return found


_GROWN = {"subtract": "add", "negative": "identity", "inplace_subtract": "inplace_add"}


def _absolute(array: Array) -> Array:
    values = unpack(array)
    return array if values.dtype.kind in "biu" else pack(np.abs(wide(values)).astype(np.float64))


def tolerance_for(case: Case, name: str, values: dict[str, NDArray[Any]]) -> Tolerance:
    """How closely ``name`` must match: bit for bit where it can be, else as stated.

    Bit for bit if data were only moved, or if everything on the way is a whole number and
    stays one. Else the roundings of all ops on the way, of the element and of the largest that
    is met on it. ``values``: the reference's global values by name.
    """
    steps = {step.result: step for step in case.question.steps}
    waiting, line = [name], dict[str, None]()
    while waiting:
        this = waiting.pop()
        line[this] = None
        if this in steps:
            waiting += [arg for arg in steps[this].args if isinstance(arg, str)]
    ops = [OPS[steps[this].op] for this in line if this in steps]
    owed = any(given.layout.partial for given in case.question.inputs if given.name in line)
    if all(op.moves for op in ops) and not owed:
        return EXACT
    if all(op.whole for op in ops) and all(is_whole(values[this]) for this in line):
        bounds = magnitudes(case.question)
        room = min(_LARGEST_WHOLE.get(values[this].dtype.name, 2**53) for this in line)
        if all(values[this].dtype.kind in "biu" or (bounds[this] < room).all() for this in line):
            return EXACT
    if case.expectation.tolerance is not None:
        return case.expectation.tolerance
    return _allowed(ops, values[name].dtype.name, [values[this] for this in line])


def _allowed(ops: Sequence[Op], dtype: str, met: Sequence[NDArray[Any]]) -> Tolerance:
    """The roundings of ``ops`` together, absolute ones of the largest value ``met``."""
    inexact = [op for op in ops if not op.moves] or list(ops) or [OPS["sum"]]
    parts = [tolerance(op, dtype) for op in inexact]
    largest = 1.0
    for array in met:
        size = np.abs(wide(array))
        finite = size[np.isfinite(size)] if size.dtype.kind in "fc" else size
        largest = max(largest, float(np.max(finite, initial=0)))
    rtol = sum(part.rtol for part in parts)
    why = "; ".join(dict.fromkeys(part.why for part in parts))
    if any(op.name == "grad" for op in ops) and rtol < ERROR:
        rtol, why = ERROR, "differences are no closer to the derivative"
    return Tolerance(rtol, rtol * largest, why)


def difference(wanted: Array, got: Array, allowed: Tolerance) -> str | None:
    """Where and how ``got`` first differs from ``wanted``; None if it does not.

    NaN equals NaN. Dtype and shape come before values.
    """
    if got.shape != wanted.shape:
        return f"shape {list(got.shape)}, wanted {list(wanted.shape)}"
    if got.dtype != wanted.dtype:
        return f"dtype {got.dtype}, wanted {wanted.dtype}"
    if got.data == wanted.data:
        return None
    one, other = unpack(wanted), unpack(got)
    if one.dtype.kind in "biu":
        bad = one != other
    else:
        wide = np.complex128 if one.dtype.kind == "c" else np.float64
        a, b = one.astype(wide), other.astype(wide)
        # Equal infinities have no difference to measure.
        with np.errstate(invalid="ignore"):
            close = np.abs(b - a) <= allowed.atol + allowed.rtol * np.abs(a)
        bad = ~(close | (a == b) | (np.isnan(a) & np.isnan(b)))
    if not bad.any():
        return None
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    off = f"{int(bad.sum())} of {bad.size} elements differ, first at {list(index)}: "
    return f"{off}wanted {one[index]}, got {other[index]}"


def show(array: Array, most: int = 32) -> str:
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
