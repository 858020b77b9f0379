"""Which parallel styles does a recipe need that torch lacks? They follow torchtitan.

A style lays out the parameters of a module along one mesh axis, and converts its inputs and
outputs. The styles of torch are in `torch.distributed.tensor.parallel`.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single

from adapters.torch_dtensor.compat import (
    DeviceMesh,
    DTensor,
    ParallelStyle,
    Partial,
    Replicate,
    Shard,
    all_to_all_single_autograd,
    distribute_module,
    distribute_tensor,
)


class ReplicatedModule(ParallelStyle):
    """The parameters and the input are replicated, and every device computes the same."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        enter: Any = self._enter
        leave: Any = self._leave
        return distribute_module(module, device_mesh, None, enter, leave)

    @staticmethod
    def _enter(module: nn.Module, inputs: tuple[Tensor, ...], mesh: DeviceMesh) -> DTensor:
        return DTensor.from_local(inputs[0], mesh, [Replicate()], run_check=False)

    @staticmethod
    def _leave(module: nn.Module, out: DTensor, mesh: DeviceMesh) -> Tensor:
        return out.to_local()


class GatheredKeys(ParallelStyle):
    """Queries stay sharded over the sequence. Keys and values are gathered, as in Llama 3.

    The module takes q, k and v with the sequence in dim 1, and the position of the first query.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        module.register_forward_pre_hook(functools.partial(self._enter, device_mesh))
        return module

    @staticmethod
    def _enter(
        mesh: DeviceMesh, module: nn.Module, inputs: tuple[Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, int]:
        q, *split = inputs
        # Each device has a Partial gradient, from its own queries. As Replicate, the gradient would
        # be sliced without the reduction.
        k, v = (
            DTensor.from_local(one, mesh, [Shard(1)], run_check=False)
            .redistribute(placements=[Replicate()])
            .to_local(grad_placements=[Partial()])
            for one in split
        )
        return q, k, v, mesh.get_local_rank() * q.shape[1]


class ExpertParallel(ParallelStyle):
    """Parameters are Shard(0) over the experts. Tokens are sent to the experts and back.

    The module takes tokens, sorted by expert, and the number of tokens of each expert.
    """

    def __init__(self) -> None:
        super().__init__()
        self._order = torch.empty(0)
        self._sent: list[int] = []
        self._received: list[int] = []

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        dispatch: Any = self._dispatch
        combine: Any = self._combine
        return distribute_module(module, device_mesh, self._split, dispatch, combine)

    @staticmethod
    def _split(name: str, module: nn.Module, mesh: DeviceMesh) -> None:
        for key, parameter in module.named_parameters(recurse=False):
            split = nn.Parameter(distribute_tensor(parameter, mesh, [Shard(0)]))
            module.register_parameter(key, split)

    def _dispatch(
        self, module: nn.Module, inputs: tuple[Tensor, Tensor], mesh: DeviceMesh
    ) -> tuple[Tensor, Tensor]:
        tokens, counts = inputs
        # The shape is [sending rank, expert of this device].
        arriving = all_to_all_single(counts, None, None, mesh).view(mesh.size(), -1)
        self._sent = counts.view(mesh.size(), -1).sum(dim=1).tolist()
        self._received = arriving.sum(dim=1).tolist()
        tokens = all_to_all_single_autograd(tokens, self._received, self._sent, mesh)
        experts = torch.arange(arriving.shape[1]).repeat(mesh.size())
        self._order = torch.argsort(experts.repeat_interleave(arriving.flatten()), stable=True)
        return tokens[self._order], arriving.sum(dim=0)

    def _combine(self, module: nn.Module, out: Tensor, mesh: DeviceMesh) -> Tensor:
        out = torch.empty_like(out).index_copy(0, self._order, out)
        back: Tensor = all_to_all_single_autograd(out, self._sent, self._received, mesh)
        return back
