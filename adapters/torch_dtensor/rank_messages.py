"""Which messages do the worker and its ranks exchange? They are msgpack frames over socket pairs.

The worker sends a `Task`. Each rank answers with one `Report`. If a line raises, the rank first
sends a `Raised` and waits for `Continue`. This module does not import torch.
"""

from __future__ import annotations

import hashlib
import socket

import msgspec

from adapters.answer import Collective
from adapters.framing import make_frame, read_frame
from cases.arrays import Array
from cases.model import PASSES, Foreign, Layout, Mesh, Recipe

# The phases in which a rank runs a recipe.
PHASES = ("plain", "place", *PASSES)


class Line(msgspec.Struct, frozen=True, array_like=True):
    """A named expression. ``name`` is its name in the program, ``variable`` its Python variable.

    ``after``: the input or result that must exist before a mesh is derived, else "".
    """

    name: str
    variable: str
    source: str
    after: str = ""


class InputData(msgspec.Struct, frozen=True, array_like=True):
    """The arrays of an input: one for all ranks, or one per position of the mesh ``where``."""

    line: Line
    where: str
    arrays: tuple[Array, ...]
    per_device: bool


class TensorOnDerivedMesh(msgspec.Struct, frozen=True, array_like=True):
    """The derived mesh of an input or result: its variable, and the mesh with all its devices."""

    name: str
    variable: str
    mesh: Mesh


class Task(msgspec.Struct, frozen=True, array_like=True, tag="task"):
    """A question as the lines that a rank evaluates.

    ``mesh``: the mesh of the question. ``world_size``: how many ranks the question needs.
    ``meshes``: variables and meshes over devices. Every rank of the world makes all of them in this
    order. ``derived``: meshes derived from them. ``checked``: whether one rank also counts
    collectives with CommDebugMode. ``whole_results``: results that are plain tensors with the whole
    value on each rank. ``context``: the region that the steps run in. ``homes``: tensors on derived
    meshes. ``recipe``: replaces inputs and steps by a training step.
    """

    mesh: Mesh
    world_size: int
    meshes: tuple[tuple[str, Mesh], ...]
    derived: tuple[Line, ...]
    inputs: tuple[InputData, ...]
    steps: tuple[Line, ...]
    check: tuple[str, ...]
    checked: bool
    whole_results: tuple[str, ...] = ()
    context: str = ""
    homes: tuple[TensorOnDerivedMesh, ...] = ()
    recipe: Recipe | None = None

    def home(self, name: str) -> TensorOnDerivedMesh | None:
        """The derived mesh that an input or result lies on. None for any other mesh."""
        return next((home for home in self.homes if home.name == name), None)

    def late(self, name: str) -> tuple[Line, ...]:
        """The meshes to derive once the input or result ``name`` exists. "" gives the others."""
        return tuple(line for line in self.derived if line.after == name)


class Continue(msgspec.Struct, frozen=True, array_like=True, tag="go"):
    """Every rank raised the same. Continue after the line that raised."""


class SendFullTensors(msgspec.Struct, frozen=True, array_like=True, tag="wanted"):
    """The ranks differ in these full tensors. Send the arrays instead of digests."""

    names: tuple[str, ...]


class Raised(msgspec.Struct, frozen=True, array_like=True, tag="raised"):
    """What a rank raised, where, and the collectives that it had fired before.

    ``missing``: ``line`` says what this release lacks. ``halfway``: the line that raised had
    already fired a collective.
    """

    error: str
    line: str
    place: str
    missing: bool
    fired: tuple[Collective, ...]
    halfway: bool = False


class RankObservation(msgspec.Struct, frozen=True, array_like=True):
    """What one rank observed for one name.

    ``mesh``: None for the mesh of the question. ``shard``: None for a value that is not on the
    mesh. ``full``: the full tensor at the first position of the mesh, its `digest` at the others,
    None without a full tensor. ``note``: what torch reports beyond a layout.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    layout: Layout | Foreign | None
    mesh: Mesh | None
    shard: Array | None
    offset: tuple[int, ...] | None
    full: Array | bytes | None
    collectives: tuple[Collective, ...] | None
    full_collectives: tuple[Collective, ...] | None
    note: str = ""


class Report(msgspec.Struct, frozen=True, array_like=True, tag="report"):
    """Everything that one rank observed. Empty for a rank outside every mesh.

    ``program``: the collectives of the passes of a recipe. None if a pass did not finish.
    """

    seen: tuple[RankObservation, ...] = ()
    complaints: tuple[str, ...] = ()
    program: tuple[Collective, ...] | None = None


class FullTensors(msgspec.Struct, frozen=True, array_like=True, tag="fulls"):
    """The full tensors that `SendFullTensors` asked for, by name."""

    arrays: dict[str, Array]


RankMessage = Raised | Report | FullTensors

_encoder = msgspec.msgpack.Encoder()
from_worker: msgspec.msgpack.Decoder[Task | Continue | SendFullTensors] = msgspec.msgpack.Decoder(
    Task | Continue | SendFullTensors
)
from_rank: msgspec.msgpack.Decoder[RankMessage] = msgspec.msgpack.Decoder(RankMessage)


def encode_frame(message: Task | Continue | SendFullTensors | RankMessage) -> bytes:
    """The bytes of a message after their length."""
    return make_frame(_encoder.encode(message))


def receive_message(link: socket.socket) -> Task | Continue | SendFullTensors | None:
    """Wait for the next message of the worker. None if the worker has exited."""
    body = read_frame(lambda size: link.recv(size, socket.MSG_WAITALL))
    return None if body is None else from_worker.decode(body)


def digest(array: Array) -> bytes:
    """A digest of dtype, shape and bytes."""
    head = f"{array.dtype}{array.shape}".encode()
    return hashlib.blake2b(head + array.data, digest_size=16).digest()


def progress_points(task: Task) -> tuple[str, ...]:
    """The names of the places that a rank passes in a task, in order."""
    made = [line.name for line in (*(data.line for data in task.inputs), *task.steps)]
    return (
        *(name for name, _ in task.meshes),
        *(line.name for line in task.late("")),
        *(PHASES if task.recipe is not None else ()),
        *(one for name in made for one in (name, *(line.name for line in task.late(name)))),
        *(f"{name}/full" for name in task.check),
        "",
    )
