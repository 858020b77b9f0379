"""What does a contraction of sharded operands give? matmul and einsum under every placement.

All pairs of placements of two operands on an axis of 4, and a covering set on 2x2. The framework
chooses the result's layout, or the case asks for one. Refuses to know the right results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cases.catalogue.build import (
    all_placements,
    covering_rows,
    layout_name,
    layout_of,
    make_case,
    make_input,
    mesh_name,
)  # fmt: skip
from cases.model import Case, Mesh, Param, Step, mesh

FAMILY = "contraction"

ONE = mesh({"x": 4})
TWO = mesh({"a": 2, "b": 2})
PLANE = ("R", "S(0)", "S(1)", "P(sum)")

# The name in the id, subscripts, shapes of the operands, number of dims of the result.
EINSUMS: tuple[tuple[str, str, tuple[int, ...], tuple[int, ...], int], ...] = (
    ("dot", "k,k->", (8,), (8,), 0),
    ("outer", "m,n->mn", (4,), (8,), 2),
    ("matvec", "mk,k->m", (8, 4), (4,), 1),
    ("batched", "bmk,bkn->bmn", (4, 4, 8), (4, 8, 4), 3),
    ("transposed", "mk,nk->nm", (4, 8), (8, 8), 2),
)


def cases(exhaustive: bool) -> Iterator[Case]:
    """The family. With ``exhaustive``, it has all pairs on 2x2."""
    for left in all_placements(PLANE, 1):
        for right in all_placements(PLANE, 1):
            yield matmul(ONE, left, right, None)
            for asked in ("R", "S(0)", "S(1)"):
                yield matmul(ONE, left, right, (asked,))
    if exhaustive:
        pairs = [
            (*left, *right)
            for left in all_placements(PLANE, 2)
            for right in all_placements(PLANE, 2)
        ]
    else:
        pairs = covering_rows(*[PLANE] * 4)
    asks = (("R", "R"), ("S(0)", "S(1)"), ("S(1)", "R"), ("S(0)", "S(0)"), ("R", "S(0)"))
    for number, row in enumerate(pairs):
        yield matmul(TWO, row[:2], row[2:], None)
        yield matmul(TWO, row[:2], row[2:], asks[number % len(asks)])
    for name, subscripts, left_shape, right_shape, ndim in EINSUMS:
        options = [
            ["R", *(f"S({dim})" for dim in range(len(shape))), "P(sum)"]
            for shape in (left_shape, right_shape)
        ]
        for one in options[0]:
            for other in options[1]:
                shapes = (left_shape, right_shape)
                yield einsum(name, subscripts, shapes, (one,), (other,), None, ndim)
                target = ("S(0)",) if ndim and (one, other) != ("R", "R") else ("R",)
                yield einsum(name, subscripts, shapes, (one,), (other,), target, ndim)


def matmul(
    on: Mesh, left: Sequence[str], right: Sequence[str], asked: Sequence[str] | None
) -> Case:
    """One matmul of x (8x16) and w (16x8)."""
    return _case("matmul", "matmul", {}, on, ((8, 16), (16, 8)), left, right, asked, 2)


def einsum(
    name: str,
    subscripts: str,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    left: Sequence[str],
    right: Sequence[str],
    asked: Sequence[str] | None,
    ndim: int,
) -> Case:
    """One einsum of x and w on an axis of 4."""
    params: dict[str, Param] = {"subscripts": subscripts}
    return _case(f"einsum.{name}", "einsum", params, ONE, shapes, left, right, asked, ndim)


def _case(
    name: str,
    op: str,
    params: dict[str, Param],
    on: Mesh,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    left: Sequence[str],
    right: Sequence[str],
    asked: Sequence[str] | None,
    ndim: int,
) -> Case:
    x, w = (
        layout_of(on, row, len(shape)) for row, shape in zip((left, right), shapes, strict=True)
    )
    to = None if asked is None else layout_of(on, asked, ndim)
    id = f"{name}-{mesh_name(on)}-{layout_name(on, x)}-by-{layout_name(on, w)}"
    id += "" if to is None else f"-to-{layout_name(on, to)}"
    tags = {"asked" if to is not None else "left"}
    if x.partial or w.partial:
        tags.add("partial-operand")
    return make_case(
        FAMILY, id, on,
        (
            make_input("x", on, x, shapes[0], start=1, apart=16),
            make_input("w", on, w, shapes[1], start=2, apart=16),
        ),
        (Step("y", op, ("x", "w"), params, to),), check=("y",), tags=frozenset(tags),
    )  # fmt: skip
