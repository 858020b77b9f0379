"""What does one rank do? Makes the meshes, evaluates the lines of a task, tells what it saw.

One of several processes that run the same lines in step. It does not know what the others
see or raise, nor whether anything is right.
"""

from __future__ import annotations

import contextlib
import datetime
import faulthandler
import os
import signal
import socket
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from types import CodeType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch._C._distributed_c10d import FileStore
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor import debug as dtensor_debug
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.experimental import local_map
from torch.distributed.tensor.parallel import loss_parallel
from torch.distributed.tensor.placement_types import _StridedShard

from adapters.answer import Collective, Kind
from adapters.torch_dtensor import wire
from adapters.torch_dtensor.layouts import layout_of, mesh_of, shard_order
from adapters.torch_dtensor.ops import CONTEXTS, mesh_source
from adapters.torch_dtensor.recorder import GroupAxes, Recorder, differences
from adapters.torch_dtensor.tensors import to_array, to_tensor
from adapters.torch_dtensor.wire import Fulls, Go, Line, Raised, Report, Seen, Task, Wanted, digest
from cases.arrays import Array, pack
from cases.model import Foreign, Layout, Mesh

# Every name that a line may use beside those of the program.
_NAMES: dict[str, Any] = {
    "torch": torch,
    "F": F,
    "DeviceMesh": DeviceMesh,
    "DTensor": DTensor,
    "Partial": Partial,
    "Replicate": Replicate,
    "Shard": Shard,
    "_StridedShard": _StridedShard,
    "distribute_tensor": distribute_tensor,
    "local_map": local_map,
    "loss_parallel": loss_parallel,
}
_LINE = "<line>"
_clear_caches: Callable[[], None] = dtensor_debug._clear_sharding_prop_cache
# Longer than any deadline: the worker decides when a rank has waited enough.
_FOREVER = datetime.timedelta(hours=24)


@lru_cache(maxsize=65536)
def _compiled(source: str) -> CodeType:
    return compile(source, _LINE, "eval")


def serve(
    number: int,
    size: int,
    link: socket.socket,
    store: str,
    stacks: int,
    progress: memoryview,
    *,
    recorder: Recorder,
) -> None:
    """Join the world and answer tasks until the worker is gone.

    ``store``: path of the file that the ranks meet in. ``stacks``: descriptor that SIGUSR1
    writes this rank's Python stack to. ``progress[number]``: where in a task it is.
    """
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=False, chain=False)
    rank = _Rank(number, link, progress, recorder)
    dist.init_process_group(
        "gloo", store=FileStore(store, size), rank=number, world_size=size, timeout=_FOREVER
    )
    while (message := wire.receive(link)) is not None:
        match message:
            case Task():
                rank.answer(message)
            case Wanted(names):
                rank.send_fulls(names)
            case Go():
                raise RuntimeError("told to go on with nothing")


