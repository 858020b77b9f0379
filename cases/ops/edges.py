"""Which ops make arrays, leave the global view, or ask for a gradient?

In NumPy, steps between `to_local` and `from_local` run on whole arrays. A case must make sure that
no device needs another's shard there. Refuses to know frameworks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cases.arrays import numpy_dtype
from cases.ops import labels
from cases.ops.op import Op, Value


def _arange(n: int, dtype: str = "float32") -> Value:
    return np.arange(n).astype(numpy_dtype(dtype))


def _full(shape: list[int], value: float, dtype: str = "float32") -> Value:
    return np.full(shape, value).astype(numpy_dtype(dtype))


def _scaled(x: Value, scale: float) -> Value:
    return np.asarray(x * scale)


def _placed(x: Value, view: str = "") -> Value:
    """A layout does not change a value."""
    return x


def _item(x: Value) -> Value:
    if x.size != 1:
        raise ValueError("the array must have one element")
    return x.reshape(())


def _like(y: Value, x: Value) -> Value:
    """The shape and dtype of a gradient. Its value needs the whole program."""
    if y.size != 1 or y.dtype.kind not in "fV" or x.dtype.kind not in "fV":
        raise ValueError("takes a real scalar and a real input")
    return np.zeros_like(x)


def _make(name: str, meaning: Any, *required: str, **about: Any) -> Op:
    return Op(name, "creation", (), meaning, required=required, places=True, **about)


ROWS = (
    _make("arange", _arange, "n", optional=("dtype",), whole=True),
    _make("full", _full, "shape", "value", optional=("dtype",), whole=True),
    Op("to_local", "local", ("x",), lambda x: x, moves=True, whole=True, grads=(0,)),
    Op("from_local", "local", ("x",), _placed, optional=("view",), moves=True, whole=True,
       grads=(0,), places=True),
    Op("full_tensor", "local", ("x",), lambda x: x, moves=True, whole=True),
    Op("distribute", "local", ("x",), _placed, optional=("view",), moves=True, whole=True,
       places=True),
    Op("map_shards", "local", ("x",), _scaled, required=("scale",), labels=labels.same_dims,
       linear=frozenset({"sum", "avg"}), whole=True, grads=(0,), places=True),
    Op("item", "local", ("x",), _item, moves=True, whole=True),
    Op("grad", "gradient", ("y", "x"), _like, roundings=64,
       why="roundings of the forward and the backward program add up"),
)  # fmt: skip
