"""Which part of the public interface of torch is recorded? DTensor, meshes, tensor parallel, FSDP.

See `adapters.interface.Source`. Within `world`, this process is rank 0 of a fake world of four.
This module does not know which names the adapter uses. `names` does.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from adapters.inspection import deprecation_of_call
from adapters.interface import Module
from adapters.release_names import find_location, import_path
from adapters.torch_dtensor.names import NAMES

__all__ = ["CALLS", "DEFAULTS", "MODULES", "NAMES", "PRINTED", "ROOTS", "start", "world"]

# From 2.5 on, these modules re-export the new ones and have no ``__all__``. These names are public.
_PLACEMENTS = ("DTensorSpec", "Partial", "Placement", "Replicate", "Shard", "_Partial")
_RANDOM = (
    "OffsetBasedRNGTracker",
    "TensorParallelRNGTracker",
    "is_rng_supported_mesh",
    "manual_seed",
)
_EXPERIMENTAL = "torch.distributed.tensor.experimental", "torch.distributed._tensor.experimental"

MODULES = (
    Module("torch.distributed", names=("DeviceMesh", "init_device_mesh")),
    Module("torch.distributed.device_mesh"),
    Module("torch.distributed.tensor"),
    Module("torch.distributed.tensor.placement_types"),
    Module("torch.distributed.tensor.experimental"),
    Module("torch.distributed.tensor.debug"),
    Module("torch.distributed.tensor.device_mesh"),
    Module("torch.distributed.tensor.parallel"),
    Module("torch.distributed.tensor._random", names=_RANDOM),
    Module("torch.distributed._tensor", homes=("torch.distributed",)),
    Module("torch.distributed._tensor.placement_types", names=_PLACEMENTS),
    Module("torch.distributed._tensor.experimental", homes=_EXPERIMENTAL),
    Module("torch.distributed._tensor.debug"),
    Module("torch.distributed._tensor.device_mesh", names=("DeviceMesh", "init_device_mesh")),
    Module("torch.distributed._tensor.random", names=_RANDOM),
    Module("torch.distributed.fsdp"),
    Module("torch.distributed._composable", names=("checkpoint", "fully_shard", "replicate")),
    Module(
        "torch.distributed._composable.fsdp",
        homes=("torch.distributed._composable.fsdp", "torch.distributed.fsdp"),
    ),
    Module(
        "torch.distributed._functional_collectives",
        names=(
            "AsyncCollectiveTensor",
            "all_gather_into_tensor_coalesced",
            "all_gather_single",
            "all_gather_single_autograd",
            "all_gather_single_coalesced",
            "all_gather_tensor",
            "all_gather_tensor_autograd",
            "all_reduce",
            "all_reduce_coalesced",
            "all_to_all_single",
            "all_to_all_single_autograd",
            "broadcast",
            "permute_tensor",
            "reduce_scatter_single",
            "reduce_scatter_single_autograd",
            "reduce_scatter_single_coalesced",
            "reduce_scatter_tensor",
            "reduce_scatter_tensor_autograd",
            "reduce_scatter_tensor_coalesced",
            "wait_tensor",
        ),
    ),
)

# Inherited members outside these packages, such as those of Tensor or nn.Module, are left out.
ROOTS = ("torch.distributed", "torch._C._distributed")


def start() -> str:
    """Import torch without TORCH_* variables, which turn on logging, and return its release."""
    for name in [name for name in os.environ if name.startswith("TORCH_")]:
        del os.environ[name]
    import torch

    return str(torch.__version__)


@contextlib.contextmanager
def world() -> Iterator[None]:
    """A fake world of four ranks. This process is rank 0."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    store: Any = FakeStore
    dist.init_process_group("fake", store=store(), rank=0, world_size=4)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _of(wanted: str) -> Any:
    """The object that the table calls ``wanted``.

    Raises:
        AttributeError: this release lacks it.
    """
    return import_path(_place(wanted))


def _place(wanted: str) -> str:
    import torch

    found = find_location(NAMES, wanted, str(torch.__version__))
    if found is None:
        raise AttributeError(wanted)
    return found.path


