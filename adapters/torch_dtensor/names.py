"""Where does each release of torch have the names that the adapter needs? How are they imported?

This table holds the differences between releases: names that moved, new keywords, and what each
release always reports. `compat` turns the names into objects. This module does not import torch,
and does not know what the names do.
"""

from __future__ import annotations

import msgspec

from adapters.protocol import Field, Promise, Promises
from adapters.release_names import NameLocation, Names, find_location

# The oldest supported release.
OLDEST = "2.2"

_OLD = "torch.distributed._tensor"
_NEW = "torch.distributed.tensor"
_MESH = "torch.distributed.device_mesh.DeviceMesh"
_FSDP = "torch.distributed.fsdp"
_PROPAGATOR = f"{_NEW}.DTensor._op_dispatcher.sharding_propagator"
_OLD_PROPAGATOR = f"{_OLD}.DTensor._op_dispatcher.sharding_propagator"


def _moved(name: str, to: str = "2.5") -> tuple[NameLocation, ...]:
    """A name that moved when `torch.distributed.tensor` became public."""
    return (NameLocation(to, f"{_NEW}.{name}"), NameLocation(OLDEST, f"{_OLD}.{name}"))


# Name -> its locations, newest first. "f(k=)" is the keyword k of f.
NAMES: Names = {
    # Tensors, placements, meshes.
    "DeviceMesh": (NameLocation(OLDEST, _MESH),),
    "DTensor": _moved("DTensor"),
    "Partial": (
        NameLocation("2.5", f"{_NEW}.Partial"),
        NameLocation("2.4", f"{_OLD}.Partial", "It takes the reduction by name."),
        NameLocation(OLDEST, f"{_OLD}.placement_types._Partial"),
    ),
    "Replicate": _moved("Replicate"),
    "Shard": _moved("Shard"),
    "_StridedShard": (NameLocation("2.5", f"{_NEW}.placement_types._StridedShard"),),
    "Placement": _moved("placement_types.Placement"),
    "distribute_tensor": _moved("distribute_tensor"),
    "distribute_module": _moved("distribute_module"),
    "dtensor": (NameLocation("2.5", _NEW), NameLocation(OLDEST, _OLD)),
    "manual_seed": (
        NameLocation("2.5", f"{_NEW}._random.manual_seed"),
        NameLocation(OLDEST, f"{_OLD}.random.manual_seed"),
    ),
    "local_map": (
        NameLocation("2.8", f"{_NEW}.experimental.local_map", "in_grad_placements come third."),
        NameLocation("2.5", f"{_NEW}.experimental.local_map"),
        NameLocation("2.4", f"{_OLD}.experimental.local_map"),
    ),
    "loss_parallel": (NameLocation("2.3", f"{_NEW}.parallel.loss_parallel"),),
    # Before 2.10 it raises for some strided shards, and in 2.2 also for empty shards.
    "an offset of every shard": (
        NameLocation("2.10", f"{_NEW}._utils.compute_local_shape_and_global_offset"),
    ),
    "compute_local_shape_and_global_offset": _moved("_utils.compute_local_shape_and_global_offset"),
    # A fake group has it too.
    "ProcessGroup.group_name": (NameLocation("2.3", "torch.distributed.ProcessGroup.group_name"),),
    "DeviceMesh.get_all_groups": (NameLocation("2.4", f"{_MESH}.get_all_groups"),),
    "DeviceMesh._flatten": (NameLocation("2.5", f"{_MESH}._flatten"),),
    "DeviceMesh._unflatten": (NameLocation("2.10", f"{_MESH}._unflatten"),),
    "DeviceMesh._concatenate": (NameLocation("2.10", f"{_MESH}._concatenate"),),
    # Counting collectives, and clearing layout caches.
    "CommDebugMode": _moved("debug.CommDebugMode"),
    # From 2.4 on, it also counts collectives inside ops and those of `torch.distributed`.
    "CommDebugMode(ops)": (
        NameLocation("2.5", f"{_NEW}.debug.CommDebugMode"),
        NameLocation("2.4", f"{_OLD}.debug.CommDebugMode"),
    ),
    "propagator": (NameLocation("2.5", _PROPAGATOR), NameLocation(OLDEST, _OLD_PROPAGATOR)),
    "propagator._fake_mode_lock": (NameLocation("2.12", f"{_PROPAGATOR}._fake_mode_lock"),),
    # The functions that clear the layout caches in Python and in C++.
    "forget": (
        NameLocation("2.10", f"{_PROPAGATOR}.propagate_op_sharding.cache_clear"),
        NameLocation("2.5", f"{_PROPAGATOR}.propagate_op_sharding.cache.cache_clear"),
        NameLocation(OLDEST, f"{_OLD_PROPAGATOR}.propagate_op_sharding.cache_clear"),
    ),
    "forget_fast": (NameLocation("2.10", "torch._C._clear_DTensor_sharding_propagator_cache"),),
    # A kernel calls this to pass an op on to the kernels below its dispatch key.
    "OpOverload.redispatch": (NameLocation("2.4", "torch._ops.OpOverload.redispatch"),),
    # Recipes.
    "ParallelStyle": (NameLocation(OLDEST, f"{_NEW}.parallel.ParallelStyle"),),
    "parallelize_module": (NameLocation(OLDEST, f"{_NEW}.parallel.parallelize_module"),),
    "ColwiseParallel": (NameLocation(OLDEST, f"{_NEW}.parallel.ColwiseParallel"),),
    "RowwiseParallel": (NameLocation(OLDEST, f"{_NEW}.parallel.RowwiseParallel"),),
    "PrepareModuleInput": (
        NameLocation(
            "2.3", f"{_NEW}.parallel.PrepareModuleInput", "None stands for what is no tensor."
        ),
        NameLocation(OLDEST, f"{_NEW}.parallel.PrepareModuleInput"),
    ),
    "SequenceParallel": (NameLocation("2.3", f"{_NEW}.parallel.SequenceParallel"),),
    "torch.nn.RMSNorm": (NameLocation("2.4", "torch.nn.RMSNorm"),),
    "torch.nn.functional.rms_norm": (NameLocation("2.4", "torch.nn.functional.rms_norm"),),
    "all_to_all_single_autograd": (
        NameLocation("2.4", "torch.distributed._functional_collectives.all_to_all_single_autograd"),
    ),
    "fully_shard": (
        NameLocation("2.6", f"{_FSDP}.fully_shard"),
        NameLocation("2.4", "torch.distributed._composable.fsdp.fully_shard"),
    ),
    # The older set_reduce_scatter_divide_factor has no effect with gloo, which still averages.
    "FSDPModule.set_gradient_divide_factor": (
        NameLocation("2.8", f"{_FSDP}.FSDPModule.set_gradient_divide_factor"),
    ),
    "replicate(mesh=)": (
        NameLocation("2.10", "torch.distributed._composable.replicate_with_fsdp.replicate"),
    ),
    "context_parallel": (
        NameLocation("2.6", f"{_NEW}.experimental.context_parallel"),
        NameLocation("2.5", f"{_NEW}.experimental._attention.context_parallel"),
    ),
    "set_rotate_method": (
        NameLocation("2.6", f"{_NEW}.experimental._attention.set_rotate_method"),
    ),
    "_cp_options": (NameLocation("2.6", f"{_NEW}.experimental._attention._cp_options"),),
}

