"""Which array does a file mean? Nested lists, "arange" and single numbers, or an error.

Also splits a global value into the addends of a partial input. Refuses to know programs.
"""

from __future__ import annotations

import itertools
import math
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cases import typed_fields
from cases.arrays import Array, numpy_dtype, pack
from cases.errors import Where, format_value
from cases.layout import coordinates, index_ranges, reduction_order
from cases.model import Layout, Mesh

Value = NDArray[Any]

# float64 holds every integer up to here, so a literal is exact.
_WHOLE = 2.0**53
_MOST = sys.float_info.max

# Bits of the fraction with the implied one. Integers up to 2**bits are exact.
_BITS = {
    "bfloat16": 8, "float16": 11, "float32": 24, "float64": 53, "complex64": 24, "complex128": 53,
}  # fmt: skip


def parse_array(value: Any, dtype: str, shape: tuple[int, ...], where: Where) -> Value:
    """The array of ``shape`` from nested lists, a number or {real, imag}.

    The dtype must hold integers exactly. Fractions are rounded to the nearest value.

    Raises:
        BadInput: a wrong or ragged shape, no number, or a number that the dtype cannot hold.
    """
    if isinstance(value, dict):
        parts = typed_fields.table(value, where, ("real", "imag"))
        if numpy_dtype(dtype).kind != "c":
            raise where.error("real and imag", f"real numbers, for {dtype}")
        half = "float32" if dtype == "complex64" else "float64"
        made = np.empty(shape, numpy_dtype(dtype))
        made.real = _one_part(parts, "real", half, shape, where)
        # A product with 1j would turn the other part of an infinity into NaN.
        made.imag = _one_part(parts, "imag", half, shape, where)
        return made
    flat: list[Any] = []
    _flatten(value, shape, flat, where)
    return _exact(flat, dtype, shape, where).reshape(shape)


def _one_part(
    parts: dict[str, Any], name: str, dtype: str, shape: tuple[int, ...], where: Where
) -> Value:
    if name not in parts:
        raise where.error(f"no {name}", "both real and imag")
    return parse_array(parts[name], dtype, shape, where.at(name))


def parse_shard(value: Any, dtype: str, whole: tuple[int, ...], where: Where) -> Value:
    """A local array of unknown shape. ``whole`` is the global shape of its tensor.

    An empty list does not show the dims inside it, so they get their global sizes.
    """
    shape: tuple[int, ...] = ()
    inner = value
    while isinstance(inner, list) and len(shape) < len(whole):
        shape += (len(inner),)
        if not inner:
            break
        inner = inner[0]
    if len(shape) < len(whole) and 0 not in shape:
        raise where.error(f"a {len(shape)}-d array", f"a {len(whole)}-d one")
    return parse_array(value, dtype, shape, where).reshape(shape + whole[len(shape) :])


def parse_sized(value: Any, dtype: str, shape: tuple[int, ...], where: Where) -> Value:
    """Like `parse_array`. If ``shape`` has no elements, any list without elements fits."""
    if 0 in shape and isinstance(value, list) and _is_empty(value):
        return np.empty(shape, numpy_dtype(dtype))
    return parse_array(value, dtype, shape, where)


def _is_empty(value: list[Any]) -> bool:
    return not value or all(one == [] for one in value)


def _flatten(value: Any, shape: tuple[int, ...], into: list[Any], where: Where) -> None:
    if not shape:
        into.append(value)
        return
    if not isinstance(value, list):
        raise where.error(format_value(value), f"a list of {shape[0]}, for shape {list(shape)}")
    if len(value) != shape[0]:
        raise where.error(f"a list of {len(value)}", f"a list of {shape[0]}")
    if len(shape) == 1:
        into += value
        return
    for i, one in enumerate(value):
        _flatten(one, shape[1:], into, where.at(i))


