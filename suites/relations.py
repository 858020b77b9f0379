"""How is a wrong value related to the right one? A few relations that tell faults apart.

Each is a statement about two arrays, and for some about the addends or operands of the case.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cases.arrays import Array, unpack
from cases.ledger import Relation
from cases.model import Tolerance
from cases.ops.op import widen

Value = NDArray[Any]

# Two factors are the same if roundings of bfloat16 can make the difference.
_CLOSE = 1e-2
_WHOLE = 1e-5


def relations(
    wanted: Array, got: Array, allowed: Tolerance, operands: Iterable[Array] = (),
    addends: Iterable[Array] = (),
) -> frozenset[Relation]:  # fmt: skip
    """All relations that hold between a wrong value and the right one.

    ``operands``: the global values of the operands of the step. ``addends``: what single devices
    hold of a pending reduction.
    """
    if wanted.shape != got.shape:
        return frozenset({"another shape"})
    right, ours = unpack(wanted), unpack(got)
    found: set[Relation] = set()
    off = ~_close(right, ours, allowed)
    found.add("all elements" if off.all() else "some elements")
    if right.dtype.kind in "fc" and np.isnan(ours[off].astype(complex)).all():
        found.add("NaN")
    if not np.any(ours[off]):
        found.add("zeros")
    if _factor(right, ours, allowed):
        found.add("times a number")
    if np.array_equal(np.sort(right, axis=None), np.sort(ours, axis=None)):
        found.add("elements permuted")
    if any(_equal(one, got) for one in operands):
        found.add("operand unchanged")
    elif _shift(right, ours):
        found.add("plus a number")
    if any(_equal(one, got) for one in addends):
        found.add("one addend")
    return frozenset(found)


def _close(right: Value, ours: Value, allowed: Tolerance) -> NDArray[np.bool_]:
    if right.dtype.kind in "biu":
        return np.asarray(right == ours)
    kind = np.complex128 if right.dtype.kind == "c" else np.float64
    a, b = right.astype(kind), ours.astype(kind)
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= allowed.atol + allowed.rtol * np.abs(a)
    return np.asarray(near | (a == b) | (np.isnan(a) & np.isnan(b)))


def _factor(right: Value, ours: Value, allowed: Tolerance) -> bool:
    """Whether everything is the same multiple, other than 1, of the right value."""
    if right.dtype.kind == "b":
        return False
    a, b = (np.asarray(widen(one)).astype(np.complex128) for one in (right, ours))
    # A number that may be 0 within its error shows no factor.
    there = np.abs(a) > allowed.atol
    if not there.any() or not np.isfinite(a).all() or not np.isfinite(b).all():
        return False
    ratios = b[there] / a[there]
    if np.unique(a[there]).size == 1:
        # Any number is a multiple of one number, so there only a whole factor or its inverse
        # counts.
        first = ratios[0].real
        whole = first if abs(first) >= 1 else 1 / first if first else 0.0
        if abs(whole - round(whole)) > _WHOLE * abs(whole):
            return False
    alike = np.abs(ratios - ratios[0]) <= _CLOSE * np.abs(ratios[0])
    # A value that is as near to the right one as this is no multiple of it.
    apart = abs(ratios[0] - 1) > _CLOSE and ratios[0] != 0
    room = allowed.atol * max(1.0, abs(ratios[0]))
    return bool(apart and alike.all() and np.all(np.abs(b[~there]) <= room))


def _shift(right: Value, ours: Value) -> bool:
    """Whether everything is the right value plus one number, other than 0."""
    if right.dtype.kind == "b":
        return False
    a, b = (np.asarray(widen(one)).astype(np.complex128) for one in (right, ours))
    if not a.size or not np.isfinite(a).all() or not np.isfinite(b).all():
        return False
    more = (b - a).ravel()
    # Any number is one number plus something, so there only a whole difference counts.
    if more.size == 1 and abs(more[0] - np.round(more[0])) > _WHOLE * abs(more[0]):
        return False
    return bool(more[0] != 0 and (np.abs(more - more[0]) <= _WHOLE * np.abs(more[0])).all())


def _equal(one: Array, got: Array) -> bool:
    return one.shape == got.shape and np.array_equal(unpack(one), unpack(got))
