"""Which collectives does torch fire? Each is noted once, with its group, where it is dispatched.

Sees the functional collectives that DTensor issues and the c10d ops that `torch.distributed` issues
(scatter, broadcast, FSDP), before the backend splits or merges them. Knows neither their purpose
nor what they should have been.

It stands in the dispatcher in front of these ops alone. A TorchDispatchMode stands in front of
every op, which makes a redistribute a third slower on each rank. Only CommDebugMode uses that way;
it counts by other means and so checks this.
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

# Below autograd, dispatch modes and tensor subclasses such as DTensor, so that whatever any of them
# fires comes here, and above the backends. Torch itself has nothing at this key for these ops.
_KEY = "BackendSelect"

Axes = Callable[[str], tuple[tuple[str, ...], int]]


class Recorder:
    """Notes every collective that this process fires while it is active. One per process.

    ``strange``: names of ops that look like collectives and have no kind.
    """

    def __init__(self) -> None:
        self.strange: list[str] = []
        self._fired: list[tuple[CollectiveKind, str, int, bool]] = []
        self._active = False
        self._mode: Any = None
        if not has("OpOverload.redispatch"):
            # In this release nothing can stand in front of one op and pass its call on.
            self._mode = _Mode(self)
            return
        # Kept, because the kernels go when their libraries do.
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
        """The kernel in front of an op: it notes the call, and passes it on."""
        run = op.redispatch
        below = torch._C._dispatch_keyset_full_after(getattr(torch._C.DispatchKey, _KEY))

        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._active:
                return run(keyset & below, *args, **kwargs)
            # Functional collectives consist of c10d ops, which must not count again.
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
        """The collectives fired since the last call; ``axes`` says what a group's name means."""
        fired, self._fired = self._fired, []
        return tuple(
            Collective(kind, *axes(group), size, "backward" if backward else "forward")
            for kind, group, size, backward in fired
        )


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Stands in front of every op, and has a recorder note the collectives among them."""

    def __init__(self, recorder: Recorder):
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder = recorder

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Pass the op on; the ops of which it consists do not count again."""
        # DTensor first takes the op apart; the ops that it makes of it come here too.
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
    """What a process group means to one rank: the axes of a mesh, and the size.

    ``meshes``: the meshes in which a group's axes are looked for, in this order, each with the
    names of its groups, axis by axis.
    """

    def __init__(self, rank: int, meshes: Iterable[tuple[Mesh, list[str]]]):
        self._rank = rank
        self._meshes = [(mesh, names) for mesh, names in meshes if rank in mesh.devices]
        self._known: dict[str, tuple[tuple[str, ...], int]] = {}
        for mesh, names in self._meshes:
            for (axis, size), name in zip(mesh.axes, names, strict=True):
                self._known.setdefault(name, ((axis,), size))

    def __call__(self, group: str) -> tuple[tuple[str, ...], int]:
        """Axes in mesh order, and size; no axes for a group that is not along any."""
        if group not in self._known:
            ranks = parse_ranks(group)
            # Its ranks alone do not tell one axis of size 1 from another.
            narrow = ranks is not None and len(ranks) == 1
            if ranks is None:
                c10d: Any = dist.distributed_c10d
                ranks = dist.get_process_group_ranks(c10d._resolve_process_group(group))
            along = self._narrow if narrow else self._along
            found = (along(mesh, frozenset(ranks)) for mesh, _ in self._meshes)
            self._known[group] = (next(filter(None, found), ()), len(ranks))
        return self._known[group]

    def _narrow(self, mesh: Mesh, ranks: frozenset[int]) -> tuple[str, ...]:
        """The first axis of size 1, along which every rank is alone."""
        return next(((name,) for name, size in mesh.axes if size == 1), ())

    def _along(self, mesh: Mesh, ranks: frozenset[int]) -> tuple[str, ...]:
        """The fewest axes of size > 1 along which this rank's group has these ranks."""
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
    """How the recorder's counts differ from CommDebugMode's, a sentence for each kind.

    ``counted``: the result of ``get_comm_counts``, by op; it spells functional collectives without
    the leading underscore.
    """
    theirs: Counter[CollectiveKind] = Counter()
    unknown = []
    for op, count in counted.items():
        namespace, _, name = str(op).partition(".")
        row = KINDS.get(f"{namespace}::{name}") or KINDS.get(f"_{namespace}::{name}")
        if row is None:
            unknown.append(f"CommDebugMode counts {op}, which has no kind")
        else:
            theirs[row[0]] += count
    return (
        *unknown,
        *(
            f"the recorder counts {fired[kind]} {kind}, CommDebugMode {theirs[kind]}"
            for kind in sorted(fired.keys() | theirs.keys())
            if fired[kind] != theirs[kind]
        ),
    )
