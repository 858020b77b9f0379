"""How are meshes, layouts and inputs converted to JAX, and arrays back?

Shards are read in the order of mesh positions, not of devices. This module compiles nothing: it
places inputs with `jax.device_put` and reads addressable shards.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from adapters.jax_xla import compat
from adapters.jax_xla.attempt import attempt
from adapters.jax_xla.source_lines import Kind
from adapters.unsupported import CannotAnswer
from cases import arrays, notation
from cases.layout import coordinates
from cases.model import Foreign, Input, Layout, Mesh


@lru_cache(maxsize=256)
def jax_mesh(mesh: Mesh, kind: Kind) -> jax.sharding.Mesh:
    """The JAX mesh with the same axes and devices. Every axis has the type ``kind``."""
    devices = jax.devices()
    grid = np.empty(mesh.size, dtype=object)
    grid[:] = [devices[number] for number in mesh.devices]
    return compat.mesh(grid.reshape(mesh.shape), mesh.names, kind)


def stacked_layout(layout: Layout) -> Layout:
    """The layout of the stacked addends of a partial tensor: one leading dim per partial axis."""
    return Layout(tuple((axis,) for axis, _ in layout.partial) + layout.dims)


def stacked_shape(mesh: Mesh, layout: Layout, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The global shape of the stacked addends of a partial tensor."""
    return tuple(mesh[axis] for axis, _ in layout.partial) + shape


def partition_spec(layout: Layout, step: str = "") -> PartitionSpec:
    """The PartitionSpec of a layout. Axes of a pending sum are ``unreduced``.

    Raises:
        NotationError: a pending reduction is not a sum.
        CannotAnswer: this release lacks ``unreduced``. The error names ``step``.
    """
    notation.to_spec(layout)
    dims = (axes or None for axes in layout.dims)
    return compat.spec(dims, (axis for axis, _ in layout.partial), step)


ArrayOrStruct = jax.Array | jax.ShapeDtypeStruct


def place_input(
    given: Input, mesh: Mesh, there: jax.sharding.Mesh, stack: bool, is_dry_run: bool = False
) -> ArrayOrStruct:
    """An input on ``mesh``, which is ``there`` in JAX. With ``is_dry_run``, it has no data.

    A partial input has addends. ``stack`` puts them on leading dims, sharded over the partial axes.
    Without ``stack``, they form an unreduced array.

    Raises:
        RefusedByJax: JAX refused it, for example for uneven sizes.
        CannotAnswer: JAX has no such layout.
    """
    layout, shape = given.layout, given.shape
    if layout.partial:
        if given.per_device is None and not is_dry_run:
            raise CannotAnswer("a partial input without its addends", given.name)
        if stack:
            layout, shape = stacked_layout(layout), stacked_shape(mesh, layout, shape)
    try:
        entries = partition_spec(layout, given.name)
    except notation.NotationError as error:
        why = f"{error.found}: JAX has {error.wanted}"
        raise CannotAnswer(why, given.name) from None
    sharding = NamedSharding(there, entries)
    if is_dry_run and given.irregular:
        why = "a dry run has no data, from which irregular shards take their shapes"
        raise CannotAnswer(why, given.name)
    if is_dry_run:
        return attempt(given.name, lambda: _planned(given, shape, sharding))

    def put() -> jax.Array:
        array: jax.Array
        if given.per_device is None:
            assert given.value is not None
            array = jax.device_put(arrays.unpack(given.value), sharding)
            return array
        lead = (1,) * (len(shape) - len(given.shape))
        locals_ = [arrays.unpack(local) for local in given.per_device]
        parts = [local.reshape(lead + local.shape) for local in locals_]
        devices = jax.devices()
        on_devices = jax.device_put(parts, [devices[number] for number in mesh.devices])
        array = jax.make_array_from_single_device_arrays(shape, sharding, on_devices)
        return array

    return attempt(given.name, put)


