"""What do DTensor's own calls cost, in ranks that are forked and kept, or spawned for each test?

Each rank makes only the calls of the questions: the lines that the adapter runs, and `to_local`
and `full_tensor` of what is checked. Ranks keep meshes, as those of the adapter do. Nothing is
recorded, sent or compared.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import tempfile
import traceback
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import msgspec
import torch

# DTensor imports it at its first call, which would take two seconds in each rank.
import torch._dynamo
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.multiprocessing.spawn import spawn

from adapters.torch_dtensor.compat import clear_layout_caches, names_for_lines
from adapters.torch_dtensor.source_lines import mesh_source, variable_name
from adapters.torch_dtensor.task_lines import make_task
from adapters.torch_dtensor.tensors import to_tensor
from benchmarks.bare import Job
from cases.model import Mesh, Question

Run = Callable[[int, int], None]
_SPAN = struct.Struct("ii")
_names: dict[str, Any] = names_for_lines()


class Program(msgspec.Struct, frozen=True):
    """The calls for a question. ``inputs``: variable, its tensors, and their devices."""

    size: int
    meshes: tuple[tuple[str, Mesh], ...]
    inputs: tuple[tuple[str, list[torch.Tensor], tuple[int, ...]], ...]
    code: CodeType
    check: tuple[str, ...]


def forked(jobs: Sequence[Job]) -> Run:
    """Runs jobs in worlds of ranks, one for each size, forked from here when first needed."""
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    programs = [_program(job.question) for job in jobs]
    worlds: dict[int, list[socket.socket]] = {}

    def run(first: int, last: int) -> None:
        for size, span in itertools.groupby(range(first, last), lambda i: programs[i].size):
            if size not in worlds:
                _fork(size, programs, worlds)
            indices = list(span)
            for link in worlds[size]:
                link.sendall(_SPAN.pack(indices[0], indices[-1] + 1))
            for link in worlds[size]:
                if not link.recv(1):
                    raise RuntimeError(f"a rank of {size} died")

    return run


def spawned(jobs: Sequence[Job]) -> Run:
    """Runs each job in a spawn of new ranks, as the frameworks' own tests do."""
    texts = [msgspec.json.encode(job.question) for job in jobs]
    sizes = [job.question.devices for job in jobs]

    def run(first: int, last: int) -> None:
        for text, size in zip(texts[first:last], sizes[first:last]):
            with tempfile.TemporaryDirectory() as folder:
                spawn(_alone, (text, f"{folder}/store", size), nprocs=size)  # type: ignore[no-untyped-call]

    return run


def _program(question: Question) -> Program:
    lines = make_task(question)
    if lines.derived or question.fresh:
        raise ValueError(f"{question.id}: needs a world of its own, which is not measured")
    text = [
        f"{line.variable} = {line.source}"
        for line in (*(data.line for data in lines.inputs), *lines.steps)
    ]
    devices = {name: mesh.devices for name, mesh in lines.meshes}
    inputs = tuple(
        (data.line.variable, [to_tensor(array) for array in data.arrays], devices[data.where])
        for data in lines.inputs
    )
    code = compile("\n".join(text), question.id, "exec")
    check = tuple(map(variable_name, lines.check))
    return Program(lines.world_size, lines.meshes, inputs, code, check)


def _fork(size: int, programs: list[Program], worlds: dict[int, list[socket.socket]]) -> None:
    worlds[size] = []
    store = os.memfd_create("ranks")
    for rank in range(size):
        ours, theirs = socket.socketpair()
        worlds[size].append(ours)
        if os.fork() == 0:
            # Otherwise no rank would see that its link closes when this process ends.
            for link in itertools.chain(*worlds.values()):
                link.close()
            try:
                _join(rank, size, f"/proc/self/fd/{store}")
                _serve(rank, theirs, programs)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        theirs.close()
    os.close(store)


def _join(rank: int, size: int, store: str) -> None:
    dist.init_process_group("gloo", store=FileStore(store, size), rank=rank, world_size=size)


def _serve(rank: int, link: socket.socket, programs: list[Program]) -> None:
    meshes: dict[Mesh, DeviceMesh] = {}
    while span := link.recv(_SPAN.size, socket.MSG_WAITALL):
        for program in programs[slice(*_SPAN.unpack(span))]:
            _call(program, rank, meshes)
        link.sendall(b".")


def _call(program: Program, rank: int, meshes: dict[Mesh, DeviceMesh]) -> None:
    names = dict(_names)
    # As in the suite, every question starts without cached layouts.
    clear_layout_caches()
    for name, mesh in program.meshes:
        if mesh not in meshes:
            meshes[mesh] = eval(mesh_source(mesh), _names)
        names[name] = meshes[mesh]
    for name, tensors, devices in program.inputs:
        names[name] = tensors[devices.index(rank) if len(tensors) > 1 else 0]
    exec(program.code, names)
    values: list[DTensor] = [names[name] for name in program.check]
    with torch.no_grad():
        for value in values:
            value.full_tensor()
    for value in values:
        local = value.to_local()
        # A collective may still be filling it.
        getattr(local, "wait", lambda: None)()


def _alone(rank: int, text: bytes, store: str, size: int) -> None:
    program = _program(msgspec.json.decode(text, type=Question))
    _join(rank, size, store)
    _call(program, rank, {})
    dist.destroy_process_group()
