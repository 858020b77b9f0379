"""How are inputs and ids of generated cases made? So that mistakes show and ids can be typed.

Elements are distinct integers. Addends differ between devices by more than these, so that no addend
can replace another. Refuses to know which cases there are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from allpairspy import AllPairs
from numpy.typing import NDArray

from cases.arrays import numpy_dtype, pack
from cases.layout import coordinates, index_ranges
from cases.model import Case, Input, Layout, Mesh, Question, Step
from cases.notation import from_placements, to_placements

# Why a case with an empty tensor notices no wrong value.
NO_ELEMENTS = "it has no elements"

# The dtype holds integers up to here exactly.
_ROOM = {"bfloat16": 256, "float16": 2048}


def distinct_values(shape: tuple[int, ...], dtype: str = "float32", start: int = 0) -> NDArray[Any]:
    """start, start + 1, ... in row-major order. For bool, a pattern that no rotation repeats.

    In narrow dtypes the numbers start again before they would be rounded.
    """
    count = np.arange(math.prod(shape)) + start
    if dtype == "bool":
        # Bits of multiples of the golden ratio are neither periodic nor symmetric.
        bits: NDArray[Any] = np.floor(count * 0.6180339887) % 2 == 0
        return bits.reshape(shape)
    return (count % _ROOM.get(dtype, 2**24)).astype(numpy_dtype(dtype)).reshape(shape)


def addend(value: NDArray[Any], place: int, op: str, apart: int = 1000) -> NDArray[Any]:
    """The addend number ``place`` of a pending reduction.

    ``apart``: the distance between addends of a sum. It bounds the sum.
    """
    count = np.arange(value.size).reshape(value.shape)
    if op == "product":
        # Factors are 1, 2 and 3, so that a product of eight stays exact.
        return ((count * (place + 1) + place) % 3 + 1).astype(value.dtype)
    if op in ("max", "min"):
        # At every element another device has the extreme value.
        return (value + 100 * ((count + place) % 5) + place).astype(value.dtype)
    if value.dtype.name in _ROOM:
        # Sums must stay exact too.
        return (count * (place + 1) % 5 + place).astype(value.dtype)
    return (value + apart * place * (place + 1) + place).astype(value.dtype)


def make_input(
    name: str,
    on: Mesh,
    layout: Layout,
    shape: tuple[int, ...],
    dtype: str = "float32",
    start: int = 0,
    apart: int = 1000,
) -> Input:
    """An input in a layout: a global array, or if it is partial one addend for each device."""
    whole = distinct_values(shape, dtype, start)
    if not layout.partial:
        return Input(name, shape, dtype, layout, value=pack(whole))
    owed = [axis for axis, _ in layout.partial]
    per_device = []
    for where, held in zip(coordinates(on), index_ranges(on, layout, shape), strict=True):
        place = 0
        for axis in owed:
            place = place * on[axis] + where[axis]
        full = addend(whole, place, layout.partial[0][1], apart)
        per_device.append(pack(full[tuple(slice(*span) for span in held)]))
    return Input(name, shape, dtype, layout, per_device=tuple(per_device))


def layout_of(on: Mesh, placements: Sequence[str], ndim: int) -> Layout:
    """`from_placements`, for placements written in code."""
    return from_placements(placements, on, ndim)


def mesh_name(on: Mesh) -> str:
    """``a2.b2`` for a mesh {a=2, b=2}, or ``x4-d3.2.1.0`` for devices that are not in order."""
    name = ".".join(f"{axis}{size}" for axis, size in on.axes)
    if on.devices != tuple(range(on.size)):
        name += "-d" + ".".join(map(str, on.devices))
    return name


def layout_name(on: Mesh, layout: Layout) -> str:
    """``s0.s1`` for [S(0), S(1)]; ``p`` for P(sum), ``pmax`` for P(max), ``s0f2`` for SS(0,2)."""
    words = []
    for text in to_placements(layout, on):
        kind, _, inner = text.rstrip(")").partition("(")
        inner = inner.replace(" ", "")
        if kind == "P":
            words.append("p" if inner == "sum" else f"p{inner}")
        elif kind == "SS":
            words.append("s" + inner.replace(",", "f"))
        else:
            words.append(kind.lower() + inner)
    return ".".join(words)


def shape_name(shape: tuple[int, ...]) -> str:
    """``5x3``; ``0d`` for a scalar."""
    return "x".join(map(str, shape)) or "0d"


def make_case(
    family: str,
    id: str,
    on: Mesh,
    inputs: tuple[Input, ...],
    steps: tuple[Step, ...] = (),
    check: tuple[str, ...] = (),
    tags: frozenset[str] = frozenset(),
    insensitive: str = "",
) -> Case:
    """A case of a generated family."""
    names = tuple(given.name for given in inputs) + tuple(step.result for step in steps)
    question = Question(id, on, inputs, steps, check or names)
    return Case(question, family=family, tags=tags, insensitive=insensitive)


def covering_rows(*choices: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Rows in which any two values of two columns occur together at least once."""
    return [tuple(row) for row in AllPairs(list(map(list, choices)))]


def all_placements(placements: Sequence[str], axes: int) -> list[tuple[str, ...]]:
    """All choices of one placement for each mesh axis."""
    return list(itertools.product(placements, repeat=axes))
