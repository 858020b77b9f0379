"""What does one rank do? It answers tasks in step with the other ranks, and reports what it saw.

One of several processes that run the same lines in step. It knows neither what the others see or
raise, nor whether anything is right.
"""

from __future__ import annotations

import contextlib
import datetime
import faulthandler
import os
import signal
import socket
from collections import Counter
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from adapters.torch_dtensor import mesh_views, rank_messages
from adapters.torch_dtensor.compat import (
    CommDebugMode,
    DeviceMesh,
    DTensor,
    clear_layout_caches,
    has,
)
from adapters.torch_dtensor.evaluate import Evaluation, TaskRun, no_axes
from adapters.torch_dtensor.rank_messages import (
    Continue,
    FullTensors,
    InputData,
    Raised,
    RankObservation,
    Report,
    SendFullTensors,
    Task,
    digest,
)
from adapters.torch_dtensor.recorder import Recorder, find_count_differences
from adapters.torch_dtensor.tensors import to_array, to_tensor
from cases.arrays import Array, pack
from cases.layout import Ranges
from cases.model import CollectiveKind, Mesh
from cases.recipes import ModelTensor
from cases.recipes.parameter_values import parameter_array

# Longer than any deadline: the worker decides when a rank has waited long enough.
_FOREVER = datetime.timedelta(hours=24)


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

    ``store``: path of the file in which the ranks meet. ``stacks``: descriptor to which SIGUSR1
    writes this rank's Python stack. ``progress[number]``: how far it is in a task.
    """
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=False, chain=False)
    rank = _Rank(number, link, progress, recorder)
    dist.init_process_group(
        "gloo", store=FileStore(store, size), rank=number, world_size=size, timeout=_FOREVER
    )
    while (message := rank_messages.receive_message(link)) is not None:
        match message:
            case Task():
                rank.answer(message)
            case SendFullTensors(names):
                rank.send_fulls(names)
            case Continue():
                raise RuntimeError("told to go on with nothing")


class _Rank:
    """One rank of a world; the place where its lines are evaluated."""

    def __init__(self, number: int, link: socket.socket, progress: memoryview, recorder: Recorder):
        self._number = number
        self._link = link
        self._progress = progress
        self._recorder = recorder
        self._evaluation = Evaluation(number, recorder, self)
        mode: Any = CommDebugMode
        self._debug = mode()
        self._fulls: dict[str, Array] = {}

    def at(self, place: int) -> None:
        """Note how far this rank has come."""
        self._progress[self._number] = place

    def given(self, data: InputData, position: int) -> torch.Tensor:
        """The tensor of an input's array."""
        return to_tensor(data.arrays[position])

    def drawn(
        self, tensor: ModelTensor, sizes: dict[str, int], dtype: str, held: Ranges
    ) -> torch.Tensor:
        """The part of a recipe's tensor in these ranges."""
        whole = parameter_array(tensor, sizes, dtype)
        return to_tensor(pack(whole[tuple(slice(*span) for span in held)]))

    def kept(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy, because an optimiser writes to the tensors that it updates."""
        return tensor.detach().clone()

    def bare(self) -> contextlib.AbstractContextManager[object]:
        """No context: nothing is fake here."""
        return contextlib.nullcontext()

    def raised(self, raised: Raised) -> None:
        """Tell the worker, and wait for its message."""
        self._link.sendall(rank_messages.encode_frame(raised))
        if not isinstance(rank_messages.receive_message(self._link), Continue):
            os._exit(0)

    def answer(self, task: Task) -> None:
        """Evaluate the lines of a task, and send the results."""
        run, lines = TaskRun(), self._evaluation
        clear_layout_caches()
        self._recorder.strange.clear()
        self._recorder.take(no_axes)
        lines.make_meshes(task, run)
        report = Report()
        if any(self._number in mesh.devices for _, mesh in task.meshes):
            # One rank is enough, since the records of ranks are compared with one another.
            first = self._number == task.mesh.devices[0]
            checked = task.checked and first and has("CommDebugMode(ops)")
            # CommDebugMode takes ops apart, which changes last bits.
            lines.alone(task, run)
            with self._recorder, self._debug if checked else contextlib.nullcontext():
                lines.place(task, run)
                lines.evaluate(task, run)
                # No autograd graph for our own calls; the program's graph stays as it is.
                with torch.no_grad():
                    lines.materialise(task, run)
            with torch.no_grad():
                report = self._report(task, run, checked)
        else:
            # In torch every rank has to make a group, also a late one.
            lines.lines((line for line in task.derived if line.after), run)
        lines.at(run, last=True)
        self._link.sendall(rank_messages.encode_frame(report))

    def send_fulls(self, names: tuple[str, ...]) -> None:
        """Send full tensors of the last task whole."""
        found = {name: self._fulls[name] for name in names if name in self._fulls}
        self._link.sendall(rank_messages.encode_frame(FullTensors(found)))

    def _report(self, task: Task, run: TaskRun, checked: bool) -> Report:
        seen: list[RankObservation] = []
        self._fulls = {name: to_array(full) for name, full in run.fulls.items()}
        for name in task.check:
            if name not in run.values:
                continue
            value = run.values[name]
            on = value.device_mesh if isinstance(value, DTensor) else value
            if isinstance(on, DeviceMesh) and on.get_coordinate() is None:
                continue
            if isinstance(value, DeviceMesh | bool):
                seen += mesh_views.observe_mesh(name, value)
            else:
                seen.append(self._see(name, value, task, run))
        complaints = [f"an op without a kind: {name}" for name in self._recorder.strange]
        if checked:
            counts: Counter[CollectiveKind] = Counter(one.kind for one in run.fired)
            complaints += find_count_differences(counts, self._debug.get_comm_counts())
        program = None if run.step is None or run.failed else tuple(run.program)
        return Report(tuple(seen), (*run.complaints, *complaints), program)

    def _see(self, name: str, value: Any, task: Task, run: TaskRun) -> RankObservation:
        fired = run.collectives.get(name)
        if not isinstance(value, DTensor):
            plain = isinstance(value, torch.Tensor)
            local = to_array(value) if plain else pack(np.asarray(value))
            full = self._full(name, task.mesh)
            # A recipe's step on one device is on no mesh. What no plan took up is on every rank.
            alone = task.recipe is not None and name.startswith("plain/")
            shard = None if alone else local
            return RankObservation(
                name, local.dtype, local.shape, None, None, shard, None, full, fired, None
            )
        mesh = self._evaluation.model(value.device_mesh)
        local = to_array(value.to_local())
        return RankObservation(
            name,
            str(value.dtype).removeprefix("torch."),
            tuple(value.shape),
            self._evaluation.layout(value, mesh),
            None if mesh == task.mesh else mesh,
            local,
            self._evaluation.offset(name, value, mesh, run),
            self._full(name, mesh),
            fired,
            run.full_collectives.get(name),
            run.step.note if run.step is not None and name == "out" else "",
        )

    def _full(self, name: str, mesh: Mesh) -> Array | bytes | None:
        full = self._fulls.get(name)
        return full if full is None or mesh.devices[0] == self._number else digest(full)
