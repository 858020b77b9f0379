"""Which type does each parameter of an op have? One test for each name, the same for all ops.

Refuses to know which op takes which parameter: the ops' rows say that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cases.arrays import DTYPES
from cases.ops.randomness import GENERATORS, SEEDINGS

# That is 64 MiB of float32 in every process, and in every copy that a run keeps.
MAX_ELEMENTS = 2**24


def _is_axis(value: Any) -> bool:
    return value is None or type(value) is int or _are_axes(value)


def _are_axes(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int for one in value)


def _is_whole(value: Any) -> bool:
    return type(value) is int


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_ELEMENTS


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, list)
        and all(type(one) is int and -1 <= one <= MAX_ELEMENTS for one in value)
        and math.prod(value) <= MAX_ELEMENTS
    )


def _is_each(value: Any) -> bool:
    return _is_size(value) or (isinstance(value, list) and all(map(_is_size, value)))


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(one) is str for one in value)


_SIZE = (_is_size, f"an integer from 0 to {MAX_ELEMENTS:,}")
_INTEGER = (_is_whole, "an integer")
_NUMBER = (_is_number, "a finite number")
_FLAG = (_is_flag, "true or false")
_SHAPE = (_is_shape, f"a list of sizes, at most {MAX_ELEMENTS:,} elements")

# For each parameter a test, and a description of the values that pass it.
PARAMS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "axis": (_is_axis, "an integer or a list of integers"),
    "axes": (_are_axes, "a list of integers"),
    "keepdims": _FLAG,
    "subscripts": (lambda value: isinstance(value, str), "a string such as 'ij,jk->ik'"),
    "view": (lambda value: isinstance(value, str), "the name of a mesh step"),
    "shape": _SHAPE,
    "dtype": (lambda value: value in DTYPES, "a dtype: " + ", ".join(DTYPES)),
    "reduction": (lambda value: value in ("mean", "sum", "none"), "'mean', 'sum' or 'none'"),
    "ord": (lambda value: value == "inf" or _is_number(value), "a number or 'inf'"),
    "min": _NUMBER,
    "max": _NUMBER,
    "value": _NUMBER,
    "scale": _NUMBER,
    "delta": _NUMBER,
    "beta": _NUMBER,
    "eps": _NUMBER,
    "correction": _SIZE,
    "start": _SIZE,
    "stop": _SIZE,
    "end": _INTEGER,
    "step": _SIZE,
    "index": _SIZE,
    "shift": _INTEGER,
    "diagonal": _INTEGER,
    "before": _SIZE,
    "after": _SIZE,
    "sections": _SIZE,
    "chunks": _SIZE,
    "part": _SIZE,
    "repeats": _SIZE,
    "classes": _SIZE,
    "size": _SIZE,
    "n": _SIZE,
    "k": _SIZE,
    "seed": _SIZE,
    "draw": _SIZE,
    "p": (lambda value: _is_number(value) and 0 <= value < 1, "a number from 0 to less than 1"),
    "whole": _FLAG,
    "distinct": (_are_names, "a list of mesh axes"),
    "seeding": (lambda value: value in SEEDINGS, "'process', 'mesh' or 'generator'"),
    "impl": (lambda value: value in GENERATORS, "a generator: " + ", ".join(GENERATORS)),
    "padding_row": _SIZE,
    "padding": (_is_each, "a size, or one for each place"),
    "stride": (_is_each, "a size, or one for each place"),
    "ignore": _INTEGER,
    "causal": _FLAG,
    "descending": _FLAG,
}
