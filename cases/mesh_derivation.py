"""What is a derived mesh? For each mesh position, the positions along each of its axes.

Index arithmetic on axes. Refuses to know tensors or files.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import deque
from collections.abc import Sequence

import msgspec

from cases.layout import axis_groups
from cases.model import STACKED_AXIS, Mesh, MeshStep, Question, mesh

Line = tuple[int, ...]
Lines = tuple[Line, ...]


class MeshError(Exception):
    """A mesh step that is invalid: its place in the step, what was found, what is wanted."""

    def __init__(self, place: tuple[int | str, ...], found: str, wanted: str):
        super().__init__(f"found {found}, wanted {wanted}")
        self.place = place
        self.found = found
        self.wanted = wanted


class DerivedMesh(msgspec.Struct, frozen=True):
    """A mesh as the positions of the case's mesh see it.

    ``axes``: axis -> for each position of the case's mesh, all positions along the axis through
    it, in the order of the axis. They include the position itself.
    """

    axes: dict[str, Lines]

    @property
    def mesh(self) -> Mesh:
        """The axes as a mesh over 0, 1, 2, …, which is enough to read a layout."""
        return mesh({name: len(lines[0]) for name, lines in self.axes.items()})

    def coordinate(self, position: int) -> tuple[int, ...]:
        """The coordinate of a position in the mesh that it sees."""
        return tuple(lines[position].index(position) for lines in self.axes.values())

    def seen(self, position: int) -> Line:
        """The positions of the mesh that a position sees, in row-major order."""
        found: Line = (position,)
        for lines in self.axes.values():
            found = tuple(other for one in found for other in lines[one])
        return found

    def whole(self, of: Mesh) -> Mesh:
        """The meshes of all positions of ``of``, one after another along `STACKED_AXIS`.

        If all positions see the same mesh, that axis is missing. It has the devices of ``of``.
        """
        found = dict.fromkeys(self.seen(position) for position in range(of.size))
        devices = tuple(of.devices[position] for one in found for position in one)
        rest = ((STACKED_AXIS, len(found)),) if len(found) > 1 else ()
        return Mesh(rest + self.mesh.axes, devices)


def as_derived(of: Mesh) -> DerivedMesh:
    """A mesh as its own positions see it."""
    return DerivedMesh({name: _by_position(axis_groups(of, (name,)), of.size) for name in of.names})


def derive_all(of: Mesh, steps: Sequence[MeshStep]) -> dict[str, DerivedMesh]:
    """The mesh that each mesh step of a question makes. ``of`` is the question's own mesh.

    Comparisons and invalid steps make no mesh.
    """
    made: dict[str, DerivedMesh] = {}
    for step in steps:
        with contextlib.suppress(MeshError):
            if step.op != "mesh_equal":
                made[step.result] = derive_mesh(step, of, made)
    return made


def are_equal(step: MeshStep, made: dict[str, DerivedMesh]) -> bool:
    """Whether the two meshes of a `mesh_equal` have equal axes, names and devices."""
    one, other = (made[name] for name in step.axes)
    return list(one.axes.items()) == list(other.axes.items())


# The judge asks for the meshes of one case many times.
_recent: deque[tuple[Question, dict[str, Mesh]]] = deque(maxlen=4)


def meshes_of_tensors(question: Question) -> dict[str, Mesh]:
    """The mesh of each input and result. Shards are listed by its positions.

    It is the question's mesh, an input's own, or `DerivedMesh.whole` of a derived one. A result
    has the mesh of its first tensor argument, unless its step names another.
    """
    for kept, meshes in _recent:
        if kept is question:
            return dict(meshes)
    found = _find_meshes(question)
    _recent.append((question, found))
    return dict(found)


def _find_meshes(question: Question) -> dict[str, Mesh]:
    of = question.mesh
    made = derive_all(of, question.mesh_steps)
    found: dict[str, Mesh] = {}
    for given in question.inputs:
        found[given.name] = made[given.view].whole(of) if given.view else given.mesh or of
    for step in question.steps:
        first = next(iter(step.operands), None)
        view = step.params.get("view")
        home = of if first is None else found[first]
        found[step.result] = made[view].whole(of) if isinstance(view, str) else home
    return found


def base_mesh(step: MeshStep, of: Mesh, made: dict[str, DerivedMesh]) -> DerivedMesh:
    """The mesh that a step starts from: the case's, an earlier one, or one in its parameters."""
    if isinstance(source := step.params.get("from"), dict):
        return as_derived(mesh(source))
    name = step.params.get("of")
    return made[name] if isinstance(name, str) else as_derived(of)


