"""What is a case? A question that a framework can be asked, and what is right about its answer.

An adapter gets only the `Question`. The `Expectation` never leaves the process that judges.
Both are immutable data. Refuses to know how they are written (`notation`, `load`) and which
indices a layout gives to a device (`layout`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Literal, TypeVar, get_args

import msgspec

from cases.arrays import Array

T = TypeVar("T")

Mode = Literal["real", "dry run"]
REDUCTIONS = ("sum", "avg", "max", "min", "product")

CollectiveKind = Literal[
    "all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute",
    "broadcast", "scatter", "gather",
]  # fmt: skip
COLLECTIVES: tuple[CollectiveKind, ...] = get_args(CollectiveKind)
# The passes of a training step. "update" is the optimiser's step.
Pass = Literal["forward", "backward", "update"]
PASSES: tuple[Pass, ...] = get_args(Pass)

# Devices may see different parts of a derived mesh. This axis lists those parts one after another.
# No axis of a case can have this name, and no layout names it.
STACKED_AXIS = "*"

Scalar = bool | int | float | str
Param = Scalar | None | list[int | float | str] | dict[str, int]


def slug(case_id: str) -> str:
    """A case id in the characters of test ids and `-k`, [a-z0-9._-]: ``public-dtensor-t41``."""
    return re.sub(r"[^a-z0-9._-]", "-", case_id.lower())


class Mesh(msgspec.Struct, frozen=True):
    """Named axes, outermost first, over devices in row-major order.

    ``axes`` has (name, size) pairs. ``devices[i]`` is the device at mesh position i.
    """

    axes: tuple[tuple[str, int], ...]
    devices: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Axis names, outermost first."""
        return tuple(name for name, _ in self.axes)

    @property
    def layout_axes(self) -> tuple[str, ...]:
        """The axes that a layout can name: all but `STACKED_AXIS`."""
        return tuple(name for name in self.names if name != STACKED_AXIS)

    @property
    def shape(self) -> tuple[int, ...]:
        """Axis sizes, outermost first."""
        return tuple(size for _, size in self.axes)

    @property
    def size(self) -> int:
        """Number of mesh positions, which is the number of devices."""
        return math.prod(self.shape)

    def __getitem__(self, axis: str) -> int:
        """Size of the axis named ``axis``; KeyError if there is none."""
        return dict(self.axes)[axis]


def mesh(axes: dict[str, int], devices: tuple[int, ...] | None = None) -> Mesh:
    """A mesh of ``axes`` over ``devices`` in this order, by default 0, 1, 2, …."""
    count = math.prod(axes.values())
    return Mesh(tuple(axes.items()), tuple(range(count)) if devices is None else devices)


class Layout(msgspec.Struct, frozen=True, tag=True):
    """How a tensor is laid out on a mesh.

    ``dims[d]`` names the mesh axes that split tensor dim d, major to minor. ``partial`` has
    (axis, reduction) for each pending reduction. Reductions of different kinds are due in this
    order. The tensor is replicated over all other axes.
    """

    dims: tuple[tuple[str, ...], ...]
    partial: tuple[tuple[str, str], ...] = ()

    @property
    def ndim(self) -> int:
        """Number of tensor dims."""
        return len(self.dims)


class Foreign(msgspec.Struct, frozen=True, tag=True):
    """A reported layout that `Layout` cannot express, in the framework's words."""

    text: str


