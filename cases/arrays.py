"""How does an array travel between processes and files? As dtype name, shape and raw bytes.

Knows NumPy, and bfloat16 of ml_dtypes. Refuses to know any framework, so that an answer can be
read where no framework is installed.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
from numpy.typing import NDArray

# The dtypes that a case may name. NumPy, torch and JAX have all of them on CPU.
DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip


class Array(msgspec.Struct, frozen=True):
    """An array as data. ``data`` has the elements in C order and little-endian."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype called ``name``. ml_dtypes has bfloat16.

    Raises:
        ValueError: ``name`` is not in `DTYPES`.
    """
    if name not in DTYPES:
        raise ValueError(f"unknown dtype {name!r}")
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def pack(array: NDArray[Any]) -> Array:
    """An `Array` of a NumPy array in any memory order."""
    return Array(array.dtype.name, array.shape, np.ascontiguousarray(array).tobytes())


def unpack(array: Array) -> NDArray[Any]:
    """The NumPy array that `pack` was given. It is read-only, because it views the bytes.

    Raises:
        ValueError: the bytes do not fill the shape, or the dtype is unknown.
    """
    return np.frombuffer(array.data, numpy_dtype(array.dtype)).reshape(array.shape)