def _planned(given: Input, shape: tuple[int, ...], sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    """An input without data. JAX raises if the sharding does not fit the shape."""
    bare = jax.ShapeDtypeStruct(shape, arrays.numpy_dtype(given.dtype))
    if given.per_device is None and not given.layout.partial:
        jax.eval_shape(lambda x: jax.device_put(x, sharding), bare)
    made = jax.ShapeDtypeStruct(shape, bare.dtype, sharding=sharding)
    if given.per_device is not None or given.layout.partial:
        jax.eval_shape(lambda x: x, made)
        sharding.shard_shape(shape)
    return made


def local_shape(array: ArrayOrStruct, lead: int = 0) -> tuple[int, ...] | None:
    """The shape of all shards, without the first ``lead`` dims. None if their shapes differ."""
    sharding = array.sharding
    assert sharding is not None
    try:
        local: tuple[int, ...] = sharding.shard_shape(array.shape)
    # JAX raises this for sizes that are not divisible.
    except ValueError:
        return None
    return local[lead:]


def local_bytes(array: ArrayOrStruct) -> int:
    """The bytes of a shard, or of the whole array if the shapes of shards differ."""
    shape = local_shape(array)
    return math.prod(array.shape if shape is None else shape) * int(array.dtype.itemsize)


def layout_of(array: ArrayOrStruct, mesh: Mesh) -> tuple[Layout | Foreign, str]:
    """The layout that JAX reports for an array, and a note about axes over which it is reduced.

    The layout is `Foreign` if the sharding is not on the axes and devices of ``mesh``.
    """
    sharding = array.sharding
    if not isinstance(sharding, NamedSharding) or not _has_axes(sharding.mesh, mesh):
        return Foreign(str(sharding)), ""
    entries: list[Any] = list(compat.spec_entries(sharding.spec))
    dims = [
        () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)
        for entry in entries + [None] * (array.ndim - len(entries))
    ]
    used = {
        *(axis for axes in dims for axis in axes),
        *(owed := compat.unreduced_axes(sharding.spec)),
    }
    if not used <= set(mesh.layout_axes):
        # The sharding uses axes of the full mesh that the derived mesh lacks.
        return Foreign(str(sharding)), ""
    pending = tuple((axis, "sum") for axis in mesh.names if axis in owed)
    found = compat.reduced_axes(sharding.spec)
    reduced = ", ".join(axis for axis in mesh.names if axis in found)
    return Layout(tuple(dims), pending), f"reduced over {reduced}" if reduced else ""


@lru_cache(maxsize=1024)
def _has_axes(there: jax.sharding.Mesh, mesh: Mesh) -> bool:
    """Whether a JAX mesh has all named axes of ``mesh``, with each device at the same index."""
    if not set(mesh.layout_axes) <= set(there.axis_names):
        return False
    ids = {device.id: at for at, device in np.ndenumerate(there.devices)}
    dims = [(axis, there.axis_names.index(axis)) for axis in mesh.layout_axes]
    return ids.keys() == set(mesh.devices) and all(
        there.shape[axis] == mesh[axis]
        and all(
            ids[device][dim] == where[axis]
            for device, where in zip(mesh.devices, coordinates(mesh), strict=True)
        )
        for axis, dim in dims
    )


def is_unreduced(array: ArrayOrStruct) -> bool:
    """Whether an array has a pending sum. Then JAX has no global value or index for it."""
    return isinstance(array.sharding, NamedSharding) and bool(
        compat.unreduced_axes(array.sharding.spec)
    )


Shards = tuple[arrays.Array | None, ...]
Offsets = tuple[tuple[int, ...] | None, ...]


def shards_of(array: jax.Array, mesh: Mesh) -> tuple[Shards, Offsets]:
    """The local shard and the global offset at each mesh position. None if JAX has none.

    The shards of an unreduced array are addends without offsets, because ``Shard.index`` raises.
    """
    position = {device: at for at, device in enumerate(mesh.devices)}
    shards: list[arrays.Array | None] = [None] * mesh.size
    offsets: list[tuple[int, ...] | None] = [None] * mesh.size
    unreduced = is_unreduced(array)
    for shard in array.addressable_shards:
        at = position[shard.device.id]
        shards[at] = arrays.pack(np.asarray(shard.data))
        if not unreduced:
            offsets[at] = tuple(index.start or 0 for index in shard.index)
    return tuple(shards), tuple(offsets)
