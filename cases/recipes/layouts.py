"""Which layout does each tensor of a recipe have? It follows from the roles of dims and axes.

The parallel plan means the same layouts in all frameworks. Refuses to know how they apply it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from cases.model import Layout, Mesh
from cases.recipes.models import MODELS
from cases.recipes.recipe import ModelTensor, RecipeKind

Sizes = Mapping[str, int]


def parameter_layout(row: RecipeKind, tensor: ModelTensor, sizes: Sizes, mesh: Mesh) -> Layout:
    """The layout of a parameter and of its gradient.

    Tensor parallelism splits before FSDP, so the tensor axis is the major one in a dim.
    """
    dims = [_split(row, role) for role in tensor.roles]
    dim = fsdp_dim(row, tensor, sizes, mesh)
    if dim is not None:
        dims[dim] += row.shard
    return Layout(tuple(dims))


def fsdp_dim(row: RecipeKind, tensor: ModelTensor, sizes: Sizes, mesh: Mesh) -> int | None:
    """The dim of a parameter that FSDP shards; None if it shards none.

    It is the first dim that splits evenly, or dim 0 if none does. ``fully_shard`` uses dim 0 by
    default.
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
    """The layouts of all parameters, gradients, new parameters and inputs, of out and grad/x."""
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
    """The global shapes of all `observed_names`."""
    model = MODELS[row.model]
    known = {one.name: one.sizes(sizes) for one in (*model.parameters, *model.inputs, model.out)}
    return {
        name: () if name == "loss" else known[name.rpartition("/")[2]]
        for name in observed_names(row)
    }


def names_of_parameter(parameter: str) -> tuple[str, str, str]:
    """The names in an answer of a parameter, its gradient, and its value after the step."""
    return parameter, f"grad/{parameter}", f"new/{parameter}"


def observed_names(row: RecipeKind) -> tuple[str, ...]:
    """The names that an answer shows of the sharded step, in this order.

    They are the parameters, ``out``, ``loss``, ``grad/…`` of each parameter and of the input
    ``x``, and ``new/…`` of each parameter.
    """
    model = MODELS[row.model]
    parameters = [tensor.name for tensor in model.parameters]
    grads = [f"grad/{name}" for name in parameters]
    grads += ["grad/x" for one in model.inputs if one.name == "x"]
    return (*parameters, "out", "loss", *grads, *(f"new/{name}" for name in parameters))


def unsharded_names(row: RecipeKind) -> tuple[str, ...]:
    """The names that it shows of the unsharded step on one device, such as ``plain/out``."""
    parameters = {tensor.name for tensor in MODELS[row.model].parameters}
    return tuple(f"plain/{name}" for name in observed_names(row) if name not in parameters)
