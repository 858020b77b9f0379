"""The torch adapter, with a recipe's parallel plan wrong in the one way that TOY_WRONG names.

Everything runs as it does: real ranks, real modules. Only what a user may get wrong is changed.
"""

from __future__ import annotations

import os

from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

from adapters.torch_dtensor import adapter
from adapters.torch_dtensor.recipes import parallel_plans


def connect(devices: int) -> adapter.TorchAdapter:
    """The adapter with the mistake."""
    match os.environ["TOY_WRONG"]:
        case "replicas forgotten":
            # FSDP on a slice of the mesh: nobody sees to the replicas.
            managed = parallel_plans._manage
            parallel_plans._manage = lambda row, module, mesh, axes, *rest: managed(
                row, module, mesh, tuple(axis for axis in axes if axis != "dp_replicate"), *rest
            )
        case "router left alone":
            managed = parallel_plans._manage
            parallel_plans._manage = lambda row, module, mesh, axes, *rest: managed(
                row, module, mesh, (), *rest
            )
        case "split dims exchanged":
            parallel_plans.PLANS["mlp"] = lambda kept: {
                "up": RowwiseParallel(input_layouts=Replicate()),
                "down": ColwiseParallel(output_layouts=Replicate()),
            }
        case "gathered in between":
            parallel_plans.PLANS["mlp"] = lambda kept: {
                "up": ColwiseParallel(output_layouts=Replicate()),
                "down": RowwiseParallel(input_layouts=Replicate()),
            }
    return adapter.connect(devices)