def _mesh(*names: str) -> Any:
    """A mesh of four ranks: two named axes of size 2, or one axis without a name."""
    make = import_path("torch.distributed.device_mesh.init_device_mesh")
    return make("cpu", (2, 2), mesh_dim_names=names) if names else make("cpu", (4,))


def _sharded() -> Any:
    """A 4x4 DTensor of zeros under [Shard(0), Replicate()]."""
    import torch

    placements = [_of("Shard")(0), _of("Replicate")()]
    zeros = torch.zeros(2, 4)
    return _of("DTensor").from_local(zeros, _mesh("dp", "tp"), placements, run_check=False)


def _partial(reduction: str) -> Any:
    """A Partial with a reduction. Some releases take its name, others an enum member."""
    kind = _of("Partial")
    usual = kind().reduce_op
    return kind(reduction if isinstance(usual, str) else getattr(usual, reduction.upper()))


def _parameter(called: str, name: str) -> Callable[[], object]:
    """A function that returns the default of a parameter, or raises AttributeError without it."""

    def look() -> object:
        wanted, _, method = called.partition(".")
        found = _of(wanted)
        parameters = inspect.signature(getattr(found, method) if method else found).parameters
        if name not in parameters:
            raise AttributeError(name)
        return parameters[name].default

    return look


def _random() -> Any:
    return importlib.import_module(_of("manual_seed").__module__)


def _generators() -> str:
    """The public classes that track random states."""
    module = _random()
    made = [one for one in vars(module).values() if inspect.isclass(one)]
    kinds = {one.__name__ for one in made if one.__module__ == module.__name__}
    return ", ".join(sorted(one for one in kinds if one.endswith("Tracker") and one[0] != "_"))


def _tracker() -> str:
    """The class that tracks random states after a random op on a DTensor on a CPU mesh."""
    _sharded().uniform_()
    tracker = _random()._rng_tracker
    return "none" if tracker is None else type(tracker).__name__


def _drawn() -> str:
    placements = [_of("Replicate")()] * 2
    made = _of("dtensor").rand((4, 4), device_mesh=_mesh("dp", "tp"), placements=placements)
    return f"a {type(made).__name__}"


def _together(number: bool) -> str:
    """The result of a DTensor times a plain tensor: a scalar tensor, or one of its shape."""
    import torch

    made = _sharded() * (torch.ones(()) if number else torch.ones(4, 4))
    return f"a {type(made).__name__} under {list(made.placements)}"


def _product() -> Any:
    """The placements of a matmul result if the contracted dim is sharded."""
    import torch

    mesh, make = _mesh(), _of("DTensor").from_local
    left = make(torch.zeros(4, 1), mesh, [_of("Shard")(1)], run_check=False)
    right = make(torch.zeros(1, 4), mesh, [_of("Shard")(0)], run_check=False)
    return list((left @ right).placements)


def _flat() -> Any:
    _of("DeviceMesh._flatten")
    return _mesh("dp", "tp")["dp", "tp"]._flatten()


def _by_flat_name() -> str:
    """The deprecation warning when a flattened axis is taken from the mesh by its name."""
    _of("DeviceMesh._flatten")
    mesh = _mesh("dp", "tp")
    mesh["dp", "tp"]._flatten()
    return deprecation_of_call(lambda: mesh["dp_tp"]) or "none"


def _policy() -> Any:
    # It is in the same module as fully_shard.
    return import_path(f"{_place('fully_shard').rpartition('.')[0]}.MixedPrecisionPolicy")()


_PARAMETERS = (
    ("DTensor.from_local", "run_check"),
    ("DTensor.redistribute", "async_op"),
    ("distribute_tensor", "placements"),
    ("distribute_tensor", "src_data_rank"),
    ("parallelize_module", "src_data_rank"),
    ("fully_shard", "reshard_after_forward"),
    ("ColwiseParallel", "use_local_output"),
    ("RowwiseParallel", "use_local_output"),
    ("SequenceParallel", "use_local_output"),
    ("PrepareModuleInput", "use_local_output"),
    ("local_map", "redistribute_inputs"),
)

