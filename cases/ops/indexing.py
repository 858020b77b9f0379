"""Which ops read or write at positions that are data, or into a part of an array?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cases.model import Param
from cases.ops import labels
from cases.ops.op import ALL_REDUCTIONS, MAX_MIN, SUM_AVG, Op, Value, single_dim


def _row(name: str, args: tuple[str, ...], meaning: Callable[..., Any], *required: str,
         **about: Any) -> Op:  # fmt: skip
    return Op(name, "indexing", args, meaning, required=required,
              **{"whole": True, "moves": True, **about})  # fmt: skip


def _whole(i: Value) -> None:
    if i.dtype.kind not in "iu":
        raise TypeError(f"indices must be integers, not {i.dtype.name}")


def _within(i: Value, size: int) -> Value:
    # Arrays that only give shapes have indices of 1, which a dim of size 1 does not have.
    _whole(i)
    if i.size and (int(i.min()) < 0 or int(i.max()) >= max(size, 2)):
        raise ValueError(f"indices must be from 0 to {size - 1}")
    return np.minimum(i, size - 1)


def _take(x: Value, i: Value, axis: Param) -> Value:
    at = single_dim(axis, x.ndim)
    return np.take(x, _within(i, x.shape[at]), at)


def _take_along_axis(x: Value, i: Value, axis: Param) -> Value:
    at = single_dim(axis, x.ndim)
    return np.take_along_axis(x, _within(i, x.shape[at]), at)


def _scatter(x: Value, i: Value, v: Value, axis: Param) -> Value:
    at = single_dim(axis, x.ndim)
    if not x.ndim == i.ndim == v.ndim:
        raise ValueError("the three operands must have the same number of dims")
    out = x.copy()
    np.put_along_axis(out, _within(i, x.shape[at]), v.astype(x.dtype), at)
    return out


def _at_rows(x: Value, i: Value, at: int) -> tuple[Any, ...]:
    return (*(slice(None),) * at, _within(i, x.shape[at]))


def _scatter_add(x: Value, i: Value, v: Value, axis: Param) -> Value:
    at = single_dim(axis, x.ndim)
    if i.shape != v.shape or i.ndim != x.ndim:
        raise ValueError("indices and values must have one shape, and the operand's number of dims")
    out = x.copy()
    where: list[Value] = list(np.indices(i.shape))
    where[at] = _within(i, x.shape[at])
    np.add.at(out, tuple(where), v)
    return out


def _scatter_rows(x: Value, i: Value, v: Value, axis: Param) -> Value:
    out = x.copy()
    out[_at_rows(x, i, single_dim(axis, x.ndim))] = v
    return out


def _scatter_add_rows(x: Value, i: Value, v: Value, axis: Param) -> Value:
    out = x.copy()
    np.add.at(out, _at_rows(x, i, single_dim(axis, x.ndim)), v)
    return out


def _index_put(x: Value, v: Value, i: Value, j: Value) -> Value:
    out = x.copy()
    out[_within(i, x.shape[0]), _within(j, x.shape[1])] = v
    return out


def _masked_fill(x: Value, mask: Value, value: float) -> Value:
    if mask.dtype != np.bool_:
        raise TypeError(f"takes a boolean mask, not {mask.dtype.name}")
    return np.where(mask, np.asarray(value).astype(x.dtype), x)


def _embedding(i: Value, w: Value, padding_row: int | None = None) -> Value:
    if w.ndim != 2:
        raise ValueError("the table must have two dims, rows and columns")
    return np.take(w, _within(i, w.shape[0]), 0)


def _one_hot(i: Value, classes: int) -> Value:
    _whole(i)
    return np.asarray(i[..., np.newaxis] == np.arange(classes)).astype(np.int64)


def _start(i: Value, size: int, length: int) -> int:
    # As in XLA, a start that is too large is moved back, and a negative one becomes 0.
    _whole(i)
    if length > size or i.ndim:
        raise ValueError(f"{length} of {size} from a scalar start")
    return min(max(int(i), 0), size - length)


def _dynamic_slice(x: Value, i: Value, size: int, axis: Param) -> Value:
    at = single_dim(axis, x.ndim)
    start = _start(i, x.shape[at], size)
    return x[(*(slice(None),) * at, slice(start, start + size))]


def _dynamic_update_slice(x: Value, v: Value, i: Value, axis: Param) -> Value:
    at = single_dim(axis, x.ndim)
    start = _start(i, x.shape[at], v.shape[at])
    out = x.copy()
    out[(*(slice(None),) * at, slice(start, start + v.shape[at]))] = v
    return out


def _set_slice(
    x: Value, v: Value | None = None, *, axis: Param, start: int = 0, stop: int | None = None,
    step: int = 1, value: float | None = None,
) -> Value:  # fmt: skip
    if (v is None) == (value is None):
        raise ValueError("an array to write or a value is missing")
    out = x.copy()
    place = (*(slice(None),) * single_dim(axis, x.ndim), slice(start, stop, step))
    out[place] = value if v is None else v
    return out


def _inplace(function: Callable[..., Any]) -> Callable[..., Any]:
    """The result is the changed first operand, which keeps its shape and its dtype."""

    def meaning(x: Value, y: Any) -> Value:
        if not isinstance(x, np.ndarray | np.generic):
            raise TypeError("a number cannot be changed in place")
        made = np.asarray(function(x, y))
        if made.shape != x.shape:
            raise ValueError(f"a result of shape {list(made.shape)} does not fit in place")
        return made.astype(x.dtype)

    return meaning


def _fill(x: Value, value: float) -> Value:
    return np.full_like(x, value)


def _change(name: str, function: Callable[..., Any], **about: Any) -> Op:
    return Op(name, "inplace", ("x", "y"), _inplace(function), numbers=True,
              labels=labels.broadcast, whole=True, grads=(0, 1), **about)  # fmt: skip


_SLICE = ("start", "stop", "step")

ROWS = (
    _row("take", ("x", "i"), _take, "axis", labels=labels.take, linear=ALL_REDUCTIONS,
         together=(0,),
         reduces="sum", grads=(0,)),
    _row("take_along_axis", ("x", "i"), _take_along_axis, "axis", labels=labels.along_axis,
         linear=ALL_REDUCTIONS, together=(0,), grads=(0,)),
    _row("scatter", ("x", "i", "v"), _scatter, "axis", labels=labels.along_axis,
         linear=ALL_REDUCTIONS,
         together=(0, 2), grads=(0, 2)),
    _row("scatter_add", ("x", "i", "v"), _scatter_add, "axis", labels=labels.along_axis,
         linear=SUM_AVG, together=(0, 2), grads=(0, 2), moves=False),
    _row("scatter_rows", ("x", "i", "v"), _scatter_rows, "axis", grads=(0, 2)),
    _row("scatter_add_rows", ("x", "i", "v"), _scatter_add_rows, "axis", grads=(0, 2),
         moves=False),
    _row("index_put", ("x", "v", "i", "j"), _index_put, grads=(0, 1)),
    _row("masked_fill", ("x", "mask"), _masked_fill, "value", labels=labels.broadcast,
         grads=(0,)),
    _row("embedding", ("i", "w"), _embedding, optional=("padding_row",), labels=labels.embedding,
         linear=ALL_REDUCTIONS, together=(1,), reduces="sum", grads=(1,)),
    _row("one_hot", ("i",), _one_hot, "classes", labels=labels.append_dim),
    _row("dynamic_slice", ("x", "i"), _dynamic_slice, "size", "axis", grads=(0,)),
    _row("dynamic_update_slice", ("x", "v", "i"), _dynamic_update_slice, "axis", grads=(0, 1)),
    _row("set_slice", ("x",), _set_slice, "axis", more=("v",), optional=(*_SLICE, "value"),
         grads=(0, 1)),
)  # fmt: skip

INPLACE = (
    _change("inplace_add", np.add, linear=SUM_AVG, each=(0, 1), singly=MAX_MIN | {"avg"}),
    _change("inplace_subtract", np.subtract, linear=SUM_AVG, each=(0,), singly=MAX_MIN | {"avg"}),
    _change("inplace_multiply", np.multiply, each=(0, 1)),
    Op("assign_slice", "inplace", ("x",), _set_slice, more=("v",), required=("axis",),
       optional=(*_SLICE, "value"), whole=True, moves=True, grads=(0, 1)),
    Op("inplace_fill", "inplace", ("x",), _fill, required=("value",), labels=labels.same_dims,
       # A value on all devices is right if a max, a min or an average is pending.
       linear=MAX_MIN | {"avg"}, unclear=frozenset({"sum", "product"}), whole=True),
)  # fmt: skip
