"""Which ops reduce over one dim, several or all? Refuses to know frameworks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from cases.model import Param
from cases.ops import labels
from cases.ops.op import (
    SUM_AVG,
    FrameworkMeaning,
    Op,
    Value,
    check_floating,
    computed_in_float64,
    is_narrow,
    normalize_axes,
    single_dim,
    widen,
)

_AXES = ("axis", "keepdims")
_NORM = "squares double the error of their argument"


def _sum_dtype(x: Value) -> np.dtype[Any]:
    # NumPy, torch and JAX (with 64-bit types on) all widen integer sums to 64 bits.
    if x.dtype.kind == "u":
        raise TypeError(f"a total of {x.dtype.name} is int64 in torch and uint64 in JAX")
    return np.dtype(np.int64) if x.dtype.kind in "bi" else x.dtype


def _total(function: Callable[..., Any]) -> Callable[..., Any]:
    """Sum or prod. Integers become int64. Floats are computed in float64 and rounded once."""

    def meaning(x: Value, axis: Param = None, keepdims: bool = False) -> Value:
        over = normalize_axes(axis, x.ndim)
        total = function(widen(x), axis=over, keepdims=keepdims, dtype=_sum_dtype(widen(x)))
        return np.asarray(total).astype(_sum_dtype(x) if x.dtype.kind in "bi" else x.dtype)

    return meaning


def _reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    def meaning(x: Value, axis: Param = None, keepdims: bool = False) -> Value:
        out = np.asarray(function(widen(x), axis=normalize_axes(axis, x.ndim), keepdims=keepdims))
        return out.astype(x.dtype) if is_narrow(x) or x.dtype == np.complex64 else out

    return meaning


def _real_of(x: Value) -> np.dtype[Any]:
    """The real dtype of |x|."""
    sizes: np.dtype[Any] = np.abs(x[:0] if x.ndim else x).dtype
    return sizes


def _truth(function: Callable[..., Any]) -> Callable[..., Any]:
    """Whether elements of any dtype are not 0. The result is boolean."""

    def meaning(x: Value, axis: Param = None, keepdims: bool = False) -> Value:
        return np.asarray(function(x != 0, axis=normalize_axes(axis, x.ndim), keepdims=keepdims))

    return meaning


def _mean(x: Value, axis: Param = None, keepdims: bool = False) -> Value:
    # torch refuses integers, JAX returns float32 and NumPy float64, so no result is right.
    check_floating(x)
    return np.asarray(_reduce(np.mean)(x, axis, keepdims))


def _spread(function: Callable[..., Any]) -> Callable[..., Any]:
    def meaning(x: Value, axis: Param = None, keepdims: bool = False, correction: int = 0) -> Value:
        check_floating(x)
        over = normalize_axes(axis, x.ndim)
        out = function(widen(x), axis=over, keepdims=keepdims, ddof=correction)
        return np.asarray(out).astype(_real_of(x))

    return meaning


def _norm(x: Value, axis: Param = None, keepdims: bool = False, ord: Param = 2) -> Value:
    check_floating(x)
    size = np.abs(widen(x))
    over = normalize_axes(axis, x.ndim)
    if ord in ("inf", np.inf):
        out = np.max(size, axis=over, keepdims=keepdims)
    elif isinstance(ord, int | float) and ord > 0:
        out = np.sum(size**ord, axis=over, keepdims=keepdims) ** (1 / ord)
    else:
        raise ValueError(f"ord {ord!r} is not one of 1, 2, … and 'inf'")
    return np.asarray(out).astype(_real_of(x))


# Only torch keeps uint8, which it once used for booleans.
_BYTES_LINK = "https://docs.pytorch.org/docs/stable/generated/torch.any.html"


def _bytes(function: Callable[..., Any]) -> dict[str, FrameworkMeaning]:
    def meaning(x: Value, axis: Param = None, keepdims: bool = False) -> Value:
        return np.asarray(_truth(function)(x, axis, keepdims)).astype(np.uint8)

    why = "torch documents uint8 as the result for uint8, and bool for every other dtype"
    return {"torch": FrameworkMeaning(meaning, lambda args, params: args[0].dtype == np.uint8, why,
                           _BYTES_LINK)}  # fmt: skip


def _arg(function: Callable[..., Any]) -> Callable[..., Any]:
    def meaning(x: Value, axis: Param = None, keepdims: bool = False) -> Value:
        over = None if axis is None else single_dim(axis, x.ndim)
        return np.asarray(function(x, axis=over, keepdims=keepdims)).astype(np.int64)

    return meaning


def _max_with_index(x: Value, axis: Param = None) -> Value:
    return np.asarray(np.argmax(x, axis=single_dim(axis, x.ndim))).astype(np.int64)


def _count(x: Value, axis: Param = None) -> Value:
    return np.asarray(np.count_nonzero(x, axis=normalize_axes(axis, x.ndim))).astype(np.int64)


def _logsumexp(x: Value, axis: Param = None, keepdims: bool = False) -> Value:
    over = normalize_axes(axis, x.ndim)
    if not x.ndim:
        return x
    out: Value = special.logsumexp(x, axis=over, keepdims=keepdims)
    return out


def _row(name: str, meaning: Callable[..., Any], **about: Any) -> Op:
    return Op(name, "reduction", ("x",), meaning, **{"optional": _AXES, **about})


ROWS = (
    _row("sum", _total(np.sum), labels=labels.reduce, linear=SUM_AVG, reduces="sum", whole=True,
         grads=(0,)),
    _row("mean", _mean, labels=labels.reduce, linear=SUM_AVG, reduces="avg", grads=(0,)),
    _row("prod", _total(np.prod), labels=labels.reduce, linear=frozenset({"product"}),
         reduces="product", whole=True, grads=(0,)),
    _row("max", _reduce(np.max), labels=labels.reduce, linear=frozenset({"max"}), reduces="max",
         whole=True, grads=(0,)),
    _row("min", _reduce(np.min), labels=labels.reduce, linear=frozenset({"min"}), reduces="min",
         whole=True, grads=(0,)),
    _row("any", _truth(np.any), labels=labels.reduce, reduces=("sum", "max"), whole=True,
         jumps=True, apart=_bytes(np.any)),
    _row("all", _truth(np.all), labels=labels.reduce, reduces=("product", "min"), whole=True,
         jumps=True, apart=_bytes(np.all)),
    _row("var", _spread(np.var), optional=(*_AXES, "correction"), labels=labels.reduce_unsplit,
         grads=(0,), roundings=16, why=_NORM),
    _row("std", _spread(np.std), optional=(*_AXES, "correction"), labels=labels.reduce_unsplit,
         grads=(0,), roundings=16, why=_NORM),
    _row("vector_norm", _norm, optional=(*_AXES, "ord"), labels=labels.reduce_unsplit, grads=(0,),
         roundings=16, why=_NORM),
    _row("logsumexp", computed_in_float64(_logsumexp), labels=labels.reduce_unsplit, grads=(0,),
         roundings=32,
         why="exponentials multiply the error of their argument"),
    _row("argmax", _arg(np.argmax), labels=labels.reduce_unsplit, whole=True, jumps=True),
    _row("argmin", _arg(np.argmin), labels=labels.reduce_unsplit, whole=True, jumps=True),
    _row("max_with_index", _max_with_index, required=("axis",), optional=(),
         labels=labels.reduce_unsplit, whole=True, jumps=True),
    _row("count_nonzero", _count, optional=("axis",), labels=labels.reduce, reduces="sum",
         whole=True, jumps=True),
)  # fmt: skip
