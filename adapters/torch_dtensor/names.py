"""Where is what the adapter needs of torch, in a release? The table, and how lines import it.

Everything that differs from release to release and is no answer stands here, as data: names that
moved, keywords that came, what a counter of torch's own can be held to. `compat` makes objects of
it. Knows no torch, and refuses to know what any of it does.
"""

from __future__ import annotations

import msgspec

from adapters.names import Names, Place, place
from adapters.protocol import Field, Promise, Promises

# The first release that is asked at all.
OLDEST = "2.2"

_OLD = "torch.distributed._tensor"
_NEW = "torch.distributed.tensor"
_MESH = "torch.distributed.device_mesh.DeviceMesh"
_FSDP = "torch.distributed.fsdp"
_PROPAGATOR = f"{_NEW}.DTensor._op_dispatcher.sharding_propagator"
_OLD_PROPAGATOR = f"{_OLD}.DTensor._op_dispatcher.sharding_propagator"


def _moved(name: str, to: str = "2.5") -> tuple[Place, ...]:
    """What left the private package when `torch.distributed.tensor` became public."""
    return (Place(to, f"{_NEW}.{name}"), Place(OLDEST, f"{_OLD}.{name}"))


# What is wanted -> its places, newest first. "f(k=)" is the keyword k of f.
NAMES: Names = {
    # Tensors, placements, meshes.
    "DeviceMesh": (Place(OLDEST, _MESH),),
    "DTensor": _moved("DTensor"),
    "Partial": (
        Place("2.5", f"{_NEW}.Partial"),
        Place("2.4", f"{_OLD}.Partial", "It takes the reduction by name."),
        Place(OLDEST, f"{_OLD}.placement_types._Partial"),
    ),
    "Replicate": _moved("Replicate"),
    "Shard": _moved("Shard"),
    "_StridedShard": (Place("2.5", f"{_NEW}.placement_types._StridedShard"),),
    "Placement": _moved("placement_types.Placement"),
    "distribute_tensor": _moved("distribute_tensor"),
    "distribute_module": _moved("distribute_module"),
    "dtensor": (Place("2.5", _NEW), Place(OLDEST, _OLD)),
    "manual_seed": (
        Place("2.5", f"{_NEW}._random.manual_seed"),
        Place(OLDEST, f"{_OLD}.random.manual_seed"),
    ),
    "local_map": (
        Place("2.8", f"{_NEW}.experimental.local_map", "in_grad_placements come third."),
        Place("2.5", f"{_NEW}.experimental.local_map"),
        Place("2.4", f"{_OLD}.experimental.local_map"),
    ),
    "loss_parallel": (Place("2.3", f"{_NEW}.parallel.loss_parallel"),),
    # It is there before, and raises for some strided shards, in 2.2 also for empty ones.
    "an offset of every shard": (
        Place("2.10", f"{_NEW}._utils.compute_local_shape_and_global_offset"),
    ),
    "compute_local_shape_and_global_offset": _moved("_utils.compute_local_shape_and_global_offset"),
    # Of a fake group too.
    "ProcessGroup.group_name": (Place("2.3", "torch.distributed.ProcessGroup.group_name"),),
    "DeviceMesh.get_all_groups": (Place("2.4", f"{_MESH}.get_all_groups"),),
    "DeviceMesh._flatten": (Place("2.5", f"{_MESH}._flatten"),),
    "DeviceMesh._unflatten": (Place("2.10", f"{_MESH}._unflatten"),),
    "DeviceMesh._concatenate": (Place("2.10", f"{_MESH}._concatenate"),),
    # Counting, and forgetting what was worked out before.
    "CommDebugMode": _moved("debug.CommDebugMode"),
    # Counts what ops do by themselves, and what `torch.distributed` does.
    "CommDebugMode(ops)": (
        Place("2.5", f"{_NEW}.debug.CommDebugMode"),
        Place("2.4", f"{_OLD}.debug.CommDebugMode"),
    ),
    "propagator": (Place("2.5", _PROPAGATOR), Place(OLDEST, _OLD_PROPAGATOR)),
    "propagator._fake_mode_lock": (Place("2.12", f"{_PROPAGATOR}._fake_mode_lock"),),
    # What forgets the layouts that were worked out before, in Python and in C++.
    "forget": (
        Place("2.10", f"{_PROPAGATOR}.propagate_op_sharding.cache_clear"),
        Place("2.5", f"{_PROPAGATOR}.propagate_op_sharding.cache.cache_clear"),
        Place(OLDEST, f"{_OLD_PROPAGATOR}.propagate_op_sharding.cache_clear"),
    ),
    "forget_fast": (Place("2.10", "torch._C._clear_DTensor_sharding_propagator_cache"),),
    # In front of an op: to pass a call on to what is below a dispatch key.
    "OpOverload.redispatch": (Place("2.4", "torch._ops.OpOverload.redispatch"),),
    # Recipes.
    "ParallelStyle": (Place(OLDEST, f"{_NEW}.parallel.ParallelStyle"),),
    "parallelize_module": (Place(OLDEST, f"{_NEW}.parallel.parallelize_module"),),
    "ColwiseParallel": (Place(OLDEST, f"{_NEW}.parallel.ColwiseParallel"),),
    "RowwiseParallel": (Place(OLDEST, f"{_NEW}.parallel.RowwiseParallel"),),
    "PrepareModuleInput": (
        Place("2.3", f"{_NEW}.parallel.PrepareModuleInput", "None stands for what is no tensor."),
        Place(OLDEST, f"{_NEW}.parallel.PrepareModuleInput"),
    ),
    "SequenceParallel": (Place("2.3", f"{_NEW}.parallel.SequenceParallel"),),
    "torch.nn.RMSNorm": (Place("2.4", "torch.nn.RMSNorm"),),
    "torch.nn.functional.rms_norm": (Place("2.4", "torch.nn.functional.rms_norm"),),
    "all_to_all_single_autograd": (
        Place("2.4", "torch.distributed._functional_collectives.all_to_all_single_autograd"),
    ),
    "fully_shard": (
        Place("2.6", f"{_FSDP}.fully_shard"),
        Place("2.4", "torch.distributed._composable.fsdp.fully_shard"),
    ),
    # The older set_reduce_scatter_divide_factor means nothing to gloo, which averages all the same.
    "FSDPModule.set_gradient_divide_factor": (
        Place("2.8", f"{_FSDP}.FSDPModule.set_gradient_divide_factor"),
    ),
    "replicate(mesh=)": (
        Place("2.10", "torch.distributed._composable.replicate_with_fsdp.replicate"),
    ),
    "context_parallel": (
        Place("2.6", f"{_NEW}.experimental.context_parallel"),
        Place("2.5", f"{_NEW}.experimental._attention.context_parallel"),
    ),
    "set_rotate_method": (Place("2.6", f"{_NEW}.experimental._attention.set_rotate_method"),),
    "_cp_options": (Place("2.6", f"{_NEW}.experimental._attention._cp_options"),),
}

