"""Which ops can a program use? Which arguments, and what does each mean in NumPy?

One row per op: its name (the Array API's where that has one), its arguments, its parameters,
its meaning in NumPy and the family whose layout rule it follows. How a framework spells the
op is that framework's own row, in its adapter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from cases.model import REDUCTIONS, Param, Tolerance

Value = NDArray[Any]
Family = Literal["move", "pointwise", "reduction", "contraction"]


class Op(msgspec.Struct, frozen=True):
    """One row of the vocabulary.

    ``meaning`` takes the arguments in order and the parameters by name. ``required`` and
    ``optional`` are parameter names. ``linear``: the pending reductions that the op passes
    through when every argument owes the same. ``each``: the arguments in which it is linear
    one at a time, the others held fixed. ``reduces``: the reduction that it is over the dims
    that vanish; "sum" for contractions.
    """

    name: str
    family: Family
    args: tuple[str, ...]
    meaning: Callable[..., Any]
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    linear: frozenset[str] = frozenset()
    each: tuple[int, ...] = ()
    reduces: str = ""


def _sum_dtype(x: Value) -> np.dtype[Any]:
    # NumPy, torch and JAX (with 64-bit types on) all widen integer sums to 64 bits.
    return np.dtype(np.int64) if x.dtype.kind in "bi" else x.dtype


def _axes(axis: Any) -> Any:
    return tuple(axis) if isinstance(axis, list) else axis


def _wide(x: Value) -> Value:
    # Floats are summed in float64 and rounded once.
    return x.astype(np.float64) if x.dtype.kind not in "biuc" and x.dtype.itemsize < 8 else x


def _reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    def meaning(x: Value, axis: Param = None, keepdims: bool = False) -> Value:
        out = np.asarray(function(_wide(x), axis=_axes(axis), keepdims=keepdims))
        return out.astype(x.dtype) if _wide(x) is not x else out

    return meaning


def _sum(x: Value, axis: Param = None, keepdims: bool = False) -> Value:
    total = np.sum(_wide(x), axis=_axes(axis), keepdims=keepdims, dtype=_sum_dtype(_wide(x)))
    return np.asarray(total).astype(_sum_dtype(x) if x.dtype.kind in "bi" else x.dtype)


def _prod(x: Value, axis: Param = None, keepdims: bool = False) -> Value:
    total = np.prod(_wide(x), axis=_axes(axis), keepdims=keepdims, dtype=_sum_dtype(_wide(x)))
    return np.asarray(total).astype(_sum_dtype(x) if x.dtype.kind in "bi" else x.dtype)


def _contract(function: Callable[..., Any]) -> Callable[..., Any]:
    def meaning(x: Value, w: Value, **params: Any) -> Value:
        dtype = np.result_type(x, w)
        return np.asarray(function(_wide(x), _wide(w), **params)).astype(dtype)

    return meaning


def _einsum(x: Value, w: Value, subscripts: str) -> Value:
    return np.asarray(np.einsum(subscripts, x, w))


_SUM_LIKE = frozenset({"sum", "avg"})
_ANY = frozenset(REDUCTIONS)

_ROWS = (
    Op("redistribute", "move", ("x",), lambda x: x, linear=_ANY),
    Op("identity", "move", ("x",), lambda x: x, linear=_ANY),
    Op("add", "pointwise", ("x", "y"), np.add, linear=_SUM_LIKE),
    Op("subtract", "pointwise", ("x", "y"), np.subtract, linear=_SUM_LIKE),
    Op("multiply", "pointwise", ("x", "y"), np.multiply, each=(0, 1)),
    Op("divide", "pointwise", ("x", "y"), np.divide, each=(0,)),
    Op("maximum", "pointwise", ("x", "y"), np.maximum, linear=frozenset({"max"})),
    Op("minimum", "pointwise", ("x", "y"), np.minimum, linear=frozenset({"min"})),
    Op("negative", "pointwise", ("x",), np.negative, linear=_SUM_LIKE),
    Op("abs", "pointwise", ("x",), np.abs),
    Op("square", "pointwise", ("x",), np.square),
    Op("exp", "pointwise", ("x",), np.exp),
    Op("sum", "reduction", ("x",), _sum, optional=("axis", "keepdims"),
       linear=_SUM_LIKE, reduces="sum"),
    Op("mean", "reduction", ("x",), _reduce(np.mean), optional=("axis", "keepdims"),
       linear=_SUM_LIKE, reduces="avg"),
    Op("max", "reduction", ("x",), _reduce(np.max), optional=("axis", "keepdims"),
       linear=frozenset({"max"}), reduces="max"),
    Op("min", "reduction", ("x",), _reduce(np.min), optional=("axis", "keepdims"),
       linear=frozenset({"min"}), reduces="min"),
    Op("prod", "reduction", ("x",), _prod, optional=("axis", "keepdims"),
       linear=frozenset({"product"}), reduces="product"),
    Op("matmul", "contraction", ("x", "w"), _contract(np.matmul), each=(0, 1), reduces="sum"),
    Op("einsum", "contraction", ("x", "w"), _contract(_einsum),
       required=("subscripts",), each=(0, 1), reduces="sum"),
)  # fmt: skip

OPS = {row.name: row for row in _ROWS}

# Relative to the largest magnitude met, about 8 roundings of the dtype: contractions here
# sum at most a few dozen terms, in an order that a framework is free to choose.
_ULPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


def tolerance(dtype: str) -> Tolerance:
    """How far a floating-point result may be from its NumPy meaning.

    Data movement and integer-valued sums are held bit for bit and do not come here.
    """
    if dtype not in _ULPS:
        return Tolerance()
    eps = _ULPS[dtype]
    return Tolerance(8 * eps, 8 * eps, "8 roundings: sums may be done in any order")
