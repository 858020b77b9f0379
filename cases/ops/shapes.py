"""Which ops only move elements? Reshape, permute, join, cut, roll, pad. Knows no framework."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cases.model import Param
from cases.ops import labels
from cases.ops.op import (
    ALL_REDUCTIONS,
    MAX_MIN,
    NO_RULE,
    SUM_AVG,
    Labels,
    Op,
    Params,
    Shape,
    Value,
    normalize_axes,
    single_dim,
)
from cases.ops.promotion import cast_all, promote


def _move(
    name: str, meaning: Callable[..., Any], *required: str, args: tuple[str, ...] = ("x",),
    **about: Any,
) -> Op:  # fmt: skip
    """A row of an op that only moves elements, so that all pending reductions stay."""
    common: dict[str, Any] = {"linear": ALL_REDUCTIONS, "moves": True, "whole": True}
    return Op(name, "shape", args, meaning, required=required,
              grads=tuple(range(len(args))), **{**common, **about})  # fmt: skip


def _flatten(x: Value, start: int = 0, end: int = -1) -> Value:
    first, last = single_dim(start, x.ndim), single_dim(end, x.ndim)
    if first > last:
        raise ValueError("start must not be after end")
    size = math.prod(x.shape[first : last + 1])
    return x.reshape(*x.shape[:first], size, *x.shape[last + 1 :])


def _flat(shapes: tuple[Shape, ...], params: Params) -> Labels:
    made = list(_flatten(np.empty(shapes[0], np.bool_), **params).shape)  # type: ignore[arg-type]
    return labels.regroup(shapes, {"shape": made})


def _squeeze(x: Value, axis: Param) -> Value:
    return np.squeeze(x, normalize_axes(axis, x.ndim))


def _part(x: Value, sections: int, part: int, axis: Param) -> Value:
    """One of ``sections`` equal parts."""
    size = x.shape[single_dim(axis, x.ndim)]
    if sections < 1 or size % sections or not 0 <= part < sections:
        raise ValueError(f"part {part} of {sections} equal parts of {size}")
    return np.split(x, sections, single_dim(axis, x.ndim))[part]


def _chunk(x: Value, chunks: int, part: int, axis: Param) -> Value:
    """One of ``chunks`` chunks by torch's rule: ceil(size / chunks) long, until nothing is left."""
    at = single_dim(axis, x.ndim)
    step = -(-x.shape[at] // chunks) if chunks > 0 else 0
    if step == 0 or not 0 <= part * step < x.shape[at]:
        raise ValueError(f"chunk {part} of {chunks} of {x.shape[at]}")
    return np.take(x, range(part * step, min((part + 1) * step, x.shape[at])), at)


def _concat(x: Value, y: Value, axis: Param) -> Value:
    return np.concatenate(cast_all((x, y), promote((x, y))), single_dim(axis, x.ndim))


def _stack(x: Value, y: Value, axis: Param) -> Value:
    return np.stack(cast_all((x, y), promote((x, y))), single_dim(axis, x.ndim + 1))


def _pad(x: Value, axis: Param, before: int, after: int, value: float = 0) -> Value:
    width = [(0, 0)] * x.ndim
    width[single_dim(axis, x.ndim)] = (before, after)
    return np.pad(x, width, constant_values=value)


def _slice(x: Value, axis: Param, start: int = 0, stop: int | None = None, step: int = 1) -> Value:
    if step < 1 or start < 0 or (stop is not None and stop < 0):
        raise ValueError("start and stop must be 0 or more, and step 1 or more")
    return x[(*(slice(None),) * single_dim(axis, x.ndim), slice(start, stop, step))]


def _index(x: Value, axis: Param, index: int) -> Value:
    return np.asarray(np.take(x, index, single_dim(axis, x.ndim)))


def _repeat(x: Value, repeats: int, axis: Param) -> Value:
    return np.repeat(x, repeats, single_dim(axis, x.ndim))


def _tile(x: Value, repeats: int, axis: Param) -> Value:
    return np.concatenate([x] * repeats, single_dim(axis, x.ndim))


def _roll(x: Value, shift: int, axis: Param) -> Value:
    return np.roll(x, shift, single_dim(axis, x.ndim))


def _reshape(x: Value, shape: Param) -> Value:
    return x.reshape(shape)  # type: ignore[arg-type]


def _diagonal(x: Value) -> Value:
    if x.ndim != 2:
        raise ValueError("the operand must have two dims")
    return np.diagonal(x)


def _triangle(function: Callable[..., Any]) -> Callable[..., Any]:
    def meaning(x: Value, diagonal: int = 0) -> Value:
        if x.ndim < 2:
            raise ValueError("the operand must have two dims or more")
        return np.asarray(function(x, diagonal))

    return meaning


def _cut(shapes: tuple[Shape, ...], params: Params) -> Labels | None:
    wanted: tuple[Any, ...] = tuple(params.get(name) for name in ("start", "stop", "step"))
    return labels.strided_slice(*wanted)(shapes, params)


def _two_plain(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """`NO_RULE` for both dims, because the result depends on which elements a device has."""
    return (((NO_RULE, NO_RULE),), ("",))


def _padded(params: Params) -> frozenset[str]:
    """Max, min and avg pass any padding, a sum passes 0 and a product passes 1."""
    value = params.get("value", 0)
    more = SUM_AVG if value == 0 else frozenset({"product"} if value == 1 else ())
    return more | MAX_MIN | {"avg"}


ROWS = (
    _move("reshape", _reshape, "shape", labels=labels.regroup),
    _move("flatten", _flatten, optional=("start", "end"), labels=_flat),
    _move("permute_dims", lambda x, axes: np.transpose(x, axes), "axes", labels=labels.permute),
    _move("matrix_transpose", lambda x: np.swapaxes(x, -1, -2), labels=labels.swap_last),
    _move("expand_dims", lambda x, axis: np.expand_dims(x, single_dim(axis, x.ndim + 1)), "axis",
          labels=labels.insert_dim),
    _move("squeeze", _squeeze, "axis", labels=labels.remove_dims),
    _move("broadcast_to", lambda x, shape: np.broadcast_to(x, shape), "shape",
          labels=labels.stretch),
    _move("split", _part, "sections", "part", "axis", labels=labels.along_axis),
    _move("chunk", _chunk, "chunks", "part", "axis", labels=labels.along_axis),
    _move("concat", _concat, "axis", args=("x", "y"), labels=labels.along_axis),
    _move("stack", _stack, "axis", args=("x", "y"), labels=labels.insert_dim),
    _move("flip", lambda x, axis: np.flip(x, normalize_axes(axis, x.ndim)), "axis",
          labels=labels.along_axis),
    _move("roll", _roll, "shift", "axis", labels=labels.along_axis),
    _move("pad", _pad, "axis", "before", "after", optional=("value",), labels=labels.along_axis,
          linear=_padded),
    _move("tril", _triangle(np.tril), optional=("diagonal",),
          labels=labels.last_dims(2), linear=SUM_AVG),
    _move("triu", _triangle(np.triu), optional=("diagonal",),
          labels=labels.last_dims(2), linear=SUM_AVG),
    _move("diagonal", _diagonal, labels=_two_plain),
    _move("slice", _slice, "axis", optional=("start", "stop", "step"), labels=_cut),
    _move("index", _index, "axis", "index", labels=labels.remove_dims),
    _move("repeat", _repeat, "repeats", "axis", labels=labels.repeat),
    _move("tile", _tile, "repeats", "axis", labels=labels.along_axis),
)  # fmt: skip
