"""How do our meshes, layouts and inputs become JAX's, and JAX's arrays ours again?

Every array is read in mesh order: position i of the mesh first to last, whatever its device.
Compiles nothing: `jax.device_put` places arrays, and addressable shards are read.
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
    """The same axes over the same devices, every axis of ``kind``."""
    devices = jax.devices()
    grid = np.empty(mesh.size, dtype=object)
    grid[:] = [devices[number] for number in mesh.devices]
    return compat.mesh(grid.reshape(mesh.shape), mesh.names, kind)


def stacked_layout(layout: Layout) -> Layout:
    """The layout of a partial tensor's addends stacked on leading dims, one per partial axis."""
    return Layout(tuple((axis,) for axis, _ in layout.partial) + layout.dims)


def stacked_shape(mesh: Mesh, layout: Layout, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The global shape of a partial tensor's addends stacked on leading dims."""
    return tuple(mesh[axis] for axis, _ in layout.partial) + shape


def partition_spec(layout: Layout, step: str = "") -> PartitionSpec:
    """The PartitionSpec; a pending sum is ``unreduced``.

    Raises:
        NotationError: a pending reduction other than a sum.
        CannotAnswer: at ``step``, if this release has no pending reductions.
    """
    notation.to_spec(layout)
    dims = (axes or None for axes in layout.dims)
    return compat.spec(dims, (axis for axis, _ in layout.partial), step)


ArrayOrStruct = jax.Array | jax.ShapeDtypeStruct


def place_input(
    given: Input, mesh: Mesh, there: jax.sharding.Mesh, stack: bool, plan: bool = False
) -> ArrayOrStruct:
    """The input on ``mesh``, which is ``there`` in JAX. In a ``plan`` it has no data.

    A partial input becomes its addends: with ``stack`` on leading dims that the partial axes split,
    else as an unreduced array.

    Raises:
        RefusedByJax: sizes are uneven.
        CannotAnswer: JAX has no such layout.
    """
    layout, shape = given.layout, given.shape
    if layout.partial:
        if given.per_device is None and not plan:
            raise CannotAnswer("a partial input without its addends", given.name)
        if stack:
            layout, shape = stacked_layout(layout), stacked_shape(mesh, layout, shape)
    try:
        entries = partition_spec(layout, given.name)
    except notation.NotationError as error:
        why = f"{error.found}: JAX has {error.wanted}"
        raise CannotAnswer(why, given.name) from None
    sharding = NamedSharding(there, entries)
    if plan and given.irregular:
        why = "a dry run has no data, from which irregular shards take their shapes"
        raise CannotAnswer(why, given.name)
    if plan:
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
    """An input without data. Raises what JAX says about a sharding that does not suit it."""
    bare = jax.ShapeDtypeStruct(shape, arrays.numpy_dtype(given.dtype))
    if given.per_device is None and not given.layout.partial:
        jax.eval_shape(lambda x: jax.device_put(x, sharding), bare)
    made = jax.ShapeDtypeStruct(shape, bare.dtype, sharding=sharding)
    if given.per_device is not None or given.layout.partial:
        jax.eval_shape(lambda x: x, made)
        sharding.shard_shape(shape)
    return made


def local_shape(array: ArrayOrStruct, lead: int = 0) -> tuple[int, ...] | None:
    """The shape of every shard, without ``lead`` dims; None if they do not all have one shape."""
    sharding = array.sharding
    assert sharding is not None
    try:
        local: tuple[int, ...] = sharding.shard_shape(array.shape)
    # JAX's error for sizes that do not divide.
    except ValueError:
        return None
    return local[lead:]


def local_bytes(array: ArrayOrStruct) -> int:
    """Bytes of a shard; of the whole if shards do not all have one shape."""
    shape = local_shape(array)
    return math.prod(array.shape if shape is None else shape) * int(array.dtype.itemsize)


def layout_of(array: ArrayOrStruct, mesh: Mesh) -> tuple[Layout | Foreign, str]:
    """The layout that JAX reports of an array, and what it says beyond a layout.

    `Foreign` for a sharding that is not over this mesh's axes and devices.
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
        # Axes of a whole mesh that are not in the slice.
        return Foreign(str(sharding)), ""
    pending = tuple((axis, "sum") for axis in mesh.names if axis in owed)
    found = compat.reduced_axes(sharding.spec)
    reduced = ", ".join(axis for axis in mesh.names if axis in found)
    return Layout(tuple(dims), pending), f"reduced over {reduced}" if reduced else ""


@lru_cache(maxsize=1024)
def _has_axes(there: jax.sharding.Mesh, mesh: Mesh) -> bool:
    """Whether a mesh of JAX has all named axes of ``mesh``, and each device at its place."""
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
    """Whether a sum is still pending, so that JAX has no global value or index for the array."""
    return isinstance(array.sharding, NamedSharding) and bool(
        compat.unreduced_axes(array.sharding.spec)
    )


Shards = tuple[arrays.Array | None, ...]
Offsets = tuple[tuple[int, ...] | None, ...]


def shards_of(array: jax.Array, mesh: Mesh) -> tuple[Shards, Offsets]:
    """Each mesh position's local array and its global offset; None where JAX has none.

    An unreduced array has addends and no offsets: ``Shard.index`` raises for it.
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
