"""Which meshes does a case name? Its own mesh with its devices, and the steps that derive others.

Refuses to know tensors, and leaves to `mesh_derivation` what a derived mesh is.
"""

from __future__ import annotations

import math
from typing import Any, get_args, get_type_hints

import msgspec

from cases import mesh_derivation, typed_fields
from cases.errors import Where, format_count, format_value
from cases.mesh_derivation import DerivedMesh, MeshError
from cases.model import Mesh, MeshStep, mesh

# A real run starts a process for each device. A dry run computes nothing.
MAX_DEVICES = {"real": 64, "dry run": 65536}

MESH_OPS: tuple[str, ...] = get_args(get_type_hints(MeshStep)["op"])


class MeshStepResults(msgspec.Struct, frozen=True):
    """The mesh steps of a case, the meshes that they derive, and the results of comparisons."""

    steps: tuple[MeshStep, ...] = ()
    views: dict[str, DerivedMesh] = {}
    equal: dict[str, bool] = {}


def read_mesh(raw: Any, devices: Any, mode: str, where: Where) -> Mesh:
    """The mesh of a case from its keys ``mesh`` and ``devices``; None means no such key.

    Raises:
        BadInput: an invalid name or size, too many devices, or devices that do not fit the mesh.
    """
    sizes = read_sizes(raw, where.at("mesh"))
    count, most = math.prod(sizes.values()), MAX_DEVICES[mode]
    if count > most:
        raise where.at("mesh").error(
            format_count(count, "device"), f"at most {most:,} in mode {mode}"
        )
    made = mesh(sizes)
    return made if devices is None else with_devices(made, devices, mode, where.at("devices"))


def read_sizes(raw: Any, where: Where) -> dict[str, int]:
    """Axis -> size, with at least one axis. Each size is at least 1."""
    table = typed_fields.table(raw, where)
    if not table:
        raise where.error("no axes", "at least one, such as {x = 4}")
    wanted = "an integer of at least 1"
    return {
        typed_fields.identifier(axis, where.at(axis)): typed_fields.integer(
            size, where.at(axis), 1, wanted
        )
        for axis, size in table.items()
    }


def with_devices(of: Mesh, raw: Any, mode: str, where: Where) -> Mesh:
    """The same axes over the listed devices, in row-major order."""
    listed = typed_fields.items(raw, where, "a list of devices")
    if len(listed) != of.size:
        raise where.error(
            format_count(len(listed), "device"), f"{of.size}, one for each mesh position"
        )
    most = MAX_DEVICES[mode]
    seen: set[int] = set()
    for i, device in enumerate(listed):
        if typed_fields.integer(device, where.at(i), 0, "a device number") >= most:
            raise where.at(i).error(f"device {device}", f"one below {most:,} in mode {mode}")
        if device in seen:
            raise where.at(i).error(f"device {device} again", "each device once")
        seen.add(device)
    return Mesh(of.axes, tuple(listed))


def listing_order(devices: tuple[int, ...]) -> tuple[int, ...]:
    """For each mesh position, the index of its device in the sorted list of devices.

    Files list values for each device in the order of device numbers.
    """
    place = {device: i for i, device in enumerate(sorted(devices))}
    return tuple(place[device] for device in devices)


def read_steps(raw: Any, of: Mesh, where: Where, refused: str = "") -> MeshStepResults:
    """The mesh steps of a case, and what each of them makes.

    ``refused``: the last step, if it is invalid on purpose. It makes no mesh.

    Raises:
        BadInput: an unknown op or axis, sizes with a wrong product, or a repeated name; a
            ``refused`` step that is valid or not the last.
    """
    steps: list[MeshStep] = []
    made: dict[str, DerivedMesh] = {}
    equal: dict[str, bool] = {}
    for i, one in enumerate(typed_fields.items(raw, where, "a list of mesh steps")):
        place = where.at(i)
        step = _read_step(one, of, made, place)
        if step.result in {*of.names, *(before.result for before in steps)}:
            raise place.at(0).error(f"{step.result!r} again", "a name not taken")
        steps.append(step)
        try:
            if step.op == "mesh_equal":
                equal[step.result] = mesh_derivation.are_equal(step, made)
            else:
                made[step.result] = mesh_derivation.derive_mesh(step, of, made)
        except MeshError as error:
            if step.result != refused:
                raise place.at(*error.place).error(error.found, error.wanted) from None
            continue
        if step.result == refused:
            raise place.error("a valid mesh step", "an invalid one, because refused names it")
        if "from" in step.params and made[step.result].mesh.axes != of.axes:
            found = f"a mesh {_format_axes(made[step.result].mesh)}"
            raise place.error(
                found, f"the case's mesh {_format_axes(of)}, which this step has to make"
            )
    if refused and (not steps or steps[-1].result != refused):
        last = repr(steps[-1].result) if steps else "there is none"
        raise where.error(f"refused {format_value(refused)}", f"the last mesh step: {last}")
    return MeshStepResults(tuple(steps), made, equal)


# The parameters of each op. All ops also take "after", and most take "of" and "from".
_PARAMS = {"mesh_unflatten": ("axes", "fake")}


def _read_step(raw: Any, of: Mesh, made: dict[str, DerivedMesh], where: Where) -> MeshStep:
    """A step as it is written. Whether it can make a mesh is not checked."""
    parts = typed_fields.items(raw, where)
    if len(parts) not in (3, 4):
        raise where.error(
            format_count(len(parts), "part"), "[result, op, axes] or [result, op, axes, {…}]"
        )
    result = typed_fields.identifier(parts[0], where.at(0))
    op = typed_fields.one_of(parts[1], where.at(1), "a mesh op", MESH_OPS)
    axes = typed_fields.texts(parts[2], where.at(2), "a list of axes")
    known = (*_PARAMS.get(op, ()), *(() if op == "mesh_equal" else ("from", "of")), "after")
    place = where.at(3)
    params = dict(typed_fields.table(parts[3] if len(parts) == 4 else {}, place, known))
    after = typed_fields.text(params.pop("after", ""), place.at("after"))
    typed_fields.exclusive(params, "from", "of", place)
    if op == "mesh_equal":
        if len(axes) != 2:
            raise where.at(2).error(format_count(len(axes), "name"), "two derived meshes")
        for at, name in enumerate(axes):
            _earlier(name, made, where.at(2, at))
    if "of" in params:
        _earlier(typed_fields.text(params["of"], place.at("of")), made, place.at("of"))
    if "from" in params:
        size = math.prod(read_sizes(params["from"], place.at("from")).values())
        if size != of.size:
            found = format_count(size, "device")
            raise place.at("from").error(found, f"{of.size}, the size of the case's mesh")
    if op == "mesh_unflatten":
        if "axes" not in params:
            raise place.error("no axes", "the new axes with their sizes")
        inner = read_sizes(params["axes"], place.at("axes"))
        for at, axis in enumerate(typed_fields.texts(params.get("fake", []), place.at("fake"))):
            if axis not in inner:
                wanted = "a new axis: " + ", ".join(inner)
                raise place.at("fake", at).error(f"axis {format_value(axis)}", wanted)
    return MeshStep(result, op, axes, params, after)  # type: ignore[arg-type]


def _earlier(name: str, made: dict[str, DerivedMesh], where: Where) -> None:
    if name not in made:
        wanted = "an earlier mesh step: " + (", ".join(made) or "there is none")
        raise where.error(format_value(name), wanted)


def _format_axes(of: Mesh) -> str:
    return ", ".join(f"{name}={size}" for name, size in of.axes)
