"""How does the adapter call any release of torch like the newest one?

Only this module distinguishes releases, with the table in `names`. Other modules import from here
the names that have moved. A name that a release lacks raises `CannotAnswer` when it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from adapters.release_names import find_location, import_path
from adapters.release_names import format_missing as format_missing_name
from adapters.torch_dtensor.names import LINE_NAMES, MASK_ATTRIBUTE, NAMES, find_imported_names
from adapters.unsupported import CannotAnswer

RELEASE = str(torch.__version__)


class Missing(Exception):
    """This release lacks a name. The text says which releases have it."""


class MissingPlaceholder:
    """A placeholder for a name that this release lacks. Any use raises `CannotAnswer`."""

    def __init__(self, sentence: str):
        self._sentence = sentence

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise `CannotAnswer`."""
        raise Missing(self._sentence)

    def __getattr__(self, name: str) -> Any:
        """Raise `CannotAnswer` for every attribute."""
        raise Missing(self._sentence)

    def __instancecheck__(self, instance: object) -> bool:
        """Return False, because no object is of a missing class."""
        return False


def format_missing(wanted: str) -> str:
    """The sentence that this release lacks ``wanted``, and which release introduced it."""
    if wanted in NAMES:
        return format_missing_name(NAMES, wanted, "torch", RELEASE)
    return f"torch {RELEASE.partition('+')[0]} has no {wanted}"


def find_name(wanted: str) -> Any:
    """The object that the table calls ``wanted``, or a `MissingPlaceholder`."""
    where = find_location(NAMES, wanted, RELEASE)
    if where is None:
        return MissingPlaceholder(format_missing(wanted))
    try:
        return import_path(where.path)
    # The release is newer than the table.
    except (ImportError, AttributeError):
        return MissingPlaceholder(f"{format_missing(wanted)} at {where.path}, where it was before")


if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh as DeviceMesh
    from torch.distributed.tensor import DTensor as DTensor
    from torch.distributed.tensor import Partial as Partial
    from torch.distributed.tensor import Replicate as Replicate
    from torch.distributed.tensor import Shard as Shard
    from torch.distributed.tensor import distribute_module as distribute_module
    from torch.distributed.tensor import distribute_tensor as distribute_tensor
    from torch.distributed.tensor.debug import CommDebugMode as CommDebugMode
    from torch.distributed.tensor.parallel import ColwiseParallel as ColwiseParallel
    from torch.distributed.tensor.parallel import ParallelStyle as ParallelStyle
    from torch.distributed.tensor.parallel import PrepareModuleInput as PrepareModuleInput
    from torch.distributed.tensor.parallel import RowwiseParallel as RowwiseParallel
    from torch.distributed.tensor.parallel import SequenceParallel as SequenceParallel
    from torch.distributed.tensor.parallel import loss_parallel as loss_parallel
    from torch.distributed.tensor.parallel import parallelize_module as parallelize_module
    from torch.distributed.tensor.placement_types import Placement as Placement
    from torch.distributed.tensor.placement_types import _StridedShard as _StridedShard
else:
    DeviceMesh = find_name("DeviceMesh")
    DTensor = find_name("DTensor")
    Partial = find_name("Partial")
    Replicate = find_name("Replicate")
    Shard = find_name("Shard")
    Placement = find_name("Placement")
    _StridedShard = find_name("_StridedShard")
    distribute_module = find_name("distribute_module")
    distribute_tensor = find_name("distribute_tensor")
    loss_parallel = find_name("loss_parallel")
    ParallelStyle = find_name("ParallelStyle")
    parallelize_module = find_name("parallelize_module")
    ColwiseParallel = find_name("ColwiseParallel")
    RowwiseParallel = find_name("RowwiseParallel")
    PrepareModuleInput = find_name("PrepareModuleInput")
    SequenceParallel = find_name("SequenceParallel")
    CommDebugMode = find_name("CommDebugMode")

compute_local_shape_and_global_offset: Callable[..., Any] = find_name(
    "compute_local_shape_and_global_offset"
)
all_to_all_single_autograd: Callable[..., Any] = find_name("all_to_all_single_autograd")
RMSNorm: Callable[..., torch.nn.Module] = find_name("torch.nn.RMSNorm")
fully_shard: Callable[..., Any] = find_name("fully_shard")
replicate: Callable[..., Any] = find_name("replicate(mesh=)")
context_parallel: Callable[..., Any] = find_name("context_parallel")
set_rotate_method: Callable[..., Any] = find_name("set_rotate_method")
ring_options: Any = find_name("_cp_options")
propagator: Any = find_name("propagator")


def has(wanted: str) -> bool:
    """Whether this release has what the table calls ``wanted``."""
    return find_location(NAMES, wanted, RELEASE) is not None


def require(wanted: str) -> None:
    """Check that this release has what the table calls ``wanted``.

    Raises:
        CannotAnswer: this release lacks it.
    """
    if not has(wanted):
        raise CannotAnswer(format_missing(wanted))


def names_for_lines() -> dict[str, Any]:
    """The names, besides those of the program, that a line may use, and their objects."""
    names: dict[str, Any] = {"torch": torch, "F": F}
    for name in LINE_NAMES:
        names[name] = find_name(name)
    for one in find_imported_names(RELEASE):
        if one.adapted:
            known = {"torch": torch, one.place.path.rpartition(".")[2]: names[one.name]}
            exec(one.adapted, known)
            names[one.name] = known[one.name]
    return names


_CLEAR = [find_name(one) for one in ("forget", "forget_fast") if has(one)]


def clear_layout_caches() -> None:
    """Clear the layouts that torch has cached for ops.

    The cache key of torch is incomplete: a topk with k=4 gets the cached layout of one with k=1.
    """
    for clear in _CLEAR:
        clear()


def wait_for_collectives(value: Any) -> Any:
    """Wait until the collectives of ``value`` have finished or failed, and return ``value``.

    From torch 2.4 on, an error of gloo is raised by the call. Before, it is raised by the wait,
    which may come long after the line.
    """
    if isinstance(value, DTensor) and not has("OpOverload.redispatch"):
        wait = getattr(value._local_tensor, "trigger_wait", None)
        if wait is not None:
            wait()
    return value


def reduction_name(placement: Any) -> str:
    """The name of the reduction of a Partial, such as sum, avg or max."""
    # In old releases it is a member of ReduceOp.
    reduction: Any = placement.reduce_op
    return reduction if isinstance(reduction, str) else str(reduction.name).lower()


def has_mask_buffer(placement: Any) -> bool:
    """Whether a placement is a Partial that can be reduced only once.

    The Partial of an embedding or gather on sharded rows has a mask, which the reduction consumes.
    """
    return hasattr(placement, MASK_ATTRIBUTE)


def mesh_groups(mesh: DeviceMesh) -> list[Any]:
    """The process groups of this rank, one for each mesh axis. The rank must be in the mesh."""
    if has("DeviceMesh.get_all_groups"):
        return list(mesh.get_all_groups())
    old: Any = mesh
    return [old.get_group(axis) for axis in range(mesh.ndim)]


def process_group_name(group: Any) -> str:
    """The name of a process group in the arguments of ops."""
    if has("ProcessGroup.group_name"):
        return str(group.group_name)
    c10d: Any = dist.distributed_c10d
    return str(c10d._get_process_group_name(group))
