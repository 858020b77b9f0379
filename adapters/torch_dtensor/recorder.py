"""Which collectives does torch fire? Each is recorded once, with its group, at dispatch.

The recorder sees the functional collectives of DTensor and the c10d ops of `torch.distributed`
(scatter, broadcast, FSDP) before the backend splits or merges them. It does not know which
collectives are right.

It registers dispatcher kernels only for these ops. A TorchDispatchMode intercepts every op, which
makes a redistribute a third slower on each rank. CommDebugMode is such a mode. It counts
independently, so it is a check of this recorder.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from adapters.answer import Collective
from adapters.torch_dtensor.collective_kinds import (
    KINDS,
    NAMESPACES,
    NOT_COUNTED,
    group_name,
    nbytes,
    parse_ranks,
)
from adapters.torch_dtensor.compat import DTensor, has
from cases.layout import axis_groups
from cases.model import CollectiveKind, Mesh

# This key is below autograd, dispatch modes and tensor subclasses such as DTensor, so it sees the
# collectives of all of them. It is above the backends. torch has no kernels here for these ops.
_KEY = "BackendSelect"

Axes = Callable[[str], tuple[tuple[str, ...], int]]


class Recorder:
    """Records every collective that this process fires while it is active. One per process.

    ``strange``: names of ops that look like collectives but have no kind.
    """

    def __init__(self) -> None:
        self.strange: list[str] = []
        self._fired: list[tuple[CollectiveKind, str, int, bool]] = []
        self._active = False
        self._mode: Any = None
        if not has("OpOverload.redispatch"):
            # In such a release, a kernel for one op cannot pass the call on.
            self._mode = _Mode(self)
            return
        # The kernels live only as long as their libraries.
        library: Any = torch.library.Library
        self._libraries = {name: library(name, "IMPL") for name in NAMESPACES}
        for name in torch._C._dispatch_get_all_op_names():
            namespace, _, op = name.partition("::")
            if namespace in NAMESPACES and name not in NOT_COUNTED:
                kernel = self._kernel(name, getattr(getattr(torch.ops, namespace), op).default)
                self._libraries[namespace].impl(op, kernel, _KEY, with_keyset=True)

    def __enter__(self) -> Recorder:
        self._active = True
        if self._mode is not None:
            self._mode.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._mode is not None:
            self._mode.__exit__(*exception)
        self._active = False

    def _kernel(self, name: str, op: Any) -> Callable[..., Any]:
        """A kernel that records the call of an op and passes it on."""
        run = op.redispatch
        below = torch._C._dispatch_keyset_full_after(getattr(torch._C.DispatchKey, _KEY))

        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._active:
                return run(keyset & below, *args, **kwargs)
            # Functional collectives call c10d ops, which must not be counted again.
            self._active = False
            try:
                self._note(name, args)
                return run(keyset & below, *args, **kwargs)
            finally:
                self._active = True

        return kernel

    def _note(self, name: str, args: tuple[Any, ...]) -> None:
        if name not in KINDS:
            self.strange.append(name)
            return
        kind, operand, group = KINDS[name]
        backward = torch._C._current_graph_task_id() != -1
        self._fired.append((kind, group_name(args[group]), nbytes(args[operand]), backward))

    def take(self, axes: Axes) -> tuple[Collective, ...]:
        """The collectives fired since the last call. ``axes`` maps a group name to mesh axes."""
        fired, self._fired = self._fired, []
        return tuple(
            Collective(kind, *axes(group), size, "backward" if backward else "forward")
            for kind, group, size, backward in fired
        )


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Intercepts every op and passes the collectives to a recorder."""

    def __init__(self, recorder: Recorder):
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder = recorder

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Record the op if it is a collective, and run it without counting the ops inside."""
        # DTensor handles the op first. The ops that it calls on local tensors arrive here.
        if any(issubclass(one, DTensor) for one in types):
            return NotImplemented
        recorder, name = self._recorder, func._schema.name
        counts = (
            recorder._active and name.partition("::")[0] in NAMESPACES and name not in NOT_COUNTED
        )
        if not counts:
            return func(*args, **(kwargs or {}))
        recorder._active = False
        try:
            recorder._note(name, args)
            return func(*args, **(kwargs or {}))
        finally:
            recorder._active = True


class GroupAxes:
    """Maps a process group of one rank to the axes of a mesh, and to its size.

    ``meshes``: the meshes to search, in this order. Each has the names of its groups, one per axis.
    """

    def __init__(self, rank: int, meshes: Iterable[tuple[Mesh, list[str]]]):
        self._rank = rank
        self._meshes = [(mesh, names) for mesh, names in meshes if rank in mesh.devices]
        self._known: dict[str, tuple[tuple[str, ...], int]] = {}
        for mesh, names in self._meshes:
            for (axis, size), name in zip(mesh.axes, names, strict=True):
                self._known.setdefault(name, ((axis,), size))

    def __call__(self, group: str) -> tuple[tuple[str, ...], int]:
        """Axes in mesh order, and the size. No axes if the group is not along mesh axes."""
        if group not in self._known:
            ranks = parse_ranks(group)
            # A group given as one rank does not tell which axis of size 1 it belongs to.
            narrow = ranks is not None and len(ranks) == 1
            if ranks is None:
                c10d: Any = dist.distributed_c10d
                ranks = dist.get_process_group_ranks(c10d._resolve_process_group(group))
            along = self._narrow if narrow else self._along
            found = (along(mesh, frozenset(ranks)) for mesh, _ in self._meshes)
            self._known[group] = (next(filter(None, found), ()), len(ranks))
        return self._known[group]

    def _narrow(self, mesh: Mesh, ranks: frozenset[int]) -> tuple[str, ...]:
        """The first mesh axis of size 1. Every rank is alone along it."""
        return next(((name,) for name, size in mesh.axes if size == 1), ())

    def _along(self, mesh: Mesh, ranks: frozenset[int]) -> tuple[str, ...]:
        """The smallest set of axes of size > 1 whose group of this rank is ``ranks``."""
        place = mesh.devices.index(self._rank)
        wide = [name for name, size in mesh.axes if size > 1]
        for count in range(1, len(wide) + 1):
            for axes in itertools.combinations(wide, count):
                group = next(group for group in axis_groups(mesh, axes) if place in group)
                if frozenset(mesh.devices[position] for position in group) == ranks:
                    return axes
        return ()


def find_count_differences(
    fired: Counter[CollectiveKind], counted: Mapping[Any, int]
) -> tuple[str, ...]:
    """A sentence for each kind whose counts differ between the recorder and CommDebugMode.

    ``counted``: the result of ``get_comm_counts``, by op. It has functional collectives without the
    leading underscore.
    """
    debug_counts: Counter[CollectiveKind] = Counter()
    unknown = []
    for op, count in counted.items():
        namespace, _, name = str(op).partition(".")
        row = KINDS.get(f"{namespace}::{name}") or KINDS.get(f"_{namespace}::{name}")
        if row is None:
            unknown.append(f"CommDebugMode counts {op}, which has no kind")
        else:
            debug_counts[row[0]] += count
    return (
        *unknown,
        *(
            f"the recorder counts {fired[kind]} {kind}, CommDebugMode {debug_counts[kind]}"
            for kind in sorted(fired.keys() | debug_counts.keys())
            if fired[kind] != debug_counts[kind]
        ),
    )
