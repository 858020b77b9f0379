"""What is the gradient of a program? By differences of its NumPy meaning in float64.

Knows no derivative of any op. Each element of an input is moved a little both ways, twice as
far too, and the fourth-order formula of central differences is taken, which is exact for
polynomials up to the fourth degree: https://en.wikipedia.org/wiki/Finite_difference_coefficient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Value = NDArray[Any]

# A power of two, so that moving a number of few digits is exact. The error of the formula goes
# with its fourth power, that of rounding with its inverse: both stay below 1e-8 of the largest
# value for what the catalogue has, logarithms of 1/64 included.
STEP = 2.0**-14
ERROR = 1e-8
_WEIGHTS = ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12))


def gradient(function: Callable[[Value], Value], at: Value) -> Value:
    """The slope of ``function``, which gives one number, at ``at``: elementwise, in float64.

    Shape of the result: that of ``at``.
    """
    slope = np.zeros(at.shape, np.float64)
    for index in np.ndindex(at.shape):
        slope[index] = slope_at(function, at, index)
    return slope


def slope_at(function: Callable[[Value], Value], at: Value, index: tuple[int, ...]) -> float:
    """The slope of ``function``, which gives one number, by one element of ``at``."""
    point = at.astype(np.float64)
    total = 0.0
    for steps, weight in _WEIGHTS:
        moved = point.copy()
        moved[index] += steps * STEP
        total += weight * float(np.asarray(function(moved)).reshape(()))
    return total / STEP
