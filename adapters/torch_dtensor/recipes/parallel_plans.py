"""How is a plain module parallelized over the mesh axes of a recipe?

Tensor parallelism is applied first, then expert, sequence and data parallelism, as in torchtitan.
The row of a recipe says what each mesh axis is for. The table `PLANS` has the parallel plan of each
model along the tensor axis. This module does not run the model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import nn

from adapters.torch_dtensor.compat import (
    ColwiseParallel,
    DeviceMesh,
    ParallelStyle,
    Placement,
    PrepareModuleInput,
    Replicate,
    RowwiseParallel,
    SequenceParallel,
    Shard,
    context_parallel,
    fully_shard,
    parallelize_module,
    replicate,
    require,
    ring_options,
    set_rotate_method,
)
from adapters.torch_dtensor.recipes.models import CoreAttention
from adapters.torch_dtensor.recipes.styles import ExpertParallel, GatheredKeys, ReplicatedModule
from cases.recipes import RecipeKind

ParallelPlan = dict[str, ParallelStyle]

# The parallel plan of each model along the tensor axis. "" is the module itself. The argument is
# the placement of activations between submodules: Replicate, or Shard(1) in sequence parallelism.
PLANS: dict[str, Callable[[Placement], ParallelPlan]] = {
    "mlp": lambda kept: {"up": ColwiseParallel(), "down": RowwiseParallel()},
    "attention": lambda kept: {
        # wq, wk and wv share one redistribution, forward and backward.
        "": PrepareModuleInput(
            input_layouts=(kept, None), desired_input_layouts=(Replicate(), None)
        ),
        "wq": ColwiseParallel(),
        "wk": ColwiseParallel(),
        "wv": ColwiseParallel(),
        "wo": RowwiseParallel(output_layouts=kept),
    },
    "block": lambda kept: {
        "attention_norm": norm_style(kept),
        **_below("attention", PLANS["attention"](kept)),
        "ffn_norm": norm_style(kept),
        "feed_forward": PrepareModuleInput(
            input_layouts=(kept,), desired_input_layouts=(Replicate(),)
        ),
        "feed_forward.w1": ColwiseParallel(),
        "feed_forward.w2": RowwiseParallel(output_layouts=kept),
        "feed_forward.w3": ColwiseParallel(),
    },
    "head": lambda kept: {
        "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=kept),
        "norm": norm_style(kept),
        # loss_parallel needs a DTensor.
        "output": ColwiseParallel(
            input_layouts=kept, output_layouts=Shard(-1), use_local_output=False
        ),
    },
}


def norm_style(kept: Placement) -> ParallelStyle:
    """The style of a norm between activations with placement ``kept``."""
    return ReplicatedModule() if isinstance(kept, Replicate) else SequenceParallel()


def _below(path: str, plan: ParallelPlan) -> ParallelPlan:
    return {f"{path}.{key}".rstrip("."): style for key, style in plan.items()}


def data_axes(row: RecipeKind) -> tuple[str, ...]:
    """The axes, except the tensor axis, along which devices have different tokens."""
    return tuple(
        axis for axis in row.axes if axis in row.batch + row.sequence and axis != row.tensor
    )


def sequence_axes(row: RecipeKind) -> tuple[str, ...]:
    """The axes along which attention is split over the sequence, without the tensor axis."""
    return tuple(axis for axis in row.sequence if axis != row.tensor)


def apply_tensor_parallelism(row: RecipeKind, module: nn.Module, mesh: DeviceMesh) -> None:
    """Apply tensor and expert parallelism, and gather keys and values over the sequence axes."""
    if row.tensor:
        kept: Placement = Shard(1) if row.tensor in row.sequence else Replicate()
        parallelize_module(module, mesh[row.tensor], PLANS[row.model](kept))
    if row.expert:
        parallelize_module(module, mesh[row.expert], {"experts": ExpertParallel()})
    if not uses_ring_attention(row):
        for axis in sequence_axes(row):
            for part in list(module.modules()):
                if isinstance(part, CoreAttention):
                    parallelize_module(part, mesh[axis], GatheredKeys())


def apply_data_parallelism(
    row: RecipeKind, module: nn.Module, mesh: DeviceMesh, dims: Mapping[str, int]
) -> None:
    """Apply FSDP along its mesh axes, and reduce gradients along every data axis.

    ``dims``: the tensor dim along which FSDP shards each parameter, by name.
    """
    axes = data_axes(row)
    by_dim = {id(one): Shard(dims[name]) for name, one in module.named_parameters() if name in dims}
    ignored: set[nn.Parameter] = set()
    if row.expert:
        experts = module.get_submodule("experts")
        inner = tuple(axis for axis in axes if axis != row.expert)
        _manage(row, experts, mesh, inner, ignored, by_dim)
        ignored = set(experts.parameters())
    _manage(row, module, mesh, axes, ignored, by_dim)


def _manage(
    row: RecipeKind,
    module: nn.Module,
    mesh: DeviceMesh,
    axes: tuple[str, ...],
    ignored: set[nn.Parameter],
    dims: Mapping[int, Shard],
) -> None:
    if axes:
        # Every release that has this method also has the keywords below.
        require("FSDPModule.set_gradient_divide_factor")
    sharding = tuple(axis for axis in axes if axis in row.shard)
    if sharding:
        # In a 2-D mesh, fully_shard replicates along the outer mesh axis.
        outer = tuple(axis for axis in axes if axis not in row.shard)
        managed = fully_shard(
            module,
            mesh=mesh[outer + sharding],
            reshard_after_forward=True,
            shard_placement_fn=lambda parameter: dims.get(id(parameter)),
            ignored_params=ignored,
        )
    elif axes:
        managed = replicate(module, mesh=mesh[axes], ignored_params=ignored)
    else:
        return
    # Each device's loss is its share of the mean, so gradients are summed, not averaged.
    managed.set_gradient_divide_factor(1.0)


def uses_ring_attention(row: RecipeKind) -> bool:
    """Whether the recipe uses the context parallelism of torch instead of a parallel plan."""
    return row.name == "attention-ring"


@contextlib.contextmanager
def ring_attention_region(mesh: DeviceMesh, buffers: list[torch.Tensor]) -> Iterator[None]:
    """The context-parallel region of torch. It splits the buffers x, target and angles."""
    # Every release that has context_parallel also has these two names here.
    from torch.nn.attention import SDPBackend, sdpa_kernel

    # Keys and values go round the ring. Without load balancing, positions stay in order.
    options = ring_options
    before = options.rotate_method, options.enable_load_balance
    set_rotate_method("alltoall")
    options.enable_load_balance = False
    try:
        # The ring needs fused GPU kernels. The fused CPU kernel has no sharding rule for backward,
        # and torch searches for minutes for one for forward. SDPBackend.MATH uses single ops, which
        # have sharding rules.
        unfused = sdpa_kernel(SDPBackend.MATH)
        with unfused, context_parallel(mesh, buffers=buffers, buffer_seq_dims=[1, 1, 0]):
            yield
    finally:
        options.rotate_method, options.enable_load_balance = before