# What a placement keeps its mask in, in every release, if its reduction needs one and uses it up.
MASK = "mask_buffer"

# How every release hides collectives from counters. On a loopback, 4 ranks and 4 MiB, gloo's
# reduce-scatter moves as much as its all-reduce, twice what a reduce-scatter needs.
UNSEEN = ("reduce-scatter: on gloo it is performed as an all-reduce and a slice",)


def promises(release: str) -> Promises:
    """What an answer of this release always shows.

    Raises:
        packaging.version.InvalidVersion: not a PEP 440 version.
    """
    said: tuple[Field, ...] = ("dtype", "layout")
    fired: tuple[Field, ...] = ("collectives", "full_collectives")
    offsets: tuple[Field, ...] = ("offsets",)
    if place(NAMES, "an offset of every shard", release) is None:
        offsets = ()
    real: tuple[Field, ...] = (*said, "shards", *offsets, "full", *fired)
    return {"torch": Promise(real, (*said, *fired, "local"))}


# The names that lines and scripts use beside torch and F, in the order of a script's imports.
IN_LINES = (
    "DeviceMesh", "dtensor", "DTensor", "Partial", "Replicate", "Shard", "distribute_tensor",
    "manual_seed", "local_map", "loss_parallel", "_StridedShard",
    "compute_local_shape_and_global_offset", "CommDebugMode",
)  # fmt: skip

# Place -> how it is called as lines do, which have the newest form.
ADAPTED = {
    f"{_OLD}.placement_types._Partial": (
        "Partial = lambda kind='sum': _Partial("
        "getattr(torch.distributed.ReduceOp.RedOpType, kind.upper()))"
    ),
}


class Importing(msgspec.Struct, frozen=True):
    """How a script comes by a name: the import, and a line after it where calls were others."""

    name: str
    place: Place
    adapted: str = ""


def imported(release: str) -> tuple[Importing, ...]:
    """The names that lines can use in a release, in order; those that it lacks are left out."""
    found = ((name, place(NAMES, name, release)) for name in IN_LINES)
    return tuple(
        Importing(name, where, ADAPTED.get(where.path, ""))
        for name, where in found
        if where is not None
    )


def imports(release: str) -> tuple[str, ...]:
    """The import lines of a script in plain torch of this release.

    Raises:
        packaging.version.InvalidVersion: not a PEP 440 version.
    """
    modules: dict[str, list[str]] = {}
    adapted = []
    for one in imported(release):
        module, _, name = one.place.path.rpartition(".")
        modules.setdefault(module, []).append(
            name if one.adapted or name == one.name else f"{name} as {one.name}"
        )
        adapted += [one.adapted] if one.adapted else []
    lines = (f"from {module} import {', '.join(names)}" for module, names in modules.items())
    return ("import torch", "import torch.nn.functional as F", *lines, *adapted)