class _Rank:
    """One rank of a world, with its kept meshes."""

    def __init__(self, number: int, link: socket.socket, progress: memoryview, recorder: Recorder):
        self._number = number
        self._link = link
        self._progress = progress
        self._meshes: dict[Mesh, DeviceMesh] = {}
        self._models: dict[DeviceMesh, Mesh] = {}
        self._axes: dict[Any, GroupAxes] = {}
        self._layouts: dict[Any, Layout | Foreign] = {}
        self._offsets: dict[Any, tuple[int, ...]] = {}
        self._recorder = recorder
        mode: Any = CommDebugMode
        self._debug = mode()
        self._fulls: dict[str, Array] = {}

    def answer(self, task: Task) -> None:
        """Evaluate the lines of a task, and send what came of it."""
        run = _Run()
        # It is keyed by less than what decides: a topk of 4 after one of 1 would find its answer.
        _clear_caches()
        self._recorder.strange.clear()
        self._recorder.take(_nowhere)
        self._make_meshes(task, run)
        report = Report()
        if any(self._number in mesh.devices for _, mesh in task.meshes):
            # One rank is enough: what ranks record is compared between them.
            checked = task.checked and self._number == task.mesh.devices[0]
            with self._recorder, self._debug if checked else contextlib.nullcontext():
                self._evaluate(task, run)
                # No graph of what is ours: that of the program stays as it is.
                with torch.no_grad():
                    self._materialise(task, run)
            with torch.no_grad():
                report = self._report(task, run, checked)
        else:
            # Torch has it that groups are made by every rank, late ones too.
            self._lines((line for line in task.derived if line.after), run)
        self._at(run, last=True)
        self._link.sendall(wire.frame(report))

    def send_fulls(self, names: tuple[str, ...]) -> None:
        """Send full tensors of the last task whole."""
        found = {name: self._fulls[name] for name in names if name in self._fulls}
        self._link.sendall(wire.frame(Fulls(found)))

    def _make_meshes(self, task: Task, run: _Run) -> None:
        """Make every mesh, in or out of it: a group is made by all ranks of the world."""
        for variable, mesh in task.meshes:
            if mesh not in self._meshes:
                source = mesh_source(mesh)
                made = self._attempt(run, variable, lambda: eval(_compiled(source), dict(_NAMES)))  # noqa: B023
                if run.failed:
                    return
                self._meshes[mesh] = made
            else:
                self._at(run)
            run.names[variable] = self._meshes[mesh]
        self._lines(task.late(""), run)
        if run.failed:
            return
        known = ((task.mesh, "mesh"), *((mesh, name) for name, mesh in task.meshes[1:]))
        # Where meshes are derived, this world has no other task.
        key = tuple(mesh for mesh, _ in known)
        if key not in self._axes:
            groups = [(mesh, _groups(run.names[name])) for mesh, name in known]
            self._axes[key] = GroupAxes(self._number, groups)
        run.axes = self._axes[key]

    def _evaluate(self, task: Task, run: _Run) -> None:
        for data in task.inputs:
            if not run.failed:
                # What is given to each device of a derived mesh stands in the question's order.
                devices = dict(task.meshes).get(data.where, task.mesh).devices
                place = 0
                if data.per_device and self._number in devices:
                    place = devices.index(self._number)
                run.names[data.line.variable] = to_tensor(data.arrays[place])
            self._lines((data.line, *task.late(data.line.name)), run)
        region: Any = contextlib.nullcontext()
        if task.context:
            region = eval(_compiled(CONTEXTS[task.context]), run.names)
        with region:
            for line in task.steps:
                self._lines((line, *task.late(line.name)), run)

    def _lines(self, lines: Iterable[Line], run: _Run) -> None:
        """Evaluate lines in order, as far as none fails."""
        for line in lines:
            if run.failed:
                self._at(run)
                continue
            code = line.source
            value = self._attempt(run, line.name, lambda: eval(_compiled(code), run.names))  # noqa: B023
            if not run.failed:
                run.names[line.variable] = run.values[line.name] = value
                run.collectives[line.name] = self._take(run)

    def _materialise(self, task: Task, run: _Run) -> None:
        """Full tensors of what is checked, after the whole program: they change nothing then."""
        failed, run.failed = run.failed, False
        for name in task.check:
            value = run.values.get(name)
            if isinstance(value, DTensor):
                full = self._attempt(run, f"{name}/full", value.full_tensor)
                fired = self._take(run)
                if full is not None:
                    run.fulls[name] = full
                    run.full_collectives[name] = fired
            else:
                self._at(run)
                if name in task.whole and isinstance(value, torch.Tensor):
                    run.fulls[name] = value
        run.failed = failed

    def _report(self, task: Task, run: _Run, checked: bool) -> Report:
        seen = []
        self._fulls = {name: to_array(full) for name, full in run.fulls.items()}
        for name in task.check:
            if name not in run.values:
                continue
            value = run.values[name]
            on = value.device_mesh if isinstance(value, DTensor) else value
            if not isinstance(on, DeviceMesh) or on.get_coordinate() is not None:
                seen.append(self._see(name, value, task, run))
        complaints = [f"an op without a kind: {name}" for name in self._recorder.strange]
        if checked:
            counts: Counter[Kind] = Counter(one.kind for one in run.fired)
            complaints += differences(counts, self._debug.get_comm_counts())
        return Report(tuple(seen), (*run.complaints, *complaints))

    def _see(self, name: str, value: Any, task: Task, run: _Run) -> Seen:
        fired = run.collectives.get(name)
        if isinstance(value, DeviceMesh):
            grid = pack(value.mesh.numpy().astype(np.int64))
            return Seen(name, grid.dtype, grid.shape, None, None, grid, None, None, None, None)
        if not isinstance(value, DTensor):
            plain = isinstance(value, torch.Tensor)
            local = to_array(value) if plain else pack(np.asarray(value))
            full = self._full(name, task.mesh)
            return Seen(name, local.dtype, local.shape, None, None, local, None, full, fired, None)
        mesh = self._model(value.device_mesh)
        local = to_array(value.to_local())
        return Seen(
            name,
            str(value.dtype).removeprefix("torch."),
            tuple(value.shape),
            self._layout(value, mesh),
            None if mesh == task.mesh else mesh,
            local,
            self._offset(name, value, mesh, run),
            self._full(name, mesh),
            fired,
            run.full_collectives.get(name),
        )

    def _full(self, name: str, mesh: Mesh) -> Array | bytes | None:
        full = self._fulls.get(name)
        return full if full is None or mesh.devices[0] == self._number else digest(full)

    def _model(self, mesh: DeviceMesh) -> Mesh:
        if mesh not in self._models:
            self._models[mesh] = mesh_of(mesh)
        return self._models[mesh]

    def _layout(self, value: DTensor, mesh: Mesh) -> Layout | Foreign:
        order = shard_order(value)
        key = (value.placements, order, mesh, value.ndim)
        if key not in self._layouts:
            self._layouts[key] = layout_of(*key)
        return self._layouts[key]

    def _offset(self, name: str, value: DTensor, mesh: Mesh, run: _Run) -> tuple[int, ...] | None:
        key = (value.placements, mesh, value.shape)
        if key not in self._offsets:
            try:
                _, self._offsets[key] = compute_local_shape_and_global_offset(
                    value.shape, value.device_mesh, value.placements
                )
            # Whatever torch raises here is its word on offsets.
            except Exception as error:
                run.complaints.append(f"no offset of {name}: {type(error).__name__}: {error}")
                return None
        return self._offsets[key]

    def _take(self, run: _Run) -> tuple[Collective, ...]:
        fired = self._recorder.take(run.axes)
        run.fired += fired
        return fired

    def _at(self, run: _Run, *, last: bool = False) -> None:
        """Leave word of how far this rank has come."""
        run.place = -1 if last else run.place + 1
        self._progress[self._number] = run.place

    def _attempt(self, run: _Run, place: str, what: Callable[[], Any]) -> Any:
        """What it gives. If it raises: tell the worker, wait for its word, and give None."""
        self._at(run)
        try:
            return what()
        # Whatever the framework raises is its answer.
        except Exception as error:
            run.failed = True
            halfway = bool(self._take(run))
            raised = Raised(
                type(error).__name__,
                _first_line(error),
                place,
                _is_missing(error),
                tuple(run.fired),
                halfway,
            )
            # Frames hold tensors, and groups in use.
            traceback.clear_frames(error.__traceback__)
        self._link.sendall(wire.frame(raised))
        if not isinstance(wire.receive(self._link), Go):
            os._exit(0)
        return None