# The attribute of a placement that holds its mask. The reduction consumes the mask.
MASK_ATTRIBUTE = "mask_buffer"

# gloo performs these as other collectives, which no counter shows. With 4 ranks and 4 MiB over
# loopback, its reduce-scatter moves as much as its all-reduce, twice what a reduce-scatter needs.
HIDDEN_COLLECTIVES = ("reduce-scatter: on gloo it is performed as an all-reduce and a slice",)


def promises(release: str) -> Promises:
    """The fields that an answer of this release always has.

    Raises:
        packaging.version.InvalidVersion: not a PEP 440 version.
    """
    shown: tuple[Field, ...] = ("dtype", "layout")
    fired: tuple[Field, ...] = ("collectives", "full_collectives")
    offsets: tuple[Field, ...] = ("offsets",)
    if find_location(NAMES, "an offset of every shard", release) is None:
        offsets = ()
    real: tuple[Field, ...] = (*shown, "shards", *offsets, "full", *fired)
    return {"torch": Promise(real, (*shown, *fired, "local"))}


# The names, besides torch and F, that lines and scripts use, in the order of their imports.
LINE_NAMES = (
    "DeviceMesh", "dtensor", "DTensor", "Partial", "Replicate", "Shard", "distribute_tensor",
    "manual_seed", "local_map", "loss_parallel", "_StridedShard",
    "compute_local_shape_and_global_offset", "CommDebugMode",
)  # fmt: skip

# Location -> an assignment that lets lines call the old name in its newest form.
ADAPTED_CALLS = {
    f"{_OLD}.placement_types._Partial": (
        "Partial = lambda kind='sum': _Partial("
        "getattr(torch.distributed.ReduceOp.RedOpType, kind.upper()))"
    ),
}


class ImportedName(msgspec.Struct, frozen=True):
    """The import of a name in a script. ``adapted``: a line that wraps the name, or ""."""

    name: str
    place: NameLocation
    adapted: str = ""


def find_imported_names(release: str) -> tuple[ImportedName, ...]:
    """The names that lines can use in a release, in order, without those that it lacks."""
    found = ((name, find_location(NAMES, name, release)) for name in LINE_NAMES)
    return tuple(
        ImportedName(name, where, ADAPTED_CALLS.get(where.path, ""))
        for name, where in found
        if where is not None
    )


def format_imports(release: str) -> tuple[str, ...]:
    """The import lines of a script in plain torch of this release.

    Raises:
        packaging.version.InvalidVersion: not a PEP 440 version.
    """
    modules: dict[str, list[str]] = {}
    adapted = []
    for one in find_imported_names(release):
        module, _, name = one.place.path.rpartition(".")
        modules.setdefault(module, []).append(
            name if one.adapted or name == one.name else f"{name} as {one.name}"
        )
        adapted += [one.adapted] if one.adapted else []
    lines = (f"from {module} import {', '.join(names)}" for module, names in modules.items())
    return ("import torch", "import torch.nn.functional as F", *lines, *adapted)