DEFAULTS: Mapping[str, Callable[[], object]] = {
    **{f"{name} of {called}": _parameter(called, name) for called, name in _PARAMETERS},
    "reduction of Partial()": lambda: str(_of("Partial")().reduce_op).rpartition(".")[2].lower(),
    "placements of a DTensor where distribute_tensor is given none": lambda: list(
        _of("distribute_tensor")(import_path("torch.ones")(4), _mesh()).placements
    ),
    "placements of x @ y, x under [Shard(1)] and y under [Shard(0)]": _product,
    "a DTensor times a plain tensor of its shape": lambda: _together(number=False),
    "a DTensor times a plain tensor of one number": lambda: _together(number=True),
    "implicit replication": lambda: _of("DTensor")._op_dispatcher._allow_implicit_replication,
    "random generators": _generators,
    "random generator after a draw on a CPU mesh": _tracker,
    "random states of a CPU mesh are kept apart": lambda: _random().is_rng_supported_mesh(_mesh()),
    "rand of DTensor on a CPU mesh": _drawn,
    "_StridedShard is a Shard": lambda: issubclass(_of("_StridedShard"), _of("Shard")),
    "warning of a flattened axis taken from a mesh by its name": _by_flat_name,
}

PRINTED: Mapping[str, Callable[[], object]] = {
    "Shard(0)": lambda: _of("Shard")(0),
    "Replicate()": lambda: _of("Replicate")(),
    "Partial()": lambda: _of("Partial")(),
    "Partial('max')": lambda: _partial("max"),
    "_StridedShard(0, split_factor=2)": lambda: _of("_StridedShard")(0, split_factor=2),
    "init_device_mesh('cpu', (2, 2), mesh_dim_names=('dp', 'tp'))": lambda: _mesh("dp", "tp"),
    "init_device_mesh('cpu', (4,))": _mesh,
    "a sliced mesh, mesh['tp']": lambda: _mesh("dp", "tp")["tp"],
    "a flattened mesh, mesh['dp', 'tp']._flatten()": _flat,
    "the spec of a 4x4 DTensor under [Shard(0), Replicate()]": lambda: _sharded()._spec,
    "a 4x4 DTensor under [Shard(0), Replicate()]": _sharded,
    "placements of a 4x4 DTensor under [Shard(0), Replicate()]": lambda: _sharded().placements,
    "MixedPrecisionPolicy()": _policy,
}


def _functional(name: str, *arguments: object, listed: bool = False) -> Callable[[], object]:
    """A function that calls a functional collective on the whole world."""

    def call() -> object:
        import torch
        import torch.distributed as dist

        made = torch.ones(4, 4)
        module = importlib.import_module("torch.distributed._functional_collectives")
        call = getattr(module, name)
        given = call([made] if listed else made, *arguments, dist.group.WORLD)
        # At exit, torch warns about collectives that nobody waited for.
        return [module.wait_tensor(one) for one in (given if listed else [given])]

    return call


def _functionals() -> Iterator[tuple[str, Callable[[], object]]]:
    for name, arguments, listed in (
        ("all_reduce", ("sum",), False),
        ("all_gather_tensor", (0,), False),
        ("all_gather_tensor_autograd", (0,), False),
        ("reduce_scatter_tensor", ("sum", 0), False),
        ("reduce_scatter_tensor_autograd", ("sum", 0), False),
        ("all_reduce_coalesced", ("sum",), True),
        ("all_gather_into_tensor_coalesced", (), True),
        ("reduce_scatter_tensor_coalesced", ("sum", [0]), True),
        ("all_to_all_single", (None, None), False),
        ("all_to_all_single_autograd", ([1] * 4, [1] * 4), False),
    ):
        path = f"torch.distributed._functional_collectives.{name}"
        yield path, _functional(name, *arguments, listed=listed)


CALLS: Mapping[str, Callable[[], object]] = dict(_functionals())
