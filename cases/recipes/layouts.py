"""How do a recipe's tensors lie on a mesh? By what each dim is and what each axis is for.

One layout per tensor: what the parallel plan means, whichever framework carries it out.
"""

from __future__ import annotations

from cases.model import Layout
from cases.recipes.models import MODELS
from cases.recipes.row import Row, Tensor


def parameter(row: Row, tensor: Tensor) -> Layout:
    """The layout of a parameter, and of its gradient.

    Tensor parallelism splits first and FSDP splits what is left, so that in one dim the tensor
    axis is the major one.
    """
    dims = [_split(row, role) for role in tensor.roles]
    if tensor.gathered is not None:
        dims[tensor.gathered] += row.shard
    return Layout(tuple(dims))


def data(row: Row, tensor: Tensor) -> Layout:
    """The layout of an input or of the result."""
    return Layout(tuple(_split(row, role) for role in tensor.roles))


def _split(row: Row, role: str) -> tuple[str, ...]:
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


def layouts(row: Row) -> dict[str, Layout]:
    """Of every parameter, its gradient ``grad/…`` and its next value ``new/…``, and of out."""
    model = MODELS[row.model]
    found: dict[str, Layout] = {}
    for tensor in model.parameters:
        found |= dict.fromkeys(names(tensor.name), parameter(row, tensor))
    found[model.out.name] = data(row, model.out)
    return found


def names(parameter: str) -> tuple[str, str, str]:
    """What an answer calls a parameter, its gradient, and its value after one step."""
    return parameter, f"grad/{parameter}", f"new/{parameter}"


def observed(row: Row) -> tuple[str, ...]:
    """Everything that an answer about a recipe shows of the sharded step, in this order.

    Parameters; ``out`` and ``loss``; ``grad/…`` of every parameter, and of the input ``x`` where
    neither batch nor sequence is split (elsewhere it depends on whose mean a loss is);
    ``new/…`` of every parameter.
    """
    model = MODELS[row.model]
    parameters = [tensor.name for tensor in model.parameters]
    grads = [f"grad/{name}" for name in parameters]
    if not row.batch and not row.sequence and any(one.name == "x" for one in model.inputs):
        grads.append("grad/x")
    return (*parameters, "out", "loss", *grads, *(f"new/{name}" for name in parameters))


def plain(row: Row) -> tuple[str, ...]:
    """What it shows of the same step unsharded, on one device: ``plain/out`` and so on."""
    parameters = {tensor.name for tensor in MODELS[row.model].parameters}
    return tuple(f"plain/{name}" for name in observed(row) if name not in parameters)
