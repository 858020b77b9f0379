"""Which ops can a program use? The vocabulary has one row for each op, in a module per family.

Ops have the names of the Array API where it has one. Refuses to know frameworks.
"""

from __future__ import annotations

from cases.ops import (
    algebra,
    contractions,
    edges,
    indexing,
    networks,
    ordering,
    pointwise,
    randomness,
    reductions,
    shapes,
)
from cases.ops.op import Op, tolerance

OPS: dict[str, Op] = {
    row.name: row
    for rows in (
        pointwise.MOVES, pointwise.ROWS, reductions.ROWS, contractions.ROWS, shapes.ROWS,
        indexing.ROWS, indexing.INPLACE, ordering.ROWS, networks.ROWS, algebra.ROWS, edges.ROWS,
        randomness.ROWS,
    )
    for row in rows
}  # fmt: skip

__all__ = ["OPS", "Op", "tolerance"]
