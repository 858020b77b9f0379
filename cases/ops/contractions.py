"""Which ops sum products? Matrix products, einsum, linear layers, convolutions, attention."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import special

from cases.model import Param
from cases.ops import labels
from cases.ops.op import Op, Value, computed_in_float64, single_dim, widen
from cases.ops.promotion import cast_all, promote


def _contract(function: Any) -> Any:
    """``function`` in float64, rounded once. Integers keep their dtype."""

    def meaning(*args: Value, **params: Any) -> Value:
        out = np.asarray(function(*(widen(one) for one in cast_all(args, promote(args))), **params))
        return out.astype(promote(args))

    return meaning


def _einsum(x: Value, w: Value, subscripts: str) -> Value:
    return np.asarray(np.einsum(subscripts, x, w))


def _linear(x: Value, w: Value, b: Value | None = None) -> Value:
    if w.ndim != 2:
        raise ValueError("the weight must have two dims, out and in")
    if b is not None and b.shape != w.shape[:1]:
        raise ValueError("the bias must have one dim, as long as the weight's first")
    out = x @ w.T
    return np.asarray(out if b is None else out + b)


def _addmm(c: Value, x: Value, w: Value) -> Value:
    if x.ndim != 2 or w.ndim != 2:
        raise ValueError("both factors must have two dims")
    return np.asarray(c + x @ w)


def _outer(x: Value, y: Value) -> Value:
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError("both operands must have one dim")
    return np.asarray(np.outer(x, y))


def _vecdot(x: Value, y: Value, axis: Param = -1) -> Value:
    ndim = max(x.ndim, y.ndim)
    if axis is None or isinstance(axis, list):
        raise ValueError("axis must be one dim")
    over = single_dim(axis, ndim)
    products = np.conj(x) * y
    # A product of boolean matrices is true where any pair of elements is true.
    return np.asarray(np.any(products, over) if x.dtype == bool else np.sum(products, over))


def _each(given: Any, count: int) -> tuple[int, ...]:
    listed = given if isinstance(given, list) else [given] * count
    if len(listed) != count:
        raise ValueError(f"{len(listed)} numbers for {count} places")
    return tuple(listed)


def convolution(places: int) -> Any:
    """Cross-correlation of x[n, c, …] with w[o, c, …] over the last ``places`` dims."""

    def meaning(x: Value, w: Value, stride: Param = 1, padding: Param = 0) -> Value:
        if x.ndim != places + 2 or w.ndim != places + 2 or x.shape[1] != w.shape[1]:
            raise ValueError("x[n, c, …] and w[o, c, …] must have equally many channels")
        steps, edges = _each(stride, places), _each(padding, places)
        padded = np.pad(x, [(0, 0), (0, 0), *((edge, edge) for edge in edges)])
        over = tuple(range(2, 2 + places))
        windows = sliding_window_view(padded, w.shape[2:], axis=over)
        windows = windows[(slice(None), slice(None), *(slice(None, None, s) for s in steps))]
        return np.asarray(np.tensordot(
            windows, w, axes=((1, *range(2 + places, 2 + 2 * places)), tuple(range(1, w.ndim)))
        ).transpose(0, places + 1, *range(1, places + 1)))  # fmt: skip

    return _contract(meaning)


def _attention(q: Value, k: Value, v: Value, causal: bool = False) -> Value:
    if min(q.ndim, k.ndim, v.ndim) < 2:
        raise ValueError("operands must have two dims or more")
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if causal:
        seen = np.tri(*scores.shape[-2:], dtype=np.bool_)
        scores = np.where(seen, scores, -np.inf)
    return np.asarray(special.softmax(scores, axis=-1) @ v)


_CONV = ("stride", "padding")

ROWS = (
    Op("matmul", "contraction", ("x", "w"), _contract(np.matmul), labels=labels.matmul,
       each=(0, 1), reduces="sum", whole=True, grads=(0, 1)),
    Op("einsum", "contraction", ("x", "w"), _contract(_einsum), required=("subscripts",),
       labels=labels.einsum, each=(0, 1), reduces="sum", whole=True, grads=(0, 1)),
    Op("linear", "contraction", ("x", "w"), _contract(_linear), more=("b",),
       labels=labels.linear, each=(0, 1), addend=2, reduces="sum", whole=True, grads=(0, 1, 2)),
    Op("addmm", "contraction", ("c", "x", "w"), _contract(_addmm), labels=labels.addmm,
       each=(1, 2), addend=0, reduces="sum", whole=True, grads=(0, 1, 2)),
    Op("outer", "contraction", ("x", "y"), _contract(_outer), labels=labels.outer, each=(0, 1),
       whole=True, grads=(0, 1)),
    Op("vecdot", "contraction", ("x", "y"), _contract(_vecdot), optional=("axis",),
       each=(0, 1), whole=True, grads=(0, 1)),
    Op("conv1d", "convolution", ("x", "w"), convolution(1), optional=_CONV,
       labels=labels.convolution, each=(0, 1), reduces="sum", whole=True, grads=(0, 1)),
    Op("conv2d", "convolution", ("x", "w"), convolution(2), optional=_CONV,
       labels=labels.convolution, each=(0, 1), reduces="sum", whole=True, grads=(0, 1)),
    Op("scaled_dot_product_attention", "attention", ("q", "k", "v"),
       computed_in_float64(_attention),
       optional=("causal",), labels=labels.attention, each=(2,), grads=(0, 1, 2), roundings=32,
       why="exponentials multiply the error of their argument"),
)  # fmt: skip
