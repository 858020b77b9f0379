"""Which numbers do a recipe's parameters and inputs have? The same everywhere, from names alone.

Plain arithmetic and no random generator, since generators may change from release to release.
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

# The learning rate of one step of plain gradient descent. It is large, so that a gradient that is
# wrong by a factor moves the parameters visibly.
LEARNING_RATE = 0.5


def parameter_array(tensor: ModelTensor, sizes: dict[str, int], dtype: str) -> NDArray[Any]:
    """The global array, of numbers of size about 1.

    About 1/√(last dim) for weights that FSDP shards; near 1 for vectors. Indices are int64. Hardly
    any two neighbours are equal, and no real number is zero.
    """
    shape = tensor.sizes(sizes)
    count = np.arange(1, math.prod(shape) + 1, dtype=np.uint64)
    mixed = (count * np.uint64(2654435761) + np.uint64(zlib.crc32(tensor.name.encode()))) % (
        1 << 32
    )
    # The upper bits of a product are the ones that are well mixed.
    mixed = (mixed ^ (mixed >> np.uint64(15))) * np.uint64(2246822519) % (1 << 32)
    if tensor.values != "real":
        indices: NDArray[Any] = ((mixed >> np.uint64(8)) % sizes[tensor.values]).astype(np.int64)
        return indices.reshape(shape)
    scale = 1 / math.sqrt(shape[-1]) if len(shape) > 1 and tensor.gathered else 1.0
    # Short numbers are exact in float32, and keep records small.
    short = np.round((mixed.astype(np.float64) / (1 << 31) - 1) * scale * 1024 + 0.25) + 0.5
    if len(shape) == 1:
        short = 1024 + short / 4
    return (short / 1024).reshape(shape).astype(numpy_dtype(dtype))


def all_arrays(model: str, sizes: dict[str, int], dtype: str) -> dict[str, NDArray[Any]]:
    """Every parameter and input of a model, by name."""
    row = MODELS[model]
    return {one.name: parameter_array(one, sizes, dtype) for one in (*row.parameters, *row.inputs)}