class Input(msgspec.Struct, frozen=True):
    """A tensor that exists before the program runs.

    It has either ``value``, the global array, or ``per_device``, one local array for each position
    of its mesh (`mesh_derivation.meshes_of_tensors`): a shard, or an addend of a partial input.
    ``irregular``: the shards may break the chunk rule. ``mesh`` replaces the question's mesh.
    ``view`` names a mesh that a mesh step makes.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: Layout
    value: Array | None = None
    per_device: tuple[Array, ...] | None = None
    irregular: bool = False
    mesh: Mesh | None = None
    view: str | None = None


class Step(msgspec.Struct, frozen=True):
    """One op with one result. ``to`` is the requested layout, None if the framework chooses.

    An argument is a number, or the name of an input or of an earlier result. The op
    "redistribute" has one argument and always a ``to``. "grad" is the gradient of its first
    argument, a scalar, with respect to its second, an input.
    """

    result: str
    op: str
    args: tuple[str | int | float | bool, ...]
    params: dict[str, Param] = {}
    to: Layout | None = None

    @property
    def operands(self) -> tuple[str, ...]:
        """The arguments that are tensors, by name."""
        return tuple(arg for arg in self.args if isinstance(arg, str))

    def arguments(self, values: Mapping[str, T]) -> tuple[T | int | float | bool, ...]:
        """The arguments, with the value of each tensor in place of its name."""
        return tuple(values[arg] if isinstance(arg, str) else arg for arg in self.args)


class MeshStep(msgspec.Struct, frozen=True):
    """A step that derives a mesh from the question's mesh, or from the earlier mesh "of".

    "of" stands in ``params``. "mesh_equal" compares the two derived meshes in ``axes``.
    ``after``: the input or result that must exist before the step runs; "" for none.
    """

    result: str
    op: Literal["mesh_slice", "mesh_flatten", "mesh_unflatten", "mesh_concatenate", "mesh_equal"]
    axes: tuple[str, ...]
    params: dict[str, Param | dict[str, int]] = {}
    after: str = ""


class Recipe(msgspec.Struct, frozen=True):
    """A small model with a parallel plan, by name. It replaces a program of steps.

    ``sizes`` replaces sizes of the model. ``dtype`` is the dtype of the parameters.
    """

    name: str
    sizes: dict[str, int] = {}
    dtype: str = "float64"


class Question(msgspec.Struct, frozen=True):
    """What a framework is asked. ``check`` names the inputs and results that are judged.

    ``fresh``: the framework must be newly started, because the question changes what later
    calls do. ``mode`` "dry run" means that there is no data.
    """

    id: str
    mesh: Mesh
    inputs: tuple[Input, ...] = ()
    steps: tuple[Step, ...] = ()
    check: tuple[str, ...] = ()
    mesh_steps: tuple[MeshStep, ...] = ()
    context: str | None = None
    mode: Mode = "real"
    recipe: Recipe | None = None
    fresh: bool = False

    @property
    def devices(self) -> int:
        """How many devices it needs: up to the last that a mesh names."""
        meshes = [self.mesh, *(given.mesh for given in self.inputs if given.mesh)]
        return 1 + max(max(mesh.devices) for mesh in meshes)


class Tolerance(msgspec.Struct, frozen=True):
    """|got - wanted| <= atol + rtol * |wanted| for each element; both 0 means bit for bit.

    ``free``: booleans in the global shape, true where an element may have any value.
    """

    rtol: float = 0.0
    atol: float = 0.0
    why: str = ""
    free: Array | None = None


class Expectation(msgspec.Struct, frozen=True):
    """What the case itself states to be right. The reference says the rest.

    ``right``: result -> global value. ``shards`` and ``offsets``: input or result -> one for
    each mesh position. ``meshes``: mesh step -> the grid that each device sees. ``refused``: the
    invalid mesh step that must be refused, "" for none. ``counts``: step or "step/full" ->
    torch's collectives by kind, from the case's source. ``sufficient``: kind -> number of
    collectives that suffice.
    """

    right: dict[str, Array] = {}
    shards: dict[str, tuple[Array, ...]] = {}
    offsets: dict[str, tuple[tuple[int, ...], ...]] = {}
    meshes: dict[str, tuple[Array, ...]] = {}
    layouts: dict[str, Layout] = {}
    counts: dict[str, dict[str, int]] = {}
    sufficient: dict[str, int] | None = None
    tolerance: Tolerance | None = None
    refused: str = ""


class Case(msgspec.Struct, frozen=True):
    """A question, what is right about it, and where it comes from.

    ``insensitive``: the reason why this case can notice no seeded mistake; "" if it can.
    """

    question: Question
    expectation: Expectation = Expectation()
    family: str = ""
    file: str = ""
    source: str = ""
    date: str = ""
    kind: str = ""
    notes: str = ""
    tags: frozenset[str] = frozenset()
    insensitive: str = ""

    @property
    def id(self) -> str:
        """The id of the question, unique in a run."""
        return self.question.id
