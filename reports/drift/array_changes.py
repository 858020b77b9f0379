"""Did a value change, or only its last bits? By the tolerance of its case.

Two results that are each within the tolerance of the truth may differ by twice the tolerance.
Knows arrays and tolerances, neither releases nor layouts.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from adapters.answer import Observed
from cases.arrays import Array, unpack
from cases.model import Case, Mesh, Tolerance
from reports.drift.model import CorrectnessChange
from suites.array_difference import EXACT, difference, format_array
from suites.aspects import double_tolerance
from suites.truth import TRAINING_TOLERANCE, Truth
from suites.wording import format_position

# Of larger arrays only the first element that differs is shown.
_MOST = 16

Arrays = Sequence[Array | None]


class ArrayDifference(msgspec.Struct, frozen=True):
    """Two arrays that differ in some bit. ``far``: by more than the tolerance."""

    before: str
    after: str
    far: bool


def allowed_between_releases(case: Case, right: Truth, name: str) -> Tolerance:
    """How far an input or result may differ between two releases and still be the same."""
    default = EXACT if case.question.recipe is None else TRAINING_TOLERANCE
    return double_tolerance(right.allowed.get(name, default))


def first_difference(
    mesh: Mesh, near_enough: Tolerance, older: Arrays, newer: Arrays
) -> ArrayDifference | None:
    """The first two arrays that differ by more than the tolerance, else the first that differ.

    A side has an array for each mesh position, or one for all. None if nothing differs, or one
    side shows nothing.
    """
    if not older or not newer or older == newer:
        return None
    count = max(len(older), len(newer))
    sides = [tuple(side) * count if len(side) == 1 else side for side in (older, newer)]
    near = None
    for position, (one, other) in enumerate(zip(*sides, strict=True)):
        if one is None or other is None or one == other:
            continue
        far = difference(one, other, near_enough) is not None
        if far or near is None:
            where = f"{format_position(mesh, position)}: " if count > 1 else ""
            before, after = _format_difference(one, other)
            near = ArrayDifference(where + before, where + after, far)
        if far:
            return near
    return near


def _format_difference(one: Array, other: Array) -> tuple[str, str]:
    """Two arrays that differ, as texts: whole if small, else the first element that differs."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return f"{one.dtype}{list(one.shape)}", f"{other.dtype}{list(other.shape)}"
    if one.size <= _MOST:
        before, after = format_array(one), format_array(other)
        if before != after:
            return before, after
    bits = (np.frombuffer(side.data, np.uint8).reshape(one.size, -1) for side in (one, other))
    differs = np.not_equal(*bits).any(axis=1)
    first = int(differs.argmax())
    index = tuple(int(i) for i in np.unravel_index(first, one.shape))
    elements = (unpack(side).ravel()[first] for side in (one, other))
    before, after = map(str, elements)
    if before == after:
        before, after = (side.data.hex() for side in (one, other))
        return f"bytes {before[:32]}", f"bytes {after[:32]}"
    return f"{before} at {list(index)}, {int(differs.sum())} of {differs.size} differ", after


def compare_correctness(right: Truth, one: Observed, other: Observed) -> CorrectnessChange:
    """Whether two global values are right, where the truth is known."""
    wanted = right.values.get(one.name)
    if wanted is None or one.name in right.own:
        return ""
    close = right.allowed.get(one.name, EXACT)
    was, is_ = (
        all(difference(wanted, got, close) is None for got in seen.full) for seen in (one, other)
    )
    if was:
        return "" if is_ else "broken"
    return "mended" if is_ else "still wrong"
