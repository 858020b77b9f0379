"""Which tensors exist before a program runs? Inputs as a file gives them, with their layouts.

Refuses to know programs.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cases import typed_fields
from cases.array_literals import (
    make_arange,
    parse_array,
    parse_shard,
    parse_sized,
    split_into_addends,
)
from cases.arrays import DTYPES, Array, numpy_dtype, pack
from cases.errors import Where, format_count, format_value
from cases.layout import index_ranges, local_shape
from cases.mesh_derivation import DerivedMesh
from cases.meshes import with_devices
from cases.model import Input, Layout, Mesh
from cases.notation import NotationError, from_mapping, from_placements, from_spec
from cases.program import TensorType, check_size

KEYS = (
    "shape", "dtype", "placements", "spec", "values", "per_device",
    "declared_shape", "irregular", "devices", "view",
)  # fmt: skip

# People do not write longer layouts.
MAX_NOTATION = 400


class DeclaredTensor(msgspec.Struct, frozen=True):
    """What is known about an input or result while a file is read.

    ``mesh``: as in `mesh_derivation.meshes_of_tensors`. ``layout``: None if the framework
    chooses it. ``irregular``: the shards may break the chunk rule.
    """

    typed: TensorType
    mesh: Mesh
    layout: Layout | None
    irregular: bool = False

    def local_shapes(self) -> tuple[tuple[int, ...], ...] | None:
        """The shape of each position's shard; None if the layout does not fix it."""
        if self.layout is None or self.irregular:
            return None
        return tuple(map(local_shape, index_ranges(self.mesh, self.layout, self.typed.shape)))


def read_layout(value: Any, mesh: Mesh, ndim: int, where: Where) -> Layout:
    """A layout from placements, axis -> placement, a PartitionSpec, or ``{spec = "P('dp')"}``.

    Raises:
        BadInput: it has no known notation, or does not fit the mesh or the tensor.
    """
    for key in ("placements", "spec"):
        if isinstance(value, dict) and list(value) == [key] and key not in mesh.names:
            return read_layout(value[key], mesh, ndim, where.at(key))
    try:
        match value:
            case str():
                return from_spec(_short(value, where), mesh, ndim)
            case list():
                texts = [_short(one, where.at(i)) for i, one in enumerate(value)]
                return from_placements(texts, mesh, ndim)
            case dict():
                table = {axis: _short(one, where.at(axis)) for axis, one in value.items()}
                return from_mapping(table, mesh, ndim)
    except NotationError as error:
        if error.axis is not None:
            where = where.at(
                error.axis if isinstance(value, dict) else mesh.layout_axes.index(error.axis)
            )
        raise where.error(error.found, error.wanted) from None
    raise where.error(format_value(value), "placements or a PartitionSpec")


def _short(value: Any, where: Where) -> str:
    text = typed_fields.text(value, where, "a placement such as S(0), R or P(sum)")
    if len(text) > MAX_NOTATION:
        raise where.error(f"{len(text):,} characters", f"a layout of at most {MAX_NOTATION}")
    return text


def read_input(
    name: str, raw: Any, mesh: Mesh, views: dict[str, DerivedMesh], mode: str, where: Where
) -> tuple[Input, DeclaredTensor]:
    """One input of a case on ``mesh``. ``views``: the meshes derived from it.

    ``values`` is a nested list, one number for all elements, or "arange" (the default). Values
    of a partial input are split into addends. A dry run has no values.

    Raises:
        BadInput: the input is invalid.
    """
    table = typed_fields.table(raw, where, KEYS)
    for one, other in (("placements", "spec"), ("values", "per_device"), ("devices", "view")):
        typed_fields.exclusive(table, one, other, where)
    # Frameworks get the declared shape.
    key = "declared_shape" if "declared_shape" in table else "shape"
    if key not in table:
        raise where.error("no shape", "shape, a list of sizes")
    shape = typed_fields.shape(table[key], where.at(key))
    typed_fields.shape(table.get("shape", []), where.at("shape"))
    dtype = typed_fields.one_of(
        table.get("dtype", "float32"), where.at("dtype"), "a known dtype", DTYPES
    )
    check_size(TensorType(shape, dtype), mode, where.at(key))
    own, on = _read_mesh(table, mesh, views, mode, where)
    written = "spec" if "spec" in table else "placements"
    if written not in table:
        raise where.error("no layout", "placements or spec")
    if written == "spec":
        typed_fields.text(table["spec"], where.at("spec"), "a PartitionSpec")
    elif isinstance(table["placements"], str):
        raise where.at("placements").error(
            format_value(table["placements"]), "a list or table of placements"
        )
    layout = read_layout(table[written], on, len(shape), where.at(written))
    for _, op in layout.partial:
        _check_reduction(op, dtype, where.at(written))
    irregular = "declared_shape" in table
    if "irregular" in table:
        irregular = typed_fields.flag(table["irregular"], where.at("irregular"))
    if irregular and "per_device" not in table:
        raise where.error("irregular shards", "per_device, with one shard for each device")
    tensor = DeclaredTensor(TensorType(shape, dtype), on, layout, irregular)
    # A list for each device follows the input's own mesh if it has one, else the case's mesh.
    listed = (own or mesh).devices
    value, per_device = _read_values(table, tensor, listed, mode, where)
    view = table.get("view")
    made = Input(name, shape, dtype, layout, value, per_device, irregular, own, view)
    return made, tensor


