"""What is the gradient of a program? By differences of its NumPy meaning in float64.

Knows no derivative of any op. Each element of an input is moved a little both ways, and twice as
far too. The fourth-order formula of central differences is exact for polynomials up to the fourth
degree: https://en.wikipedia.org/wiki/Finite_difference_coefficient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Value = NDArray[Any]

# A power of two, so that moving a number of few digits is exact. The formula's error grows with the
# fourth power of the step, that of rounding with its inverse. Both stay below 1e-8 of the largest
# value for everything in the catalogue, with logarithms of 1/64.
STEP = 2.0**-14
ERROR = 1e-8
# If the slopes of the two sides differ by this share, there is a kink, such as that of relu at 0.
KINK = 1e-3
_WEIGHTS = ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12))


def gradient(function: Callable[[Value], Value], at: Value) -> Value:
    """The slope of ``function``, which gives one number, at ``at``: elementwise, in float64.

    Shape of the result: that of ``at``.
    """
    slope = np.zeros(at.shape, np.float64)
    for index in np.ndindex(at.shape):
        slope[index] = slope_at(function, at, index)
    return slope


def one_sided(function: Callable[[Value], Value], at: Value) -> tuple[Value, Value]:
    """The slopes to the left and to the right, elementwise, in float64; shapes as ``at``.

    By the second-order formulas of one-sided differences, from the same source.
    """
    left, right = np.zeros(at.shape), np.zeros(at.shape)
    point = at.astype(np.float64)
    here = float(np.asarray(function(point)).reshape(()))
    for index in np.ndindex(at.shape):
        for slopes, sign in ((left, -1), (right, 1)):
            near, far = (_moved(function, point, index, sign * steps) for steps in (1, 2))
            slopes[index] = sign * (4 * near - far - 3 * here) / (2 * STEP)
    return left, right


def is_kink(left: Value, right: Value) -> NDArray[np.bool_]:
    """Where a function has no slope: the two sides differ by more than their formulas' errors."""
    with np.errstate(invalid="ignore"):
        largest = np.maximum(1.0, np.maximum(np.abs(left), np.abs(right)))
        return np.asarray(np.abs(right - left) > KINK * largest)


def _moved(
    function: Callable[[Value], Value], point: Value, index: tuple[int, ...], steps: int
) -> float:
    moved = point.copy()
    moved[index] += steps * STEP
    return float(np.asarray(function(moved)).reshape(()))


def slope_at(function: Callable[[Value], Value], at: Value, index: tuple[int, ...]) -> float:
    """The slope of ``function``, which gives one number, by one element of ``at``."""
    point = at.astype(np.float64)
    total = 0.0
    for steps, weight in _WEIGHTS:
        total += weight * _moved(function, point, index, steps)
    return total / STEP
