"""How does torch run as one rank of a world that is not there? Collectives noted, bytes counted.

A fake process group answers every collective at once, and fake tensors have shapes and no data,
so that one process is any rank of thousands. It must be a process of its own: it has a default
process group, and what it computes means nothing. Within `fake_world`:

* meshes, and whatever reads the values of a mesh (`fully_shard` does), are made with no
  FakeTensorMode active: a mesh's grid is real;
* parameters and data are made under one FakeTensorMode, and the steps run under the same one
  with a `FakeRecorder` inside it: ``with mode, recorder: ...``. From outside,
  `torch.Tensor.nbytes` and shapes of what is made are as they would be.

What the collectives are for, and what they should have been, it does not know.
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

# In a real run it returns its argument, but a fake one makes another.
_WAIT = "_c10d_functional::wait_tensor"


@contextlib.contextmanager
def fake_world(size: int, rank: int = 0) -> Iterator[None]:
    """Be ``rank`` of a world of ``size`` ranks that are not there, until the end of the block.

    Needs a process without a default process group, and leaves it without one.
    """
    store: Any = FakeStore
    dist.init_process_group("fake", store=store(), rank=rank, world_size=size)
    try:
        yield
    finally:
        dist.destroy_process_group()


class FakeRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every collective that is fired while it is active, and the most bytes alive.

    To be entered inside a FakeTensorMode. `take` as in `adapters.torch_dtensor.recorder.Recorder`,
    which fake tensors do not reach. ``strange``: names of ops that look like collectives and have
    no kind. ``peak``: the largest sum, after any op, of the living storages that ops have made
    since `begin` and of those that are held: the local tensors of one rank, without temporaries
    inside an op.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.strange: list[str] = []
        self.peak = 0
        self._fired: list[tuple[CollectiveKind, str, int, bool]] = []
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._paused = 0

    def begin(self, held: Iterable[torch.Tensor] = ()) -> None:
        """Forget all that was noted; count what ``held`` (parameters, inputs) from now on.

        Strange names are kept until they are reported.
        """
        self._fired.clear()
        self._storages.clear()
        self.peak = 0
        self.hold(held)

    def hold(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count these too: their local parts, for as long as they live."""
        for tensor in tensors:
            self._count(tensor)
        self._weigh()

    def take(self, axes: Axes) -> tuple[Collective, ...]:
        """The collectives fired since the last call; ``axes`` says what a group's name means."""
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
        """Pass the op on, and look at its arguments and results."""
        # DTensor first takes the op apart; the ops that it makes of it come here too.
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
            self._weigh()
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
        # Its address may have belonged to another, which is gone by now.
        self._storages[storage._cdata] = weakref.ref(storage)
        return None

    def _weigh(self) -> None:
        """The bytes that live now. Storages can be resized meanwhile, so each is asked again."""
        total = 0
        for key, one in [*self._storages.items()]:
            storage = one()
            if storage is None:
                del self._storages[key]
            else:
                total += storage.nbytes()
        self.peak = max(self.peak, total)


class _Paused:
    """A block in which a `FakeRecorder` notes nothing. It may be entered again inside."""

    def __init__(self, recorder: FakeRecorder):
        self._recorder = recorder

    def __enter__(self) -> None:
        self._recorder._paused += 1

    def __exit__(self, *exception: object) -> None:
        self._recorder._paused -= 1


@contextlib.contextmanager
def _propagating(recorder: FakeRecorder) -> Iterator[None]:
    """While DTensor works out a layout, a `FakeRecorder` notes nothing: no shard is touched.

    DTensor finds global shapes by running an op on fake tensors, inside a lock that torch lets
    others replace. If an op has no strategy, its decomposition runs on meta tensors. No
    FakeTensorMode takes those, so it is switched off for them.
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
