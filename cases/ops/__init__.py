"""Which ops can a program use? The vocabulary: one row per op, in a module per family.

Names are the Array API's where it has them.
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
