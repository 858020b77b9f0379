"""The torch adapter with recipes that are wrong on purpose, as the id of a question says.

What a person gets wrong in a parallel plan: a style, a placement, a gradient that nobody sums.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import msgspec
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
)
from torch.distributed.tensor.placement_types import Placement

from adapters.answer import Answer
from adapters.protocol import Hello
from adapters.torch_dtensor.adapter import TorchAdapter
from adapters.torch_dtensor.adapter import connect as right
from adapters.torch_dtensor.recipes import parallel_plans
from cases.model import Question
from cases.recipes import RecipeKind

Plan = dict[str, ParallelStyle]
Wrong = contextlib.AbstractContextManager[object]


def _styled(model: str, change: Callable[[Plan], object]) -> Wrong:
    """A plan along the tensor axis with some of its styles replaced."""

    def planned(
        kept: Placement, plan: Callable[[Placement], Plan] = parallel_plans.PLANS[model]
    ) -> Plan:
        styles = plan(kept)
        change(styles)
        return styles

    return mock.patch.dict(parallel_plans.PLANS, {model: planned})


def _spread(change: Callable[[FSDPModule], object]) -> Wrong:
    """What looks after gradients, told otherwise afterwards."""
    spread = parallel_plans.apply_data_parallelism

    def told(row: RecipeKind, module: nn.Module, mesh: DeviceMesh, dims: Mapping[str, int]) -> None:
        spread(row, module, mesh, dims)
        for part in module.modules():
            if isinstance(part, FSDPModule):
                change(part)

    return mock.patch.object(parallel_plans, "apply_data_parallelism", told)


def _along(*axes: str) -> Wrong:
    """Gradients looked after along these axes alone."""
    return mock.patch.object(parallel_plans, "data_axes", return_value=axes)


def _by_columns() -> Wrong:
    spread = parallel_plans.apply_data_parallelism

    def turned(
        row: RecipeKind, module: nn.Module, mesh: DeviceMesh, dims: Mapping[str, int]
    ) -> None:
        shapes = {name: one.ndim for name, one in module.named_parameters()}
        spread(row, module, mesh, {name: shapes[name] - 1 for name in dims})

    return mock.patch.object(parallel_plans, "apply_data_parallelism", turned)


def _keys_taken_for_whole() -> PrepareModuleInput:
    class Sliced(PrepareModuleInput):
        """What `PrepareModuleInput` makes of k and v, and where q begins."""

        def _prepare_input_fn(self, inputs: Any, device_mesh: Any) -> Any:
            q, k, v = super()._prepare_input_fn(inputs, device_mesh)
            return q, k, v, device_mesh.get_local_rank() * q.shape[1]

    return Sliced(
        input_layouts=(None, Shard(1), Shard(1)),
        desired_input_layouts=(None, Replicate(), Replicate()),
        use_local_output=True,
    )


WRONG: dict[str, Callable[[], Wrong]] = {
    "row for column": lambda: _styled("mlp", lambda plan: plan.update(up=RowwiseParallel())),
    "result not reduced": lambda: _styled(
        "mlp", lambda plan: plan.update(down=RowwiseParallel(output_layouts=Partial()))
    ),
    "gathered three times": lambda: _styled("block", lambda plan: plan.pop("attention")),
    "replicas not summed": lambda: _along("fsdp"),
    "router not summed": lambda: _along(),
    "shares averaged": lambda: _spread(lambda part: part.set_gradient_divide_factor(2.0)),
    "kept after forward": lambda: _spread(lambda part: part.set_reshard_after_forward(False)),
    "columns for rows": _by_columns,
    "keys taken for whole": lambda: mock.patch.object(
        parallel_plans, "GatheredKeys", _keys_taken_for_whole
    ),
}


class Toy:
    """The adapter. Its ranks are forked anew for each question, with what is wrong by then."""

    def __init__(self, adapter: TorchAdapter):
        self._adapter = adapter

    def hello(self) -> Hello:
        """As the adapter."""
        return self._adapter.hello()

    def observe(self, question: Question, subject: str, seconds: float) -> Answer:
        """What comes of the wrong recipe."""
        fresh = msgspec.structs.replace(question, fresh=True)
        with WRONG[question.id]():
            return self._adapter.observe(fresh, subject, seconds)

    def close(self) -> None:
        """As the adapter."""
        self._adapter.close()


def connect(devices: int) -> Toy:
    """The adapter, to be asked the questions of `WRONG`."""
    return Toy(right(devices))
