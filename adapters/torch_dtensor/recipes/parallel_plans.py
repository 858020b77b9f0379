"""How does a plain module become a parallel one? By what each mesh axis is for.

Tensor parallelism first, then experts, then sequence, then data parallelism: as torchtitan
applies them. Which axis is for what is a recipe's row; how a module's parts are laid out along
the tensor axis is the table `PLANS`.
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

# By model, how a module's parts are laid out along the tensor axis; "" is the module itself. The
# argument is the layout of activations between the parts: Replicate, or Shard(1) for sequence
# parallelism.
PLANS: dict[str, Callable[[Placement], ParallelPlan]] = {
    "mlp": lambda kept: {"up": ColwiseParallel(), "down": RowwiseParallel()},
    "attention": lambda kept: {
        # One redistribution for wq, wk and wv together, both ways.
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
    """The style of a norm between parts."""
    return ReplicatedModule() if isinstance(kept, Replicate) else SequenceParallel()


def _below(path: str, plan: ParallelPlan) -> ParallelPlan:
    return {f"{path}.{key}".rstrip("."): style for key, style in plan.items()}


def data_axes(row: RecipeKind) -> tuple[str, ...]:
    """The axes along which devices have different tokens, and parameters are equal or sharded."""
    return tuple(
        axis for axis in row.axes if axis in row.batch + row.sequence and axis != row.tensor
    )


def sequence_axes(row: RecipeKind) -> tuple[str, ...]:
    """The axes along which attention has other positions, without those of tensor parallelism."""
    return tuple(axis for axis in row.sequence if axis != row.tensor)


def apply_tensor_parallelism(row: RecipeKind, module: nn.Module, mesh: DeviceMesh) -> None:
    """Lay out what the tensor axis and the expert axis split, and gather keys."""
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
    """Shard what FSDP shards, and handle the gradients along every other data axis.

    ``dims``: by the name of a parameter, the dim by which FSDP shards it.
    """
    axes = data_axes(row)
    by_dim = {id(one): Shard(dims[name]) for name, one in module.named_parameters() if name in dims}
    apart: set[nn.Parameter] = set()
    if row.expert:
        experts = module.get_submodule("experts")
        inner = tuple(axis for axis in axes if axis != row.expert)
        _manage(row, experts, mesh, inner, apart, by_dim)
        apart = set(experts.parameters())
    _manage(row, module, mesh, axes, apart, by_dim)


def _manage(
    row: RecipeKind,
    module: nn.Module,
    mesh: DeviceMesh,
    axes: tuple[str, ...],
    apart: set[nn.Parameter],
    dims: Mapping[int, Shard],
) -> None:
    if axes:
        # No release that has this is older than the keywords below.
        require("FSDPModule.set_gradient_divide_factor")
    sharding = tuple(axis for axis in axes if axis in row.shard)
    if sharding:
        # Replicas are along the outer axis of a mesh of two.
        outer = tuple(axis for axis in axes if axis not in row.shard)
        managed = fully_shard(
            module,
            mesh=mesh[outer + sharding],
            reshard_after_forward=True,
            shard_placement_fn=lambda parameter: dims.get(id(parameter)),
            ignored_params=apart,
        )
    elif axes:
        managed = replicate(module, mesh=mesh[axes], ignored_params=apart)
    else:
        return
    # The losses of devices are shares of one mean, so their gradients are summed and not averaged.
    managed.set_gradient_divide_factor(1.0)


def uses_ring_attention(row: RecipeKind) -> bool:
    """Whether attention is torch's own context parallelism, and not a layout of the plan."""
    return row.name == "attention-ring"


@contextlib.contextmanager
def ring_attention_region(mesh: DeviceMesh, buffers: list[torch.Tensor]) -> Iterator[None]:
    """The region of torch's context parallelism, which splits the buffers x, target and angles."""
    # Every release that has this region has both names at this place.
    from torch.nn.attention import SDPBackend, sdpa_kernel

    # Keys and values go round, each device sending to the next; positions stay in order.
    options = ring_options
    before = options.rotate_method, options.enable_load_balance
    set_rotate_method("alltoall")
    options.enable_load_balance = False
    try:
        # Torch's ring consists of fused kernels for GPUs. A CPU's fused kernel has no layout rule
        # backward, and forward torch searches for one for minutes. Attention written out in single
        # ops has the layouts of those ops.
        written_out = sdpa_kernel(SDPBackend.MATH)
        with written_out, context_parallel(mesh, buffers=buffers, buffer_seq_dims=[1, 1, 0]):
            yield
    finally:
        options.rotate_method, options.enable_load_balance = before