def _exact(flat: list[Any], dtype: str, shape: tuple[int, ...], where: Where) -> Value:
    target = numpy_dtype(dtype)
    kinds = (bool, int) if dtype == "bool" else (int, float)
    if not set(map(type, flat)) <= set(kinds):
        place = next(i for i, one in enumerate(flat) if type(one) not in kinds)
        wanted = "true, false, 0 or 1" if dtype == "bool" else "a number"
        raise _element(where, shape, place).error(format_value(flat[place]), wanted)
    if target.kind in "biu":
        low, high = (0, 1) if dtype == "bool" else (np.iinfo(target).min, np.iinfo(target).max)
        for place, one in enumerate(flat):
            if not low <= one <= high or one != int(one):
                what = f"a whole number from {low} to {high}, for {dtype}"
                raise _element(where, shape, place).error(format_value(one), what)
        return np.array([int(one) for one in flat], np.int64).astype(target)
    wide = np.array([_as_float(one) for one in flat], np.float64)
    with np.errstate(all="ignore"):
        made = wide.astype(target)
        back = made.real.astype(np.float64)
    for place in map(int, np.flatnonzero((back != wide) | (np.abs(wide) >= _WHOLE))):
        one, got = flat[place], float(back[place])
        if isinstance(one, float) and not math.isfinite(one):
            continue
        whole = isinstance(one, int) or (abs(one) < _WHOLE and one.is_integer())
        if math.isinf(got) or (whole and int(got) != one):
            raise _element(where, shape, place).error(
                format_value(one), f"a number that {dtype} has"
            )
    return made


def _as_float(one: int | float) -> float:
    # An integer beyond float64 becomes an infinity, which differs from what was written.
    if isinstance(one, float) or abs(one) <= _MOST:
        return float(one)
    return math.inf if one > 0 else -math.inf


def _element(where: Where, shape: tuple[int, ...], place: int) -> Where:
    return where.at(*(int(i) for i in np.unravel_index(place, shape))) if shape else where


def make_arange(dtype: str, shape: tuple[int, ...], where: Where) -> Value:
    """0, 1, 2, … in row-major order.

    Raises:
        BadInput: the dtype does not have that many distinct integers.
    """
    count, target = math.prod(shape), numpy_dtype(dtype)
    if dtype in _BITS:
        most = 2 ** _BITS[dtype] + 1
    else:
        most = 2 if dtype == "bool" else int(np.iinfo(target).max) + 1
    if count > most:
        raise where.error(f"arange over {count:,} elements", f"at most {most:,}, for {dtype}")
    return np.arange(count).astype(target).reshape(shape)


def split_into_addends(value: Value, mesh: Mesh, layout: Layout, where: Where) -> tuple[Array, ...]:
    """The addend of each mesh position. The pending reductions make ``value`` of them.

    The addends of an element differ between positions if the dtype allows it, and change places
    from element to element. This shows a position that is missing, counted twice or mistaken.

    Raises:
        BadInput: bool, which has no distinct addends, or addends that do not reduce exactly.
    """
    if value.dtype.kind == "b":
        raise where.error("a partial input of bool", "per_device addends")
    # The last reduction is undone first, because it reduces the results of the others.
    parts: dict[tuple[tuple[str, int], ...], Value] = {(): value}
    for group in reversed(reduction_order(layout.partial)):
        for op in sorted({op for _, op in group}):
            axes = [axis for axis in mesh.names if (axis, op) in group]
            spans = [range(mesh[axis]) for axis in axes]
            spread: dict[tuple[tuple[str, int], ...], Value] = {}
            for before, part in parts.items():
                pieces = _spread(part, op, math.prod(map(len, spans)), where)
                for index, piece in zip(itertools.product(*spans), pieces, strict=True):
                    spread[before + tuple(zip(axes, index, strict=True))] = piece
            parts = spread
    by_index = {frozenset(index): part for index, part in parts.items()}
    pending = [axis for axis, _ in layout.partial]
    held = index_ranges(mesh, layout, value.shape)
    return tuple(
        pack(
            by_index[frozenset((axis, at[axis]) for axis in pending)][
                tuple(slice(start, stop) for start, stop in local)
            ]
        )
        for at, local in zip(coordinates(mesh), held, strict=True)
    )


