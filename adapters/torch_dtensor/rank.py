"""How does one rank answer a task? It evaluates the lines and reports what it observed.

All ranks run the same lines at the same time, each in its own process. A rank does not know what
the others observe or raise, nor which results are right.
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

# This is longer than any deadline, because the worker enforces deadlines.
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
    """Join the world and answer tasks until the worker exits.

    ``store``: the path of the FileStore. ``stacks``: the file descriptor to which SIGUSR1 writes
    the Python stack of this rank. ``progress[number]``: the current place in a task.
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
                raise RuntimeError("Continue without a pending error")


class _Rank:
    """One rank of a world, and the `RankEnvironment` of its lines."""

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
        """Publish the current place of this rank in the task."""
        self._progress[self._number] = place

    def given(self, data: InputData, position: int) -> torch.Tensor:
        """The array of an input as a tensor."""
        return to_tensor(data.arrays[position])

    def drawn(
        self, tensor: ModelTensor, sizes: dict[str, int], dtype: str, ranges: Ranges
    ) -> torch.Tensor:
        """The values of a recipe's tensor in ``ranges``."""
        whole = parameter_array(tensor, sizes, dtype)
        return to_tensor(pack(whole[tuple(slice(*span) for span in ranges)]))

    def kept(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy, because the optimizer updates parameters in place."""
        return tensor.detach().clone()

    def bare(self) -> contextlib.AbstractContextManager[object]:
        """Return an empty context: no tensor is fake here."""
        return contextlib.nullcontext()

    def raised(self, raised: Raised) -> None:
        """Send the error to the worker, and wait for `Continue`. Exit on any other message."""
        self._link.sendall(rank_messages.encode_frame(raised))
        if not isinstance(rank_messages.receive_message(self._link), Continue):
            os._exit(0)

    def answer(self, task: Task) -> None:
        """Evaluate the lines of a task, and send the report."""
        run, lines = TaskRun(), self._evaluation
        clear_layout_caches()
        self._recorder.strange.clear()
        self._recorder.take(no_axes)
        lines.make_meshes(task, run)
        report = Report()
        if any(self._number in mesh.devices for _, mesh in task.meshes):
            # One rank is enough, because the worker compares the collectives of all ranks.
            first = self._number == task.mesh.devices[0]
            checked = task.checked and first and has("CommDebugMode(ops)")
            # CommDebugMode decomposes ops, which changes the last bits of results.
            lines.alone(task, run)
            with self._recorder, self._debug if checked else contextlib.nullcontext():
                lines.place(task, run)
                lines.evaluate(task, run)
                # Full tensors must not extend the autograd graph of the program.
                with torch.no_grad():
                    lines.materialise(task, run)
            with torch.no_grad():
                report = self._report(task, run, checked)
        else:
            # torch requires every rank to create every group, including those created later.
            lines.lines((line for line in task.derived if line.after), run)
        lines.at(run, last=True)
        self._link.sendall(rank_messages.encode_frame(report))

    def send_fulls(self, names: tuple[str, ...]) -> None:
        """Send full tensors of the last task."""
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
            # The unsharded step of a recipe is not on a mesh. Other plain values are on all ranks.
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
