"""Which ops are linear algebra on batches, and which Fourier transforms?"""

from __future__ import annotations

from typing import Any

import numpy as np

from cases.model import Param
from cases.ops import labels
from cases.ops.row import SUM_LIKE, Op, Value, one_dim, rounded

_SOLVES = "elimination multiplies errors by the condition number"


def _solve(x: Value, y: Value) -> Value:
    return np.asarray(np.linalg.solve(x, y))


def _transform(function: Any) -> Any:
    def meaning(x: Value, axis: Param = -1) -> Value:
        return np.asarray(function(x, axis=one_dim(axis, x.ndim)))

    return rounded(meaning)


ROWS = (
    Op("inv", "linalg", ("x",), rounded(np.linalg.inv), labels=labels.batched(2), grads=(0,),
       roundings=64, why=_SOLVES),
    Op("cholesky", "linalg", ("x",), rounded(np.linalg.cholesky), labels=labels.batched(2),
       roundings=64, why=_SOLVES),
    Op("solve", "linalg", ("x", "y"), rounded(_solve), labels=labels.batched(2), grads=(0, 1),
       roundings=64, why=_SOLVES),
    Op("det", "linalg", ("x",), rounded(np.linalg.det), grads=(0,), roundings=64, why=_SOLVES),
    Op("fft", "fft", ("x",), _transform(np.fft.fft), optional=("axis",), labels=labels.along,
       linear=SUM_LIKE, roundings=16),
    Op("ifft", "fft", ("x",), _transform(np.fft.ifft), optional=("axis",), labels=labels.along,
       linear=SUM_LIKE, roundings=16),
)  # fmt: skip
