"""What does one training step of a recipe compute on one rank?

A step runs a model of `models` under its parallel plan in `parallel_plans`: forward, loss, backward
and one SGD update. Before that, the unsharded model does the same step on one device. This module
does not know whether the world is real or fake, nor which results are right.
"""

from __future__ import annotations

import contextlib
import math
from typing import Protocol

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor, all_reduce

from adapters.torch_dtensor.compat import (
    DeviceMesh,
    DTensor,
    Placement,
    Replicate,
    Shard,
    loss_parallel,
)
from adapters.torch_dtensor.recipes import parallel_plans
from adapters.torch_dtensor.recipes.models import MODULES, rotary_angles
from cases.layout import Ranges, index_ranges
from cases.model import Layout, Mesh, Recipe
from cases.recipes import MODELS, RECIPES, ModelTensor
from cases.recipes.layouts import data_layout, fsdp_dim, observed_names
from cases.recipes.parameter_values import LEARNING_RATE

NamedTensors = dict[str, torch.Tensor]


class TensorSource(Protocol):
    """The source of the tensors of a step."""

    def drawn(
        self, tensor: ModelTensor, sizes: dict[str, int], dtype: str, ranges: Ranges
    ) -> torch.Tensor:
        """The values of a parameter or an input in ``ranges``."""
        ...

    def kept(self, tensor: torch.Tensor) -> torch.Tensor:
        """The current values of a tensor. Later writes to it do not change them."""
        ...

    def bare(self) -> contextlib.AbstractContextManager[object]:
        """The context in which meshes are made and read. They are real tensors in every world."""
        ...


