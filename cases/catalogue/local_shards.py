"""Which device holds which part? Placements over many meshes, shapes and dtypes.

The inputs are checked, and there is no program. Meshes have one to three axes over 1 to 8 devices,
with axes of size 1 and unordered devices. Tensors have 0 to 4 dims, even, uneven, empty or of size
1, and several axes on one dim in both orders. Refuses to know the right shards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from cases.catalogue.build import (
    NO_ELEMENTS,
    all_placements,
    covering_rows,
    layout_name,
    layout_of,
    make_case,
    make_input,
    mesh_name,
    shape_name,
)
from cases.layout import is_even
from cases.model import Case, Layout, Mesh, mesh

FAMILY = "shards"

MESHES = (
    mesh({"x": 1}),
    mesh({"x": 2}),
    mesh({"x": 3}),
    mesh({"x": 4}),
    mesh({"x": 8}),
    mesh({"x": 4}, (3, 2, 1, 0)),
    mesh({"x": 4}, (2, 0, 3, 1)),
    mesh({"a": 2, "b": 2}),
    mesh({"a": 2, "b": 2}, (0, 2, 1, 3)),
    mesh({"a": 2, "b": 2}, (3, 2, 1, 0)),
    mesh({"a": 1, "b": 4}),
    mesh({"a": 4, "b": 1}),
    mesh({"a": 2, "b": 3}),
    mesh({"a": 2, "b": 4}),
    mesh({"a": 2, "b": 2, "c": 2}),
    mesh({"a": 2, "b": 1, "c": 4}),
    mesh({"a": 2, "b": 2, "c": 2}, (7, 5, 3, 1, 6, 4, 2, 0)),
)

# Even on most meshes, uneven, with empty shards, with a dim of size 1, with no elements.
SHAPES: tuple[tuple[int, ...], ...] = (
    (),
    (8,), (5,), (1,), (0,),
    (8, 8), (5, 3), (1, 8), (3, 0), (16, 4),
    (8, 4, 8), (6, 5, 2),
    (4, 8, 2, 8), (2, 3, 4, 5),
)  # fmt: skip
DTYPES = ("float32", "bfloat16", "int32", "bool")


def cases(exhaustive: bool) -> Iterator[Case]:
    """A covering sample, or all placements of R and S(d) on all meshes and shapes."""
    for number, (on, shape) in enumerate((on, shape) for on in MESHES for shape in SHAPES):
        options = ("R", *(f"S({dim})" for dim in range(len(shape))))
        rows = all_placements(options, len(on.axes))
        if not exhaustive:
            # Rotating through the rows lets each mesh meet each placement over the shapes.
            rows = [rows[(number * 7 + step * 5) % len(rows)] for step in range(2)]
            rows = list(dict.fromkeys(rows))
        for row in rows:
            yield _case(on, layout_of(on, row, len(shape)), shape, DTYPES[number % 4])
    yield from _orders()
    yield from _dtypes()


def _case(on: Mesh, layout: Layout, shape: tuple[int, ...], dtype: str) -> Case:
    id = f"{mesh_name(on)}-{layout_name(on, layout)}-{shape_name(shape)}-{dtype}"
    given = make_input("x", on, layout, shape, dtype, start=1)
    return make_case(
        FAMILY, id, on, (given,), tags=_tags(on, layout, shape),
        insensitive=NO_ELEMENTS if 0 in shape and is_even(on, layout, shape) else "",
    )  # fmt: skip


def _tags(on: Mesh, layout: Layout, shape: tuple[int, ...]) -> frozenset[str]:
    tags = set()
    parts = [
        (size, math.prod(on[axis] for axis in axes))
        for size, axes in zip(shape, layout.dims, strict=True)
    ]
    if not is_even(on, layout, shape):
        tags.add("uneven")
    if any(size % count for size, count in parts):
        tags.add("indivisible")
    if on.devices != tuple(sorted(on.devices)):
        tags.add("device-order")
    return frozenset(tags)


def _orders() -> Iterator[Case]:
    """Several axes on one dim, in both orders."""
    two, wide, three = (
        mesh({"a": 2, "b": 2}),
        mesh({"a": 2, "b": 4}),
        mesh({"a": 2, "b": 2, "c": 2}),
    )
    for on, axes, shape in (
        (two, ("b", "a"), (8, 2)),
        (two, ("b", "a"), (6, 2)),
        (two, ("b", "a"), (5, 2)),
        (wide, ("b", "a"), (16, 2)),
        (wide, ("b", "a"), (11, 2)),
        (three, ("c", "b", "a"), (8, 2)),
        (three, ("b", "c", "a"), (16, 2)),
        (three, ("c", "a", "b"), (8, 2)),
        (three, ("c", "a"), (8, 2)),
    ):
        yield _case(on, Layout((axes, ())), shape, "float32")
        yield _case(on, Layout(((), axes)), shape[::-1], "int32")


def _dtypes() -> Iterator[Case]:
    """Each dtype with each kind of placement, at least once."""
    on = mesh({"a": 2, "b": 2})
    for placements, shape, dtype in covering_rows(
        [("S(0)", "S(1)"), ("S(0)", "S(0)"), ("R", "S(1)"), ("R", "R")],
        [(8, 8), (4, 4, 2), (6, 7)],
        ["float16", "bfloat16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool"],
    ):
        yield _case(on, layout_of(on, placements, len(shape)), shape, dtype)