class _Run:
    """What has come of one task so far."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = dict(_NAMES)
        self.values: dict[str, Any] = {}
        self.fulls: dict[str, torch.Tensor] = {}
        self.collectives: dict[str, tuple[Collective, ...]] = {}
        self.full_collectives: dict[str, tuple[Collective, ...]] = {}
        self.fired: list[Collective] = []
        self.complaints: list[str] = []
        self.axes: Callable[[str], tuple[tuple[str, ...], int]] = _nowhere
        self.failed = False
        self.place = -1


def _nowhere(group: str) -> tuple[tuple[str, ...], int]:
    return (), 0


def _groups(mesh: DeviceMesh) -> list[str]:
    """Names of the groups that this rank is in, axis by axis; none outside the mesh."""
    if mesh.get_coordinate() is None:
        return []
    return [str(group.group_name) for group in mesh.get_all_groups()]


def _first_line(error: Exception) -> str:
    """The first line of its text; for a bare assertion, which function it failed in."""
    where = traceback.extract_tb(error.__traceback__)[-1].name
    lines = filter(None, map(str.strip, str(error).splitlines()))
    return next(lines, f"(no text; raised in {where})")


def _is_missing(error: Exception) -> bool:
    """Whether a line named something that this release of torch does not have.

    Then it was raised by the line itself, or by a module's ``__getattr__`` called from it,
    not inside anything that the line called.
    """
    if not isinstance(error, AttributeError | ImportError):
        return False
    frames = list(traceback.extract_tb(error.__traceback__))
    files = [frame.filename for frame in frames]
    if _LINE not in files:
        return False
    return all(frame.name == "__getattr__" for frame in frames[files.index(_LINE) + 1 :])
