"""Which ops are linear algebra on batches or Fourier transforms? Refuses to know frameworks."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases.model import Param
from cases.ops import labels
from cases.ops.op import SUM_AVG, Op, Value, computed_in_float64, single_dim

_SOLVES = "elimination multiplies errors by the condition number"


def _solve(x: Value, y: Value) -> Value:
    return np.asarray(np.linalg.solve(x, y))


def _transform(function: Any) -> Any:
    def meaning(x: Value, axis: Param = -1) -> Value:
        return np.asarray(function(x, axis=single_dim(axis, x.ndim)))

    return computed_in_float64(meaning)


ROWS = (
    Op("inv", "linalg", ("x",), computed_in_float64(np.linalg.inv), labels=labels.batch_dims(2),
       grads=(0,),
       roundings=64, why=_SOLVES),
    Op("cholesky", "linalg", ("x",), computed_in_float64(np.linalg.cholesky),
       labels=labels.batch_dims(2),
       roundings=64, why=_SOLVES),
    Op("solve", "linalg", ("x", "y"), computed_in_float64(_solve), labels=labels.batch_dims(2),
       grads=(0, 1),
       roundings=64, why=_SOLVES),
    Op("det", "linalg", ("x",), computed_in_float64(np.linalg.det), grads=(0,), roundings=64,
       why=_SOLVES),
    Op("fft", "fft", ("x",), _transform(np.fft.fft), optional=("axis",), labels=labels.along_axis,
       linear=SUM_AVG, roundings=16),
    Op("ifft", "fft", ("x",), _transform(np.fft.ifft), optional=("axis",), labels=labels.along_axis,
       linear=SUM_AVG, roundings=16),
)  # fmt: skip
