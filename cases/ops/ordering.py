"""Which ops sort or accumulate along a dim? Refuses to know frameworks."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases.model import Param
from cases.ops import labels
from cases.ops.op import SUM_AVG, FrameworkMeaning, Op, Value, single_dim, widen


def _order(x: Value, axis: Param, descending: bool) -> Value:
    at = single_dim(axis, x.ndim)
    if not descending:
        return np.argsort(x, axis=at, kind="stable")
    # The sort is stable.
    back = np.argsort(np.flip(x, at), axis=at, kind="stable")
    return np.asarray(x.shape[at] - 1 - np.flip(back, at))


def _argsort(x: Value, axis: Param = -1, descending: bool = False) -> Value:
    return _order(x, axis, descending).astype(np.int64)


def _sort(x: Value, axis: Param = -1, descending: bool = False) -> Value:
    return np.take_along_axis(x, _order(x, axis, descending), single_dim(axis, x.ndim))


def _topk_indices(x: Value, k: int, axis: Param = -1) -> Value:
    at = single_dim(axis, x.ndim)
    if not 0 <= k <= x.shape[at]:
        raise ValueError(f"the largest {k} of {x.shape[at]}")
    return np.take(_order(x, axis, True), range(k), at).astype(np.int64)


def _topk_values(x: Value, k: int, axis: Param = -1) -> Value:
    return np.take_along_axis(x, _topk_indices(x, k, axis), single_dim(axis, x.ndim))


def _running(function: Any) -> Any:
    def meaning(x: Value, axis: Param = -1) -> Value:
        if x.dtype.kind == "u" and function is np.cumsum:
            raise TypeError(f"a total of {x.dtype.name} is int64 in torch and uint64 in JAX")
        dtype = np.dtype(np.int64) if x.dtype.kind in "biu" else x.dtype
        out = function(widen(x), axis=single_dim(axis, x.ndim), dtype=widen(x.astype(dtype)).dtype)
        return np.asarray(out).astype(dtype)

    return meaning


def _narrow_products(x: Value, axis: Param = -1) -> Value:
    return np.asarray(np.cumprod(x, axis=single_dim(axis, x.ndim), dtype=x.dtype))


_NARROW = {"jax": FrameworkMeaning(
    _narrow_products,
    lambda args, params: args[0].dtype.kind in "iu" and args[0].dtype.itemsize < 8,
    "JAX keeps the dtype of whole numbers in a running product, torch widens it to int64",
    "https://docs.jax.dev/en/latest/_autosummary/jax.numpy.cumulative_prod.html",
)}  # fmt: skip


_LAST = ("axis",)

ROWS = (
    Op("sort", "ordering", ("x",), _sort, optional=("axis", "descending"), labels=labels.along_axis,
       whole=True, moves=True, grads=(0,)),
    Op("argsort", "ordering", ("x",), _argsort, optional=("axis", "descending"),
       labels=labels.along_axis, whole=True, jumps=True),
    Op("topk_values", "ordering", ("x",), _topk_values, required=("k",), optional=_LAST,
       labels=labels.along_axis, whole=True, moves=True, grads=(0,)),
    Op("topk_indices", "ordering", ("x",), _topk_indices, required=("k",), optional=_LAST,
       labels=labels.along_axis, whole=True, jumps=True),
    Op("cumulative_sum", "ordering", ("x",), _running(np.cumsum), optional=_LAST,
       labels=labels.along_axis, linear=SUM_AVG, whole=True, grads=(0,)),
    Op("cumulative_prod", "ordering", ("x",), _running(np.cumprod), optional=_LAST,
       labels=labels.along_axis, whole=True, grads=(0,), apart=_NARROW),
)  # fmt: skip
