"""Which torch ops are collectives, and which arguments are the operand and the group?

Both recorders use this table. This module does not count collectives.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from adapters.torch_dtensor.compat import process_group_name
from cases.model import CollectiveKind

# Op -> kind, index of the operand argument, index of the group argument.
# The operand of a scatter is what each rank receives. A list of tensors counts as one operand.
KINDS: dict[str, tuple[CollectiveKind, int, int]] = {
    "_c10d_functional::all_gather_into_tensor": ("all-gather", 0, 2),
    "_c10d_functional::all_gather_into_tensor_coalesced": ("all-gather", 0, 2),
    "_c10d_functional::all_gather_into_tensor_out": ("all-gather", 0, 2),
    "_c10d_functional::all_reduce": ("all-reduce", 0, 2),
    "_c10d_functional::all_reduce_": ("all-reduce", 0, 2),
    "_c10d_functional::all_reduce_coalesced": ("all-reduce", 0, 2),
    "_c10d_functional::all_reduce_coalesced_": ("all-reduce", 0, 2),
    "_c10d_functional::all_to_all_single": ("all-to-all", 0, 3),
    "_c10d_functional::broadcast": ("broadcast", 0, 2),
    "_c10d_functional::broadcast_": ("broadcast", 0, 2),
    "_c10d_functional::isend": ("collective-permute", 0, 3),
    "_c10d_functional::reduce_scatter_tensor": ("reduce-scatter", 0, 3),
    "_c10d_functional::reduce_scatter_tensor_coalesced": ("reduce-scatter", 0, 3),
    "_c10d_functional::reduce_scatter_tensor_out": ("reduce-scatter", 0, 3),
    "_dtensor::shard_dim_alltoall": ("all-to-all", 0, 3),
    # Until torch 2.3, functional collectives were these ops, which name a group by its ranks.
    "c10d_functional::all_gather_into_tensor": ("all-gather", 0, 2),
    "c10d_functional::all_gather_into_tensor_coalesced": ("all-gather", 0, 2),
    "c10d_functional::all_reduce": ("all-reduce", 0, 3),
    "c10d_functional::all_reduce_coalesced": ("all-reduce", 0, 3),
    "c10d_functional::all_to_all_single": ("all-to-all", 0, 4),
    "c10d_functional::broadcast": ("broadcast", 0, 3),
    "c10d_functional::reduce_scatter_tensor": ("reduce-scatter", 0, 3),
    "c10d_functional::reduce_scatter_tensor_coalesced": ("reduce-scatter", 0, 3),
    "c10d::_allgather_base_": ("all-gather", 1, 2),
    "c10d::_reduce_scatter_base_": ("reduce-scatter", 1, 2),
    "c10d::allgather_": ("all-gather", 1, 2),
    "c10d::allgather_coalesced_": ("all-gather", 1, 2),
    "c10d::allgather_into_tensor_coalesced_": ("all-gather", 1, 2),
    "c10d::allreduce_": ("all-reduce", 0, 1),
    "c10d::allreduce_coalesced_": ("all-reduce", 0, 1),
    "c10d::alltoall_": ("all-to-all", 1, 2),
    "c10d::alltoall_base_": ("all-to-all", 1, 2),
    "c10d::broadcast_": ("broadcast", 0, 1),
    "c10d::gather_": ("gather", 1, 2),
    "c10d::gather_into_tensor_": ("gather", 1, 2),
    "c10d::reduce_scatter_": ("reduce-scatter", 1, 2),
    "c10d::reduce_scatter_tensor_coalesced_": ("reduce-scatter", 1, 2),
    "c10d::scatter_": ("scatter", 0, 2),
    "c10d::send": ("collective-permute", 0, 1),
}
# Ops of the same namespaces that move no data, or receive what an op above sends. The autograd ops
# call the plain ops, which the recorders see.
NOT_COUNTED = {
    "_c10d_functional::_wrap_tensor_autograd", "_c10d_functional::irecv",
    "_c10d_functional::wait_tensor", "_c10d_functional_autograd::all_gather_into_tensor",
    "_c10d_functional_autograd::all_to_all_single",
    "_c10d_functional_autograd::reduce_scatter_tensor", "_dtensor::mesh_get_process_group",
    "c10d::barrier", "c10d::check_for_nan", "c10d::monitored_barrier_", "c10d::recv_",
    "c10d::recv_any_source_", "c10d_functional::wait_tensor", "_c10d_functional::wait_tensors",
}  # fmt: skip
NAMESPACES = (
    "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "c10d", "c10d_functional",
)  # fmt: skip
_RANKS = "ranks "


def group_name(group: Any) -> str:
    """The name of a group argument: a string, a list of ranks, or a (boxed) process group."""
    if isinstance(group, str):
        return group
    if isinstance(group, list):
        return _RANKS + ",".join(map(str, group))
    if isinstance(group, torch.ScriptObject):
        group = dist.ProcessGroup.unbox(group)
    return process_group_name(group)


def parse_ranks(name: str) -> list[int] | None:
    """The ranks that a name from `group_name` lists. None if it lists none."""
    if not name.startswith(_RANKS):
        return None
    return [int(rank) for rank in name.removeprefix(_RANKS).split(",")]


def nbytes(operand: Any) -> int:
    """The bytes of a tensor or of a list of tensors."""
    if isinstance(operand, torch.Tensor):
        return operand.nbytes
    return sum(map(nbytes, operand))
