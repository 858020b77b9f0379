"""Which ops normalise, and which are losses? Refuses to know frameworks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from cases.ops import labels
from cases.ops.op import SUM_AVG, Op, Value, computed_in_float64, single_dim

_EXP = "exponentials multiply the error of their argument"
_SPREAD = "squares double the error of their argument"


def _softmax(x: Value, axis: int = -1) -> Value:
    return np.asarray(special.softmax(x, axis=single_dim(axis, x.ndim)))


def _log_softmax(x: Value, axis: int = -1) -> Value:
    return np.asarray(special.log_softmax(x, axis=single_dim(axis, x.ndim)))


def _check_weights(x: Value, *weights: Value | None) -> None:
    if not x.ndim or any(one is not None and one.shape != x.shape[-1:] for one in weights):
        raise ValueError("the operand needs a dim, and weights as long as its last one")


def _layer_norm(
    x: Value, w: Value | None = None, b: Value | None = None, eps: float = 1e-5
) -> Value:
    """Over the last dim."""
    _check_weights(x, w, b)
    off = x - x.mean(-1, keepdims=True)
    out = off / np.sqrt((off * off).mean(-1, keepdims=True) + eps)
    out = out if w is None else out * w
    return np.asarray(out if b is None else out + b)


def _rms_norm(x: Value, w: Value | None = None, eps: float = 1e-5) -> Value:
    """Over the last dim."""
    _check_weights(x, w)
    out = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    return np.asarray(out if w is None else out * w)


def _reduced(each: Value, reduction: str, count: Any = None) -> Value:
    if reduction == "none":
        return each
    if reduction == "sum":
        return np.asarray(each.sum())
    if reduction != "mean":
        raise ValueError(f"reduction {reduction!r} is not one of 'none', 'sum' and 'mean'")
    return np.asarray(each.sum() / (each.size if count is None else count))


def _alike(meaning: Callable[..., Any]) -> Callable[..., Any]:
    """Refuses operands of several dtypes, whose result differs between frameworks."""

    def checked(x: Value, y: Value, **params: Any) -> Value:
        if x.dtype != y.dtype:
            raise TypeError(f"takes operands of one dtype, not {x.dtype.name} and {y.dtype.name}")
        return np.asarray(meaning(x, y, **params))

    return checked


def _loss(function: Callable[..., Any]) -> Callable[..., Any]:
    """A loss from ``function``, with both operands must have one shape, and parameters."""

    def meaning(x: Value, y: Value, reduction: str = "mean", **params: Any) -> Value:
        if x.shape != y.shape:
            raise ValueError("both operands must have one shape")
        return _reduced(function(x, y, **params), reduction)

    return _alike(computed_in_float64(meaning))


def _square(x: Value, y: Value) -> Value:
    return np.asarray((x - y) ** 2)


def _distance(x: Value, y: Value) -> Value:
    return np.asarray(np.abs(x - y))


def _huber(x: Value, y: Value, delta: float = 1.0) -> Value:
    off = np.abs(x - y)
    return np.asarray(np.where(off < delta, 0.5 * off**2, delta * (off - 0.5 * delta)))


def _smooth(x: Value, y: Value, beta: float = 1.0) -> Value:
    return _huber(x, y, beta) / beta


def _cross(x: Value, y: Value) -> Value:
    return np.asarray(-(y * np.log(x) + (1 - y) * np.log1p(-x)))


def _cross_logits(x: Value, y: Value) -> Value:
    return np.asarray(np.logaddexp(x, 0.0) - x * y)


def _kl(x: Value, y: Value) -> Value:
    return np.asarray(special.xlogy(y, y) - y * x)


def _nll(
    x: Value, t: Value, w: Value | None = None, reduction: str = "mean", ignore: int = -100
) -> Value:
    """x[n, c] has log-probabilities and t[n] has classes. Rows of class ``ignore`` are left out."""
    if x.ndim != 2 or t.shape != x.shape[:1] or t.dtype.kind not in "iu":
        raise ValueError("operands must be x[n, c] and integers t[n]")
    counts = t != ignore
    target = np.where(counts, t, 0)
    if target.size and (int(target.min()) < 0 or int(target.max()) >= max(x.shape[1], 2)):
        raise ValueError(f"classes must be from 0 to {x.shape[1] - 1}")
    target = np.minimum(target, x.shape[1] - 1)
    weight = counts * (np.ones(x.shape[1]) if w is None else w)[target]
    each = -weight * np.take_along_axis(x, target[:, np.newaxis], 1)[:, 0]
    return _reduced(each, reduction, weight.sum())


def _cross_entropy(
    x: Value, t: Value, w: Value | None = None, reduction: str = "mean", ignore: int = -100
) -> Value:
    """Like nll_loss, but of logits."""
    return _nll(np.asarray(special.log_softmax(x, axis=1)), t, w, reduction, ignore)


def _pair(name: str, function: Callable[..., Any], *more: str, **about: Any) -> Op:
    return Op(name, "loss", ("x", "y"), _loss(function), optional=("reduction", *more),
              labels=labels.loss, reduces="by reduction", grads=(0,),
              **{"roundings": 16, "why": _SPREAD, **about})  # fmt: skip


def _classes(name: str, function: Callable[..., Any], **about: Any) -> Op:
    # The dtype does not depend on the classes.
    return Op(name, "loss", ("x", "t"), computed_in_float64(function, 1), more=("w",),
              optional=("reduction", "ignore"), labels=labels.by_class, reduces="by reduction",
              grads=(0,), **about)  # fmt: skip


# In a difference, one reduction can pay the pending sums of both operands.
ROWS = (
    Op("softmax", "normalisation", ("x",), computed_in_float64(_softmax), optional=("axis",),
       labels=labels.along_axis, grads=(0,), roundings=32, why=_EXP),
    Op("log_softmax", "normalisation", ("x",), computed_in_float64(_log_softmax),
       optional=("axis",),
       labels=labels.along_axis, grads=(0,), roundings=32, why=_EXP),
    Op("layer_norm", "normalisation", ("x",), computed_in_float64(_layer_norm), more=("w", "b"),
       optional=("eps",), labels=labels.last_dims(1), grads=(0, 1, 2), roundings=32, why=_SPREAD),
    Op("rms_norm", "normalisation", ("x",), computed_in_float64(_rms_norm), more=("w",),
       optional=("eps",),
       labels=labels.last_dims(1), grads=(0, 1), roundings=32, why=_SPREAD),
    _pair("mse_loss", _square, unclear=SUM_AVG),
    _pair("l1_loss", _distance, unclear=SUM_AVG),
    _pair("huber_loss", _huber, "delta", unclear=SUM_AVG),
    _pair("smooth_l1_loss", _smooth, "beta", unclear=SUM_AVG),
    _pair("binary_cross_entropy", _cross),
    _pair("binary_cross_entropy_with_logits", _cross_logits, roundings=32, why=_EXP),
    _pair("kl_div", _kl),
    _classes("nll_loss", _nll),
    _classes("cross_entropy", _cross_entropy, roundings=32, why=_EXP),
)  # fmt: skip
