"""How is an array converted to a torch tensor and back? The bytes are copied without arithmetic.

This module knows nothing of meshes or layouts.
"""

from __future__ import annotations

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from cases.arrays import DTYPES, Array

_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in DTYPES}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def to_tensor(array: Array) -> torch.Tensor:
    """A new contiguous CPU tensor with the elements of ``array``.

    Raises:
        KeyError: the dtype is not in `DTYPES`.
    """
    dtype = _DTYPES[array.dtype]
    if not array.data:
        return torch.empty(array.shape, dtype=dtype)
    # The bytearray is a writable copy. torch warns about read-only memory.
    return torch.frombuffer(bytearray(array.data), dtype=dtype).reshape(array.shape)


def to_array(tensor: torch.Tensor) -> Array:
    """The elements of a plain tensor in C order. Waits for a collective that still writes to it.

    A dtype outside `DTYPES` keeps its torch name.
    """
    if isinstance(tensor, AsyncCollectiveTensor):
        tensor = tensor.wait()
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    name = _NAMES.get(tensor.dtype) or str(tensor.dtype).removeprefix("torch.")
    if not tensor.numel():
        return Array(name, tuple(tensor.shape), b"")
    # NumPy has no bfloat16. A tensor with at least one dim can be viewed as bytes in any dtype.
    data = tensor.numpy() if name in _NUMPY else tensor.reshape(-1).view(torch.uint8).numpy()
    return Array(name, tuple(tensor.shape), data.tobytes())


_NUMPY = frozenset(DTYPES) - {"bfloat16"}
