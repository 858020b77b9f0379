"""How does torch run as one rank of a fake world, and which collectives and bytes does it use?

The fake process group completes every collective at once. Fake tensors have shapes but no data, so
one process can act as any rank of thousands. It must be a separate process, because it has a
default process group and computes no values. Within `fake_world`:

* Make meshes without a FakeTensorMode, because the grid of a mesh is a real tensor. The same holds
  for functions that read the grid, such as `fully_shard`.
* Make parameters and data under one FakeTensorMode. Run the steps under the same mode with a
  `FakeRecorder` inside it: ``with mode, recorder: ...``. Shapes and `torch.Tensor.nbytes` of the
  results are right.

This module does not know which collectives are right.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from adapters.answer import Collective
from adapters.torch_dtensor.collective_kinds import (
    KINDS,
    NAMESPACES,
    NOT_COUNTED,
    group_name,
    nbytes,
)
from adapters.torch_dtensor.compat import DTensor, propagator
from adapters.torch_dtensor.recorder import Axes
from cases.model import CollectiveKind

# The real op returns its argument. The fake op returns a new tensor.
_WAIT = "_c10d_functional::wait_tensor"


@contextlib.contextmanager
def fake_world(size: int, rank: int = 0) -> Iterator[None]:
    """Act as ``rank`` of a fake world with ``size`` ranks inside the block.

    The process must not have a default process group. It has none afterwards.
    """
    store: Any = FakeStore
    dist.init_process_group("fake", store=store(), rank=rank, world_size=size)
    try:
        yield
    finally:
        dist.destroy_process_group()


class FakeRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the collectives that are fired while it is active, and the peak of live bytes.

    Enter it inside a FakeTensorMode. It replaces `adapters.torch_dtensor.recorder.Recorder`, which
    fake tensors do not reach. ``strange``: ops that look like collectives but have no kind.
    ``peak``: the largest total of live storages after any op. It counts storages that ops made
    since `begin` or that were passed to `hold`: the local tensors of one rank, without temporaries
    inside an op.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.strange: list[str] = []
        self.peak = 0
        self._fired: list[tuple[CollectiveKind, str, int, bool]] = []
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._paused = 0

    def begin(self, tensors: Iterable[torch.Tensor] = ()) -> None:
        """Clear collectives and bytes. Count ``tensors``, such as parameters.

        ``strange`` is not cleared.
        """
        self._fired.clear()
        self._storages.clear()
        self.peak = 0
        self.hold(tensors)

    def hold(self, tensors: Iterable[torch.Tensor]) -> None:
        """Also count the local tensors of ``tensors`` as long as they live."""
        for tensor in tensors:
            self._count(tensor)
        self._update_peak()

    def take(self, axes: Axes) -> tuple[Collective, ...]:
        """The collectives fired since the last call. ``axes`` maps a group name to mesh axes."""
        fired, self._fired = self._fired, []
        return tuple(
            Collective(kind, *axes(group), size, "backward" if backward else "forward")
            for kind, group, size, backward in fired
        )

    def __enter__(self) -> FakeRecorder:
        super().__enter__()  # type: ignore[no-untyped-call]
        self._propagating = contextlib.ExitStack()
        self._propagating.enter_context(_propagating(self))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._propagating.close()
        super().__exit__(*exception)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the op. Record a collective, and count the results."""
        # DTensor handles the op first. The ops that it calls on local tensors arrive here.
        if any(issubclass(one, DTensor) for one in types):
            return NotImplemented
        name = getattr(func, "_schema", None) and func._schema.name
        if not self._paused and name and name.partition("::")[0] in NAMESPACES:
            self._note(name, args)
        if name == _WAIT:
            return args[0]
        made = func(*args, **(kwargs or {}))
        if not self._paused:
            for one in tree_leaves(made):
                if isinstance(one, torch.Tensor):
                    self._count(one)
            self._update_peak()
        return made

    def _note(self, name: str, args: tuple[Any, ...]) -> None:
        if name in KINDS:
            kind, operand, group = KINDS[name]
            backward = torch._C._current_graph_task_id() != -1
            self._fired.append((kind, group_name(args[group]), nbytes(args[operand]), backward))
        elif name not in NOT_COUNTED:
            self.strange.append(name)

    def _count(self, tensor: torch.Tensor) -> None:
        if isinstance(tensor, DTensor):
            return self._count(tensor._local_tensor)
        if is_traceable_wrapper_subclass(tensor):
            for name in tensor.__tensor_flatten__()[0]:
                self._count(getattr(tensor, name))
            return None
        storage = tensor.untyped_storage()
        # An earlier storage, which is freed by now, may have had the same address.
        self._storages[storage._cdata] = weakref.ref(storage)
        return None

    def _update_peak(self) -> None:
        """Update the peak. Every storage is measured again, because storages are resized."""
        total = 0
        for key, one in [*self._storages.items()]:
            storage = one()
            if storage is None:
                del self._storages[key]
            else:
                total += storage.nbytes()
        self.peak = max(self.peak, total)


class _Paused:
    """A reentrant context in which a `FakeRecorder` records nothing."""

    def __init__(self, recorder: FakeRecorder):
        self._recorder = recorder

    def __enter__(self) -> None:
        self._recorder._paused += 1

    def __exit__(self, *exception: object) -> None:
        self._recorder._paused -= 1


@contextlib.contextmanager
def _propagating(recorder: FakeRecorder) -> Iterator[None]:
    """Pause a `FakeRecorder` while DTensor propagates layouts, because that moves no data.

    DTensor runs an op on fake tensors of global shape inside ``_fake_mode_lock``. A pause is put in
    place of that lock. If an op has no strategy, DTensor runs its decomposition on meta tensors. A
    FakeTensorMode refuses those, so it is disabled there.
    """
    owner = type(propagator)
    strategy = getattr(propagator, "decomp_strategy", None)
    lock = getattr(owner, "_fake_mode_lock", None)
    owner._fake_mode_lock = _Paused(recorder)
    if strategy is not None:
        found = strategy.propagate_strategy

        def propagate(*args: Any) -> Any:
            with _Paused(recorder), unset_fake_temporarily():
                return found(*args)

        strategy.propagate_strategy = propagate
    try:
        yield
    finally:
        owner._fake_mode_lock = lock
        if strategy is not None:
            del strategy.propagate_strategy
