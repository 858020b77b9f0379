"""How does the adapter call a torch of any release as it would the newest? Names, as objects.

The one place where releases are told apart, by the table in `names`. Every other module takes
from here what has moved. To use what a release lacks raises `CannotAnswer`.
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


class MissingPlaceholder:
    """Stands for a name that this release lacks: to use it raises `CannotAnswer`."""

    def __init__(self, sentence: str):
        self._sentence = sentence

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """It cannot be called."""
        raise CannotAnswer(self._sentence)

    def __getattr__(self, name: str) -> Any:
        """It has nothing."""
        raise CannotAnswer(self._sentence)

    def __instancecheck__(self, instance: object) -> bool:
        """Nothing is of a class that is not there."""
        return False


def format_missing(wanted: str) -> str:
    """A sentence that this release has no ``wanted``, and since when there is one."""
    if wanted in NAMES:
        return format_missing_name(NAMES, wanted, "torch", RELEASE)
    return f"torch {RELEASE.partition('+')[0]} has no {wanted}"


def find_name(wanted: str) -> Any:
    """What the table calls ``wanted``; a `MissingPlaceholder` if this release lacks it."""
    where = find_location(NAMES, wanted, RELEASE)
    if where is None:
        return MissingPlaceholder(format_missing(wanted))
    try:
        return import_path(where.path)
    # A release that is newer than the table.
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
    """Do nothing if this release has what the table calls ``wanted``.

    Raises:
        CannotAnswer: it does not; the sentence says since when there is one.
    """
    if not has(wanted):
        raise CannotAnswer(format_missing(wanted))


def names_for_lines() -> dict[str, Any]:
    """Every name that a line may use besides those of the program, and what it is here."""
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
    """Have torch forget every layout that it has worked out for an op.

    Its cache leaves out parameters that matter: a topk of 4 after one of 1 would find that one's
    answer.
    """
    for clear in _CLEAR:
        clear()


def wait_for_collectives(value: Any) -> Any:
    """A line's value, after each of its collectives has either succeeded or failed.

    Since 2.4 the call itself raises what gloo refuses. Before, a wait for the result raises it, and
    that may come long after the line is done.
    """
    if isinstance(value, DTensor) and not has("OpOverload.redispatch"):
        wait = getattr(value._local_tensor, "trigger_wait", None)
        if wait is not None:
            wait()
    return value


def reduction_name(placement: Any) -> str:
    """The name of a pending reduction: sum, avg, max."""
    # In older releases it is a member of ReduceOp.
    said: Any = placement.reduce_op
    return said if isinstance(said, str) else str(said.name).lower()


def has_mask_buffer(placement: Any) -> bool:
    """Whether a pending reduction can be done only once, because doing it uses up its mask.

    The partial of an embedding, or of a gather of split rows, keeps such a mask.
    """
    return hasattr(placement, MASK_ATTRIBUTE)


def mesh_groups(mesh: DeviceMesh) -> list[Any]:
    """The process groups of this rank along each axis of a mesh that it is in, in mesh order."""
    if has("DeviceMesh.get_all_groups"):
        return list(mesh.get_all_groups())
    old: Any = mesh
    return [old.get_group(axis) for axis in range(mesh.ndim)]


def process_group_name(group: Any) -> str:
    """The name of a process group, as ops have it."""
    if has("ProcessGroup.group_name"):
        return str(group.group_name)
    c10d: Any = dist.distributed_c10d
    return str(c10d._get_process_group_name(group))
