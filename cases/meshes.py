"""Which meshes does a case name? Its own, with its devices, and those derived from it.

Index arithmetic on axes; knows nothing of tensors.
"""

from __future__ import annotations

import math
from typing import Any, get_args, get_type_hints

import msgspec

from cases import forms
from cases.errors import Where, counted, shown
from cases.layout import coordinates
from cases.model import Mesh, MeshStep, mesh

# A real run starts a process per device; a plan only does arithmetic.
MAX_DEVICES = {"real": 64, "plan": 65536}

MESH_OPS: tuple[str, ...] = get_args(get_type_hints(MeshStep)["op"])


class Grid(msgspec.Struct, frozen=True):
    """A mesh as the positions of the case's mesh see it.

    ``axes``: axis -> its size, and the index along it of each position of the case's mesh.
    """

    axes: dict[str, tuple[int, tuple[int, ...]]]

    @property
    def mesh(self) -> Mesh:
        """The axes as a mesh over 0, 1, 2, …: enough to read a layout by."""
        return mesh({name: size for name, (size, _) in self.axes.items()})

    @property
    def positions(self) -> tuple[int, ...]:
        """For each position of the case's mesh, its row-major position in this one."""
        count = max((len(index) for _, index in self.axes.values()), default=1)
        found = [0] * count
        for size, index in self.axes.values():
            found = [before * size + i for before, i in zip(found, index, strict=True)]
        return tuple(found)


def grid(of: Mesh) -> Grid:
    """A mesh as its own positions see it."""
    where = coordinates(of)
    return Grid({name: (size, tuple(at[name] for at in where)) for name, size in of.axes})


def read_mesh(raw: Any, devices: Any, mode: str, where: Where) -> Mesh:
    """The mesh of a case: ``mesh`` (axis -> size) and ``devices``, None where left out.

    Raises:
        BadInput: a bad name or size, too many devices, or devices that do not fit.
    """
    sizes = read_sizes(raw, where.at("mesh"))
    count, most = math.prod(sizes.values()), MAX_DEVICES[mode]
    if count > most:
        raise where.at("mesh").bad(counted(count, "device"), f"at most {most:,} in mode {mode}")
    made = mesh(sizes)
    return made if devices is None else with_devices(made, devices, mode, where.at("devices"))


def read_sizes(raw: Any, where: Where) -> dict[str, int]:
    """Axis -> size, at least one axis, each size at least 1."""
    table = forms.table(raw, where)
    if not table:
        raise where.bad("no axes", "at least one, such as {x = 4}")
    wanted = "an integer of at least 1"
    return {
        forms.identifier(axis, where.at(axis)): forms.integer(size, where.at(axis), 1, wanted)
        for axis, size in table.items()
    }


def with_devices(of: Mesh, raw: Any, mode: str, where: Where) -> Mesh:
    """The same axes over the devices listed, row-major."""
    listed = forms.items(raw, where, "a list of devices")
    if len(listed) != of.size:
        raise where.bad(counted(len(listed), "device"), f"{of.size}, one for each mesh position")
    most = MAX_DEVICES[mode]
    seen: set[int] = set()
    for i, device in enumerate(listed):
        if forms.integer(device, where.at(i), 0, "a device number") >= most:
            raise where.at(i).bad(f"device {device}", f"one below {most:,} in mode {mode}")
        if device in seen:
            raise where.at(i).bad(f"device {device} again", "each device once")
        seen.add(device)
    return Mesh(of.axes, tuple(listed))


def by_device(devices: tuple[int, ...]) -> tuple[int, ...]:
    """For each mesh position, the place of its device when all are listed in order.

    A list per device stands in the order of device numbers; this says which entry belongs
    to a mesh position.
    """
    place = {device: i for i, device in enumerate(sorted(devices))}
    return tuple(place[device] for device in devices)


