"""Which numbers do a recipe's parameters and inputs have? They follow from names and sizes.

Uses arithmetic only, because a random generator may change in a release. Refuses to know meshes.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cases.arrays import numpy_dtype
from cases.recipes.models import MODELS
from cases.recipes.recipe import ModelTensor

# The learning rate of plain gradient descent. It is large, so that a gradient that is wrong by a
# factor changes the parameters visibly.
LEARNING_RATE = 0.5


def parameter_array(tensor: ModelTensor, sizes: dict[str, int], dtype: str) -> NDArray[Any]:
    """The global array. Its numbers are about 1 in size, and those of a vector are near 1.

    Weights that FSDP shards are about 1/√(last dim). Indices are int64. Neighbours almost never
    are equal, and no real number is 0.
    """
    shape = tensor.sizes(sizes)
    count = np.arange(1, math.prod(shape) + 1, dtype=np.uint64)
    mixed = (count * np.uint64(2654435761) + np.uint64(zlib.crc32(tensor.name.encode()))) % (
        1 << 32
    )
    # The upper bits of a product are better mixed.
    mixed = (mixed ^ (mixed >> np.uint64(15))) * np.uint64(2246822519) % (1 << 32)
    if tensor.values != "real":
        indices: NDArray[Any] = ((mixed >> np.uint64(8)) % sizes[tensor.values]).astype(np.int64)
        return indices.reshape(shape)
    scale = 1 / math.sqrt(shape[-1]) if len(shape) > 1 and tensor.gathered else 1.0
    # Short numbers are exact in float32 and small in a record.
    short = np.round((mixed.astype(np.float64) / (1 << 31) - 1) * scale * 1024 + 0.25) + 0.5
    if len(shape) == 1:
        short = 1024 + short / 4
    return (short / 1024).reshape(shape).astype(numpy_dtype(dtype))


def all_arrays(model: str, sizes: dict[str, int], dtype: str) -> dict[str, NDArray[Any]]:
    """All parameters and inputs of a model, by name."""
    row = MODELS[model]
    return {one.name: parameter_array(one, sizes, dtype) for one in (*row.parameters, *row.inputs)}