def _spread(value: Value, op: str, count: int, where: Where) -> list[Value]:
    """``count`` arrays that ``op`` reduces exactly to ``value``."""
    if count == 1:
        return [value]
    # rank[i] is 0 at the position that carries an element's value. The carrier changes with each
    # element. The others hold small integers, for which the carrier compensates.
    element = np.arange(value.size).reshape(value.shape)
    ranks = [(element + i) % count for i in range(count)]
    if op == "product":
        # Most products have no distinct factors: the carrier has the value, the others 1.
        return [np.where(rank == 0, value, np.ones_like(value)) for rank in ranks]
    if op in ("max", "min"):
        return [_beyond(value, rank, op) for rank in ranks]
    if value.dtype.kind == "u":
        return _split_unsigned(value, ranks)
    _check_exact(value, op, count, where)
    small = [rank.astype(value.dtype) for rank in ranks]
    if op == "sum":
        # Away from zero, so that no other addend equals the carrier's.
        sign = np.where(value.real < 0, 1, -1).astype(value.dtype)
        carried = value - sign * _as(count * (count - 1) // 2, value)
        return [np.where(rank == 0, carried, sign * one) for rank, one in zip(ranks, small)]
    # The numbers that are added to the value of an average sum to 0.
    return [value + (_as(2, value) * one - _as(count - 1, value)) for one in small]


def _as(number: int, like: Value) -> Value:
    return np.asarray(number).astype(like.dtype)


def _check_exact(value: Value, op: str, count: int, where: Where) -> None:
    """Refuses a value if the sum of its addends could be rounded or overflow."""
    if not value.size:
        return
    # No partial sum is further from zero than this, in any order.
    times, plus = (1, count * (count - 1) // 2) if op == "sum" else (count, count * count)
    error = where.error(f"a value whose addends would not {op} exactly", "per_device addends")
    if value.dtype.kind == "i":
        most = max(abs(int(value.min())), abs(int(value.max())))
        if most * times + plus > np.iinfo(value.dtype).max:
            raise error
        return
    for part in (value.real, value.imag) if value.dtype.kind == "c" else (value,):
        size = np.abs(part).astype(np.float64)
        with np.errstate(all="ignore"):
            bound = size * times + plus
            # The distance between neighbours just below the bound must divide all addends.
            unit = np.exp2(np.ceil(np.log2(bound)) - _BITS[value.dtype.name])
            exact = (np.fmod(size, unit) == 0) & (np.fmod(1.0, unit) == 0)
        if not np.all(exact):
            raise error


def _beyond(value: Value, rank: Value, op: str) -> Any:
    """``value`` at rank 0. At other ranks it is lower (max) or higher (min), by the rank."""
    step = rank.astype(value.dtype)
    if value.dtype.kind not in "iu":
        return value - step if op == "max" else value + step
    info = np.iinfo(value.dtype)
    if op == "min":
        return value + np.minimum(step, info.max - np.maximum(value, 0))
    # A signed value of 0 or more always has enough room below it.
    room = value if value.dtype.kind == "u" else np.minimum(value, -1) - info.min
    return value - np.minimum(step, room)


def _split_unsigned(value: Value, ranks: list[Value]) -> list[Value]:
    # No addend is below 0 or above the value. Each takes its rank, as far as the rest allows.
    taken, left = [], value
    for rank in range(1, len(ranks)):
        part = np.minimum(left, _as(rank, value))
        taken.append(part)
        left = left - part
    stacked = np.stack([left, *taken])
    return [np.take_along_axis(stacked, rank[np.newaxis], 0)[0] for rank in ranks]
