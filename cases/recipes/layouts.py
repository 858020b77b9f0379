"""How does each of a recipe's tensors lie on a mesh? By what each dim is and what each axis is for.

One layout per tensor: what the parallel plan means, whichever framework carries it out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from cases.model import Layout, Mesh
from cases.recipes.models import MODELS
from cases.recipes.recipe import ModelTensor, RecipeKind

Sizes = Mapping[str, int]


def parameter_layout(row: RecipeKind, tensor: ModelTensor, sizes: Sizes, mesh: Mesh) -> Layout:
    """The layout of a parameter, and of its gradient.

    Tensor parallelism splits first and FSDP splits what is left. So in one dim the tensor axis is
    major.
    """
    dims = [_split(row, role) for role in tensor.roles]
    dim = fsdp_dim(row, tensor, sizes, mesh)
    if dim is not None:
        dims[dim] += row.shard
    return Layout(tuple(dims))


def fsdp_dim(row: RecipeKind, tensor: ModelTensor, sizes: Sizes, mesh: Mesh) -> int | None:
    """The dim of a parameter that FSDP shards; None if it shards none.

    Dim 0, as in ``fully_shard`` by default, or else the first dim that splits evenly: eight key
    heads do not split over 256 x 8 devices.
    """
    if not row.shard or not tensor.gathered:
        return None
    shape = tensor.sizes(sizes)
    for dim, role in enumerate(tensor.roles):
        parts = math.prod(mesh[axis] for axis in (*_split(row, role), *row.shard))
        if shape[dim] % parts == 0:
            return dim
    return 0


def data_layout(row: RecipeKind, tensor: ModelTensor) -> Layout:
    """The layout of an input or of the result."""
    return Layout(tuple(_split(row, role) for role in tensor.roles))


def _split(row: RecipeKind, role: str) -> tuple[str, ...]:
    match role:
        case "batch":
            return row.batch
        case "sequence":
            return row.sequence
        case "tensor":
            return (row.tensor,) if row.tensor else ()
        case "expert":
            return (row.expert,) if row.expert else ()
    return ()


def tensor_layouts(row: RecipeKind, sizes: Sizes, mesh: Mesh) -> dict[str, Layout]:
    """Layouts of each parameter, its gradient and next value; of out, and of the gradient of x."""
    model = MODELS[row.model]
    found: dict[str, Layout] = {}
    for tensor in model.parameters:
        found |= dict.fromkeys(
            names_of_parameter(tensor.name), parameter_layout(row, tensor, sizes, mesh)
        )
    for tensor in (model.out, *model.inputs):
        found[tensor.name] = data_layout(row, tensor)
        if tensor.name == "x":
            found["grad/x"] = found["x"]
    return found


def global_shapes(row: RecipeKind, sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """The global shape of everything in `observed_names`."""
    model = MODELS[row.model]
    known = {one.name: one.sizes(sizes) for one in (*model.parameters, *model.inputs, model.out)}
    return {
        name: () if name == "loss" else known[name.rpartition("/")[2]]
        for name in observed_names(row)
    }


def names_of_parameter(parameter: str) -> tuple[str, str, str]:
    """What an answer calls a parameter, its gradient, and its value after one step."""
    return parameter, f"grad/{parameter}", f"new/{parameter}"


def observed_names(row: RecipeKind) -> tuple[str, ...]:
    """All that an answer about a recipe shows of the sharded step, in this order.

    Parameters; ``out`` and ``loss``; ``grad/…`` of every parameter and of the input ``x``, as the
    layer before would get it; ``new/…`` of every parameter.
    """
    model = MODELS[row.model]
    parameters = [tensor.name for tensor in model.parameters]
    grads = [f"grad/{name}" for name in parameters]
    grads += ["grad/x" for one in model.inputs if one.name == "x"]
    return (*parameters, "out", "loss", *grads, *(f"new/{name}" for name in parameters))


def unsharded_names(row: RecipeKind) -> tuple[str, ...]:
    """What it shows of the same step on one device, unsharded: ``plain/out`` and so on."""
    parameters = {tensor.name for tensor in MODELS[row.model].parameters}
    return tuple(f"plain/{name}" for name in observed_names(row) if name not in parameters)
