"""How do our meshes, layouts and inputs become JAX's, and JAX's arrays ours again?

Every array is read in mesh order: position i of the mesh first to last, whatever its device.
Compiles nothing: placing is `jax.device_put`, reading is the addressable shards.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from adapters.answer import Unsupported
from adapters.jax_xla.attempt import Stopped, attempt
from cases import arrays, notation
from cases.model import Foreign, Input, Layout, Mesh


@lru_cache(maxsize=256)
def jax_mesh(mesh: Mesh, kind: AxisType) -> jax.sharding.Mesh:
    """The same axes over the same devices, every axis of ``kind``."""
    devices = jax.devices()
    grid = np.empty(mesh.size, dtype=object)
    grid[:] = [devices[number] for number in mesh.devices]
    return jax.sharding.Mesh(
        grid.reshape(mesh.shape), mesh.names, axis_types=(kind,) * len(mesh.axes)
    )


def stacked(layout: Layout) -> Layout:
    """The layout of a partial tensor's addends stacked on leading dims, one per partial axis."""
    return Layout(tuple((axis,) for axis, _ in layout.partial) + layout.dims)


def stacked_shape(mesh: Mesh, layout: Layout, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The global shape of a partial tensor's addends stacked on leading dims."""
    return tuple(mesh[axis] for axis, _ in layout.partial) + shape


def spec(layout: Layout) -> PartitionSpec:
    """The PartitionSpec; a pending sum is ``unreduced``.

    Raises:
        NotationError: a pending reduction other than a sum.
    """
    notation.to_spec(layout)
    dims = [axes or None for axes in layout.dims]
    if not layout.partial:
        return PartitionSpec(*dims)
    return PartitionSpec(*dims, unreduced={axis for axis, _ in layout.partial})


def place(given: Input, mesh: Mesh, kind: AxisType, stack: bool) -> jax.Array:
    """The input on its devices.

    A partial input is its addends: with ``stack`` on leading dims that the partial axes
    split, else as an unreduced array.

    Raises:
        Stopped: Refused by JAX (uneven sizes), or Unsupported.
    """
    layout, shape = given.layout, given.shape
    if layout.partial:
        if given.per_device is None:
            raise Stopped(Unsupported("a partial input without its addends", given.name))
        if stack:
            layout, shape = stacked(layout), stacked_shape(mesh, layout, shape)
    try:
        entries = spec(layout)
    except notation.NotationError as error:
        why = f"{error.found}: JAX has {error.wanted}"
        raise Stopped(Unsupported(why, given.name)) from None
    there = jax_mesh(mesh, kind)

    def put() -> jax.Array:
        array: jax.Array
        sharding = NamedSharding(there, entries)
        if given.per_device is None:
            assert given.value is not None
            array = jax.device_put(arrays.unpack(given.value), sharding)
            return array
        lead = (1,) * (len(shape) - len(given.shape))
        locals_ = [arrays.unpack(local) for local in given.per_device]
        parts = [local.reshape(lead + local.shape) for local in locals_]
        on_devices = jax.device_put(parts, list(there.devices.flat))
        array = jax.make_array_from_single_device_arrays(shape, sharding, on_devices)
        return array

    return attempt(given.name, put)


def layout_of(array: jax.Array, mesh: Mesh) -> tuple[Layout | Foreign, str]:
    """The layout that JAX reports of an array, and what it says beyond a layout.

    `Foreign` for a sharding that is not over this mesh's axes and devices.
    """
    sharding = array.sharding
    if (
        not isinstance(sharding, NamedSharding)
        or sharding.mesh.axis_names != mesh.names
        or sharding.mesh.axis_sizes != mesh.shape
        or tuple(device.id for device in sharding.mesh.devices.flat) != mesh.devices
    ):
        return Foreign(str(sharding)), ""
    entries: list[Any] = list(sharding.spec.partitions)
    dims = [
        () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)
        for entry in entries + [None] * (array.ndim - len(entries))
    ]
    pending = tuple((axis, "sum") for axis in mesh.names if axis in sharding.spec.unreduced)
    reduced = ", ".join(axis for axis in mesh.names if axis in sharding.spec.reduced)
    return Layout(tuple(dims), pending), f"reduced over {reduced}" if reduced else ""


def is_unreduced(array: jax.Array) -> bool:
    """Whether the array still owes a sum, so that JAX has no global value or index for it."""
    return isinstance(array.sharding, NamedSharding) and bool(array.sharding.spec.unreduced)


Shards = tuple[arrays.Array | None, ...]
Offsets = tuple[tuple[int, ...] | None, ...]


def shards_of(array: jax.Array, mesh: Mesh) -> tuple[Shards, Offsets]:
    """Every mesh position's local array and its global offset, None where JAX has none.

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
