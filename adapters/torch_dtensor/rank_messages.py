"""What do the worker and its ranks say to one another? Frames of msgpack over socket pairs.

The worker sends a `Task`; each rank answers with one `Report`, or first with a `Raised` and,
once the worker has said `Continue`, with more. Knows no torch.
"""

from __future__ import annotations

import hashlib
import socket

import msgspec

from adapters.answer import Collective
from adapters.framing import make_frame, read_frame
from cases.arrays import Array
from cases.model import PASSES, Foreign, Layout, Mesh, Recipe

# The phases of a recipe on a rank, in this order.
PHASES = ("plain", "place", *PASSES)


class Line(msgspec.Struct, frozen=True, array_like=True):
    """A named expression. ``name`` is the program's, ``variable`` what lines call it.

    ``after``: for a mesh, the input or result that exists before it; "" for none.
    """

    name: str
    variable: str
    source: str
    after: str = ""


class InputData(msgspec.Struct, frozen=True, array_like=True):
    """An input's arrays: one for every rank, or one per position of the mesh in ``where``."""

    line: Line
    where: str
    arrays: tuple[Array, ...]
    per_device: bool


class TensorOnDerivedMesh(msgspec.Struct, frozen=True, array_like=True):
    """An input or result on a derived mesh: that mesh's variable, and all of its devices."""

    name: str
    variable: str
    mesh: Mesh


class Task(msgspec.Struct, frozen=True, array_like=True, tag="task"):
    """A question as the lines that a rank evaluates.

    ``mesh`` is the question's. ``meshes``: variables of meshes over devices; every rank of the
    world makes every one, in this order. ``derived``: meshes made from them. ``checked``: whether
    one rank counts collectives by CommDebugMode as well. ``whole``: results that are plain tensors,
    and the whole value on each rank. ``context``: the region in which the steps run. ``homes``:
    tensors on derived meshes. ``recipe``: a training step in place of inputs and steps.
    """

    mesh: Mesh
    meshes: tuple[tuple[str, Mesh], ...]
    derived: tuple[Line, ...]
    inputs: tuple[InputData, ...]
    steps: tuple[Line, ...]
    check: tuple[str, ...]
    checked: bool
    whole: tuple[str, ...] = ()
    context: str = ""
    homes: tuple[TensorOnDerivedMesh, ...] = ()
    recipe: Recipe | None = None

    def home(self, name: str) -> TensorOnDerivedMesh | None:
        """The derived mesh of an input or result; None if it is on no such mesh."""
        return next((home for home in self.homes if home.name == name), None)

    def late(self, name: str) -> tuple[Line, ...]:
        """The meshes that are derived after the input or result ``name``; "" for the others."""
        return tuple(line for line in self.derived if line.after == name)


class Continue(msgspec.Struct, frozen=True, array_like=True, tag="go"):
    """Every rank raised as you did: go on with the next place."""


class SendFullTensors(msgspec.Struct, frozen=True, array_like=True, tag="wanted"):
    """Send these full tensors whole, because ranks differ."""

    names: tuple[str, ...]


class Raised(msgspec.Struct, frozen=True, array_like=True, tag="raised"):
    """What a rank raised, where, and which collectives it had fired by then.

    ``missing``: whether ``line`` says what this release lacks. ``halfway``: whether collectives
    were fired in the very line that raised.
    """

    error: str
    line: str
    place: str
    missing: bool
    fired: tuple[Collective, ...]
    halfway: bool = False


class RankObservation(msgspec.Struct, frozen=True, array_like=True):
    """What one rank saw of one name.

    ``mesh`` is None if it is the question's. ``shard`` is None if the tensor is not on the mesh.
    ``full``: the array on the first position of the mesh, its `digest` elsewhere, None if there is
    none. ``note``: what torch says beyond a layout.
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
    """All that one rank saw; empty for a rank outside every mesh.

    ``program``: the collectives of a recipe's passes, None if it did not come to their end.
    """

    seen: tuple[RankObservation, ...] = ()
    complaints: tuple[str, ...] = ()
    program: tuple[Collective, ...] | None = None


class FullTensors(msgspec.Struct, frozen=True, array_like=True, tag="fulls"):
    """The full tensors that were `SendFullTensors`, by name."""

    arrays: dict[str, Array]


RankMessage = Raised | Report | FullTensors

_encoder = msgspec.msgpack.Encoder()
from_worker: msgspec.msgpack.Decoder[Task | Continue | SendFullTensors] = msgspec.msgpack.Decoder(
    Task | Continue | SendFullTensors
)
from_rank: msgspec.msgpack.Decoder[RankMessage] = msgspec.msgpack.Decoder(RankMessage)


def encode_frame(message: Task | Continue | SendFullTensors | RankMessage) -> bytes:
    """A message with its length before it."""
    return make_frame(_encoder.encode(message))


def receive_message(link: socket.socket) -> Task | Continue | SendFullTensors | None:
    """The next message of the worker, None once it is gone. Waits."""
    body = read_frame(lambda size: link.recv(size, socket.MSG_WAITALL))
    return None if body is None else from_worker.decode(body)


def digest(array: Array) -> bytes:
    """Equal for two arrays only if dtype, shape and bytes are equal."""
    head = f"{array.dtype}{array.shape}".encode()
    return hashlib.blake2b(head + array.data, digest_size=16).digest()


def progress_points(task: Task) -> tuple[str, ...]:
    """The places in a task at which a rank can be, in order, by name."""
    made = [line.name for line in (*(data.line for data in task.inputs), *task.steps)]
    return (
        *(name for name, _ in task.meshes),
        *(line.name for line in task.late("")),
        *(PHASES if task.recipe is not None else ()),
        *(one for name in made for one in (name, *(line.name for line in task.late(name)))),
        *(f"{name}/full" for name in task.check),
        "",
    )