class Step:
    """One step. It has a method for each of `rank_messages.PHASES`, which returns named tensors.

    ``on``: the mesh as data. ``rank``: the rank of this process. ``note``: the type of the result,
    if the module returns a special tensor type.
    """

    def __init__(self, recipe: Recipe, on: Mesh, rank: int, mesh: DeviceMesh, source: TensorSource):
        self._dtype = recipe.dtype
        self._row = RECIPES[recipe.name]
        self._model = MODELS[self._row.model]
        self._sizes = {**self._model.sizes, **recipe.sizes}
        self._on = on
        self._rank = rank
        self._mesh = mesh
        self._source = source
        self._region = contextlib.ExitStack()
        self.note = ""

    def plain(self) -> NamedTensors:
        """Run the step of the unsharded module on whole inputs."""
        module = self._plain_module()
        x, target = (self._drawn(tensor, _whole(tensor)) for tensor in self._model.inputs)
        x.requires_grad_(self._x_has_gradient())
        out = module(x, *self._turns(()))
        loss = self._share(out, target)
        torch.autograd.backward(loss)
        shown = {"out": out, "loss": loss, **_gradients(module, x)}
        torch.optim.SGD(module.parameters(), lr=LEARNING_RATE).step()
        shown |= {f"new/{name}": one for name, one in module.named_parameters()}
        return {f"plain/{name}": one.detach() for name, one in shown.items()}

    def place(self) -> NamedTensors:
        """Create parameters, inputs and the optimizer under the parallel plan."""
        self._module = self._plain_module()
        parallel_plans.apply_tensor_parallelism(self._row, self._module, self._mesh)
        with self._source.bare():
            parallel_plans.apply_data_parallelism(self._row, self._module, self._mesh, self._dims())
        self._optimizer = torch.optim.SGD(self._module.parameters(), lr=LEARNING_RATE)
        layouts = [data_layout(self._row, tensor) for tensor in self._model.inputs]
        if parallel_plans.uses_ring_attention(self._row):
            # Context parallelism takes whole buffers and splits them.
            layouts = [_whole(tensor) for tensor in self._model.inputs]
        self._x, self._target = map(self._drawn, self._model.inputs, layouts)
        shown = {name: self._source.kept(one) for name, one in self._module.named_parameters()}
        return {**shown, "x": self._x, "target": self._target}

    def forward(self) -> NamedTensors:
        """The result, and the loss of the whole batch. Backward starts at each device's share."""
        axes = parallel_plans.sequence_axes(self._row)
        if parallel_plans.uses_ring_attention(self._row):
            turns = self._turns(())
            buffers = [self._x, self._target, *turns]
            self._region.enter_context(
                parallel_plans.ring_attention_region(self._mesh[axes[0]], buffers)
            )
            # The region restores its buffers at the end, so they must not require a gradient.
            self._x = self._x.clone()
        else:
            turns = self._turns(axes)
        self._x.requires_grad_(self._x_has_gradient())
        out = self._module(self._x, *turns)
        if isinstance(out, DTensor):
            # The logits are sharded. Backward must also run inside loss_parallel.
            self._region.enter_context(loss_parallel())
        self._loss = self._share(out, self._target)
        loss = self._loss.detach()
        if isinstance(loss, DTensor):
            loss = loss.to_local()
        for group in self._loss_groups():
            loss = all_reduce(loss, "sum", group)
        if isinstance(out, AsyncCollectiveTensor):
            # The last collective is still pending. The first use of the result waits for it.
            self.note = type(out).__name__
        return {
            "out": self._on_mesh(out.detach(), data_layout(self._row, self._model.out)),
            "loss": self._on_mesh(loss, Layout(())),
        }

    def backward(self) -> NamedTensors:
        """Run backward and return the gradients."""
        torch.autograd.backward(self._loss)
        shown = _gradients(self._module, self._x)
        if "grad/x" in shown:
            layout = data_layout(self._row, self._model.inputs[0])
            shown["grad/x"] = self._on_mesh(shown["grad/x"], layout)
        return shown

    def update(self) -> NamedTensors:
        """Run the optimizer and return the new parameters."""
        self._optimizer.step()
        return {f"new/{name}": one.detach() for name, one in self._module.named_parameters()}

    def close(self) -> None:
        """Leave the regions of loss and attention, which change global state of torch."""
        self._region.close()

    def _dims(self) -> dict[str, int]:
        """The tensor dim along which FSDP shards each parameter, by name."""
        found = {}
        for tensor in self._model.parameters:
            dim = fsdp_dim(self._row, tensor, self._sizes, self._on)
            if dim is not None:
                found[tensor.name] = dim
        return found

    def _x_has_gradient(self) -> bool:
        return "grad/x" in observed_names(self._row)

    def _drawn(self, tensor: ModelTensor, layout: Layout) -> torch.Tensor:
        """The local shard of a tensor under a layout."""
        ranges = self._local_ranges(layout, tensor.sizes(self._sizes))
        return self._source.drawn(tensor, self._sizes, self._dtype, ranges)

    def _local_ranges(self, layout: Layout, shape: tuple[int, ...]) -> Ranges:
        return index_ranges(self._on, layout, shape)[self._on.devices.index(self._rank)]

    def _plain_module(self) -> nn.Module:
        """The unsharded module with its parameter values."""
        with torch.device("meta"):
            module = MODULES[self._model.name](self._sizes)
        state = {one.name: self._drawn(one, _whole(one)) for one in self._model.parameters}
        module.load_state_dict(state, assign=True)
        return module

    def _turns(self, axes: tuple[str, ...]) -> tuple[torch.Tensor, ...]:
        """The rotary angles of this rank's positions, if ``axes`` split the sequence."""
        if "head" not in self._sizes:
            return ()
        (places,) = self._local_ranges(Layout((axes,)), (self._sizes["seq"],))
        return (rotary_angles(*places, self._sizes["head"]),)

    def _share(self, out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """This device's share of the mean loss over the whole batch."""
        count = math.prod(self._model.inputs[1].sizes(self._sizes))
        # The loss is computed in at least float32.
        out = out.to(torch.promote_types(out.dtype, torch.float32))
        if self._model.loss == "squares":
            return F.mse_loss(out, target.to(out.dtype), reduction="sum") / count
        return F.cross_entropy(out.flatten(0, 1), target.flatten(), reduction="sum") / count

    def _loss_groups(self) -> list[DeviceMesh | dist.ProcessGroup]:
        """The groups over which the loss is summed: all devices, or one group for each axis."""
        axes = [axis for axis in self._row.axes if axis in self._row.batch + self._row.sequence]
        world = dist.group.WORLD
        everybody = len(axes) == self._mesh.ndim > 1
        if everybody and world is not None and world.size() == self._mesh.size():
            return [world]
        return [self._mesh[axis] for axis in axes]

    def _on_mesh(self, value: torch.Tensor, layout: Layout) -> DTensor:
        """A result as a DTensor on the whole mesh.

        The result of a module is a local tensor, or a DTensor on some mesh axes with placements of
        its own. Along the other axes the placements come from the parallel plan, not from torch.
        """
        names = self._on.names
        placements = [_placement(layout, axis) for axis in names]
        if isinstance(value, DTensor):
            for axis, placement in zip(value.device_mesh.mesh_dim_names or (), value.placements):
                placements[names.index(axis)] = placement
            value = value.to_local()
        return DTensor.from_local(value, self._mesh, placements, run_check=False)


def _whole(tensor: ModelTensor) -> Layout:
    return Layout(((),) * len(tensor.shape))


def _placement(layout: Layout, axis: str) -> Placement:
    split = [dim for dim, axes in enumerate(layout.dims) if axis in axes]
    return Shard(split[0]) if split else Replicate()


def _gradients(module: nn.Module, x: torch.Tensor) -> NamedTensors:
    named = {name: one.grad for name, one in (*module.named_parameters(), ("x", x))}
    return {f"grad/{name}": grad for name, grad in named.items() if grad is not None}