def _check_reduction(op: str, dtype: str, where: Where) -> None:
    kind = numpy_dtype(dtype).kind
    if op == "avg" and kind in "biu":
        raise where.error(f"a pending avg of {dtype}", "a dtype that has averages")
    if op in ("max", "min") and kind == "c":
        raise where.error(f"a pending {op} of {dtype}", "a dtype with an order")


def _read_mesh(
    table: dict[str, Any], mesh: Mesh, views: dict[str, DerivedMesh], mode: str, where: Where
) -> tuple[Mesh | None, Mesh]:
    if "view" in table:
        return None, find_view(table["view"], mesh, views, where.at("view"))
    if "devices" in table:
        own = with_devices(mesh, table["devices"], mode, where.at("devices"))
        return own, own
    return None, mesh


def find_view(name: Any, mesh: Mesh, views: dict[str, DerivedMesh], where: Where) -> Mesh:
    """The derived mesh called ``name``, as `DerivedMesh.whole` has it.

    Raises:
        BadInput: no mesh step has that name.
    """
    view = typed_fields.text(name, where, "the name of a mesh step")
    if view not in views:
        wanted = "the result of a mesh step: " + (", ".join(views) or "there is none")
        raise where.error(format_value(view), wanted)
    return views[view].whole(mesh)


def _read_values(
    table: dict[str, Any], tensor: DeclaredTensor, devices: tuple[int, ...], mode: str, where: Where
) -> tuple[Array | None, tuple[Array, ...] | None]:
    if mode == "dry run":
        for key in ("values", "per_device"):
            if key in table:
                raise where.error(f"{key} in a dry run", "none: a dry run has no data")
        return None, None
    shape, dtype = tensor.typed.shape, tensor.typed.dtype
    if "per_device" in table:
        return None, read_locals(table["per_device"], tensor, devices, where.at("per_device"))
    given, place = table.get("values", "arange"), where.at("values")
    if isinstance(given, str):
        if given != "arange":
            raise place.error(format_value(given), "'arange', a number or nested lists")
        value = make_arange(dtype, shape, place)
    elif isinstance(given, list | dict):
        value = parse_array(given, dtype, shape, place)
    else:
        one = parse_array(given, dtype, (), place)
        value = one.repeat(TensorType(shape, dtype).size).reshape(shape).astype(numpy_dtype(dtype))
    assert tensor.layout is not None
    if not tensor.layout.partial:
        return pack(value), None
    return None, tuple(split_into_addends(value, tensor.mesh, tensor.layout, place))


def read_locals(
    raw: Any, tensor: DeclaredTensor, devices: tuple[int, ...], where: Where
) -> tuple[Array, ...]:
    """One local array for each position of the tensor's mesh. ``raw`` is in order of ``devices``.

    If the layout fixes the local shapes, the arrays must have them.
    """
    listed = typed_fields.items(raw, where, "a list with an array for each device")
    if len(listed) != len(devices):
        raise where.error(
            format_count(len(listed), "array"), f"{len(devices)}, one for each device"
        )
    shapes = tensor.local_shapes()
    dtype = tensor.typed.dtype
    made: dict[int, Array] = {}
    position = {device: at for at, device in enumerate(tensor.mesh.devices)}
    for i, (one, device) in enumerate(zip(listed, devices, strict=True)):
        at = position[device]
        if shapes is None:
            made[at] = pack(parse_shard(one, dtype, tensor.typed.shape, where.at(i)))
        else:
            made[at] = pack(parse_sized(one, dtype, shapes[at], where.at(i)))
    return tuple(made[at] for at in range(len(devices)))