def read_steps(raw: Any, of: Mesh, where: Where) -> tuple[tuple[MeshStep, ...], dict[str, Grid]]:
    """The mesh steps of a case, and the mesh that each makes.

    Raises:
        BadInput: an unknown op or axis, sizes that do not multiply, a name used twice.
    """
    steps: list[MeshStep] = []
    made: dict[str, Grid] = {}
    for i, one in enumerate(forms.items(raw, where, "a list of mesh steps")):
        place = where.at(i)
        parts = forms.items(one, place)
        if len(parts) not in (3, 4):
            raise place.bad(
                counted(len(parts), "part"), "[result, op, axes] or [result, op, axes, {…}]"
            )
        result = forms.identifier(parts[0], place.at(0))
        if result in made or result in of.names:
            raise place.at(0).bad(f"{result!r} again", "a name not taken")
        op = forms.one_of(parts[1], place.at(1), "a mesh op", MESH_OPS)
        axes = forms.texts(parts[2], place.at(2), "a list of axes")
        known = {"mesh_unflatten": ("axes", "from", "after")}.get(op, ("from", "after"))
        params = dict(forms.table(parts[3] if len(parts) == 4 else {}, place.at(3), known))
        after = forms.text(params.pop("after", ""), place.at(3, "after"))
        base = of
        if "from" in params:
            base = mesh(read_sizes(params["from"], place.at(3, "from")))
            if base.size != of.size:
                found = counted(base.size, "device")
                raise place.at(3, "from").bad(found, f"{of.size}, as the case's mesh has")
        made[result] = _derive(op, result, axes, params, grid(base), made, place)
        if "from" in params and made[result].mesh.axes != of.axes:
            found = f"a mesh {_said(made[result].mesh)}"
            raise place.bad(found, f"the case's mesh {_said(of)}, which is made from this one")
        steps.append(MeshStep(result, op, axes, params, after))  # type: ignore[arg-type]
    return tuple(steps), made


def derived(of: Mesh, steps: tuple[MeshStep, ...]) -> dict[str, Grid]:
    """The mesh that each of a question's mesh steps makes; ``of`` is the question's own."""
    made: dict[str, Grid] = {}
    for step in steps:
        source = step.params.get("from")
        base = mesh(source) if isinstance(source, dict) else of
        made[step.result] = _derive(
            step.op, step.result, step.axes, step.params, grid(base), made, Where("")
        )
    return made


def _derive(
    op: str,
    result: str,
    axes: tuple[str, ...],
    params: dict[str, Any],
    base: Grid,
    made: dict[str, Grid],
    where: Where,
) -> Grid:
    # A flattened axis can be sliced by the name of the step that made it.
    flat = {name: one.axes[name] for name, one in made.items() if name in one.axes}
    known = base.axes | flat
    if op == "mesh_concatenate":
        known = known | dict.fromkeys(made, (1, ()))
    if not axes:
        raise where.at(2).bad("no axes", "at least one")
    for i, axis in enumerate(axes):
        if axis not in known:
            raise where.at(2, i).bad(f"axis {shown(axis)}", f"one of {', '.join(known)}")
        if axis in axes[:i]:
            raise where.at(2, i).bad(f"axis {axis!r} again", "each axis once")
    if op == "mesh_slice":
        return Grid({axis: known[axis] for axis in axes})
    if op == "mesh_flatten":
        size = math.prod(known[axis][0] for axis in axes)
        picked = Grid({axis: known[axis] for axis in axes})
        return Grid({result: (size, picked.positions)})
    if op == "mesh_unflatten":
        return _unflatten(axes, params, base, where)
    joined: dict[str, tuple[int, tuple[int, ...]]] = {}
    for i, axis in enumerate(axes):
        part = made[axis].axes if axis in made else {axis: known[axis]}
        if twice := sorted(joined.keys() & part.keys()):
            raise where.at(2, i).bad(f"axis {twice[0]!r} again", "each axis once")
        joined |= part
    return Grid(joined)


def _unflatten(axes: tuple[str, ...], params: dict[str, Any], base: Grid, where: Where) -> Grid:
    if len(axes) != 1:
        raise where.at(2).bad(f"{len(axes)} axes", "one axis")
    if axes[0] not in base.axes:
        raise where.at(2, 0).bad(f"axis {axes[0]!r}", f"one of {', '.join(base.axes)}")
    if "axes" not in params:
        raise where.at(3).bad("no axes", "the new axes with their sizes")
    inner = read_sizes(params["axes"], where.at(3, "axes"))
    size, index = base.axes[axes[0]]
    if math.prod(inner.values()) != size:
        found = f"sizes that multiply to {math.prod(inner.values())}"
        raise where.at(3, "axes").bad(found, f"{size}, the size of axis {axes[0]!r}")
    split = grid(mesh(inner)).axes
    new: dict[str, tuple[int, tuple[int, ...]]] = {}
    for axis, kept in base.axes.items():
        if axis != axes[0]:
            part = {axis: kept}
        else:
            part = {name: (n, tuple(at[i] for i in index)) for name, (n, at) in split.items()}
        if twice := sorted(new.keys() & part.keys()):
            raise where.at(3, "axes").bad(f"axis {twice[0]!r} again", "each axis once")
        new |= part
    return Grid(new)


def _said(of: Mesh) -> str:
    return ", ".join(f"{name}={size}" for name, size in of.axes)
