"""What is the gradient of a program? It comes from finite differences in float64.

This module knows no derivatives of ops. It uses the fourth-order formula of central differences,
which is exact for polynomials up to the fourth degree. It moves each element of an input by one and
two steps both ways: https://en.wikipedia.org/wiki/Finite_difference_coefficient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Value = NDArray[Any]

# The step is a power of two, so adding it to a number with few digits is exact. The error of the
# formula grows with its fourth power, and the rounding error with its inverse. In the catalogue,
# including logarithms of 1/64, both are below 1e-8 of the largest value.
STEP = 2.0**-14
ERROR = 1e-8
# If the slopes of the two sides differ by this share, there is a kink, such as that of relu at 0.
KINK = 1e-3
_WEIGHTS = ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12))


def gradient(function: Callable[[Value], Value], at: Value) -> Value:
    """The elementwise slopes of a scalar ``function`` at ``at``, in float64.

    The result has the shape of ``at``.
    """
    slope = np.zeros(at.shape, np.float64)
    for index in np.ndindex(at.shape):
        slope[index] = slope_at(function, at, index)
    return slope


def one_sided(function: Callable[[Value], Value], at: Value) -> tuple[Value, Value]:
    """The elementwise left and right slopes in float64, each with the shape of ``at``.

    They use the second-order formulas of one-sided differences from the same source.
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
    """Whether the left and right slopes differ by more than the error of their formulas."""
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
    """The slope of a scalar ``function`` by one element of ``at``."""
    point = at.astype(np.float64)
    total = 0.0
    for steps, weight in _WEIGHTS:
        total += weight * _moved(function, point, index, steps)
    return total / STEP