def derive_mesh(step: MeshStep, of: Mesh, made: dict[str, DerivedMesh]) -> DerivedMesh:
    """The mesh that a step makes from the case's mesh and the meshes ``made`` before it.

    Raises:
        MeshError: an unknown or repeated axis, sizes with a wrong product, or axes that overlap.
    """
    base = base_mesh(step, of, made)
    known = dict(base.axes)
    if "of" not in step.params:
        # A slice may name a flattened axis by the step that made it.
        known |= {name: one.axes[name] for name, one in made.items() if name in one.axes}
    names = [*known, *made] if step.op == "mesh_concatenate" else list(known)
    if not step.axes:
        raise MeshError((2,), "no axes", "at least one")
    if step.op == "mesh_unflatten" and len(step.axes) != 1:
        raise MeshError((2,), f"{len(step.axes)} axes", "one axis")
    for i, axis in enumerate(step.axes):
        if axis not in names:
            raise MeshError((2, i), f"axis {axis!r}", f"one of {', '.join(dict.fromkeys(names))}")
        if axis in step.axes[:i]:
            raise MeshError((2, i), f"axis {axis!r} again", "each axis once")
    match step.op:
        case "mesh_slice":
            return _picked(step, known, base, of.size)
        case "mesh_flatten":
            picked = _picked(step, known, base, of.size)
            lines = [picked.seen(position) for position in range(of.size)]
            return DerivedMesh({step.result: _by_position(dict.fromkeys(lines), of.size)})
        case "mesh_unflatten":
            return _unflatten(step, base)
    return _concatenate(step, known, made, of.size)


def _picked(step: MeshStep, known: dict[str, Lines], base: DerivedMesh, count: int) -> DerivedMesh:
    picked: dict[str, Lines] = {}
    for i, axis in enumerate(step.axes):
        picked[axis] = known[axis]
        # Axes of one mesh never overlap, but an axis flattened from them overlaps them.
        if not picked.keys() <= base.axes.keys():
            _check_apart(picked, count, i, axis)
    return DerivedMesh(picked)


def _check_apart(axes: dict[str, Lines], count: int, place: int, name: str) -> None:
    """Refuses axes that overlap, because two of them join the same positions.

    Raises:
        MeshError: they overlap. ``name``, at ``place`` of the step's axes, was added last.
    """
    grid = DerivedMesh(axes)
    seen = dict.fromkeys(grid.seen(position) for position in range(count))
    if len(set(itertools.chain(*seen))) < sum(map(len, seen)):
        raise MeshError((2, place), f"{name!r}, which overlaps an earlier axis", "distinct axes")


def _by_position(lines: Sequence[Line] | dict[Line, None], count: int) -> Lines:
    found: list[Line] = [()] * count
    for line in lines:
        for position in line:
            found[position] = line
    return tuple(found)


def _unflatten(step: MeshStep, base: DerivedMesh) -> DerivedMesh:
    (axis,), inner = step.axes, step.params["axes"]
    if axis not in base.axes:
        raise MeshError((2, 0), f"axis {axis!r}", f"one of {', '.join(base.axes)}")
    assert isinstance(inner, dict)
    old = base.axes[axis]
    size = math.prod(inner.values())
    if size != len(old[0]):
        wanted = f"{len(old[0])}, the size of axis {axis!r}"
        raise MeshError((3, "axes"), f"sizes that multiply to {size}", wanted)
    if twice := sorted((base.axes.keys() - {axis}) & inner.keys()):
        raise MeshError((3, "axes"), f"axis {twice[0]!r} again", "each axis once")
    split = mesh(inner)
    new: dict[str, Lines] = {}
    for name, lines in base.axes.items():
        if name != axis:
            new[name] = lines
            continue
        for part in inner:
            along = axis_groups(split, (part,))
            cut = [tuple(line[i] for i in group) for line in dict.fromkeys(old) for group in along]
            new[part] = _by_position(cut, len(old))
    return DerivedMesh(new)


def _concatenate(
    step: MeshStep, known: dict[str, Lines], made: dict[str, DerivedMesh], count: int
) -> DerivedMesh:
    joined: dict[str, Lines] = {}
    for i, name in enumerate(step.axes):
        part = made[name].axes if name in made else {name: known[name]}
        if twice := sorted(joined.keys() & part.keys()):
            raise MeshError((2, i), f"axis {twice[0]!r} again", "each axis once")
        joined |= part
        _check_apart(joined, count, i, name)
    return DerivedMesh(joined)
