"""Which layout does a DTensor report? Placements and shard order are converted to `cases.model`.

This module trusts what DTensor reports. It does not look at local shards.
"""

from __future__ import annotations

from typing import Any

from adapters.torch_dtensor.compat import (
    DeviceMesh,
    DTensor,
    Partial,
    Replicate,
    Shard,
    _StridedShard,
    reduction_name,
)
from cases.model import Foreign, Layout, Mesh
from cases.notation import NotationError, from_placements


def mesh_of(mesh: DeviceMesh) -> Mesh:
    """Axis names, sizes and devices of a mesh, as this rank sees it."""
    names = mesh.mesh_dim_names or tuple(f"dim_{dim}" for dim in range(mesh.ndim))
    return Mesh(tuple(zip(names, mesh.shape)), tuple(mesh.mesh.flatten().tolist()))


def shard_order(tensor: DTensor) -> tuple[Any, ...] | None:
    """The mesh dims that split each tensor dim, in order. None if that is the order of the mesh."""
    # Strided shards express the order in their placements. Then this is None.
    order = getattr(tensor._spec, "shard_order", None)
    if order is None or all(list(entry[1]) == sorted(entry[1]) for entry in order):
        return None
    return tuple((entry[0], tuple(entry[1])) for entry in order)


def layout_of(
    placements: tuple[Any, ...], order: tuple[Any, ...] | None, mesh: Mesh, ndim: int
) -> Layout | Foreign:
    """The layout of placements and a `shard_order`. Foreign if `cases.model` cannot express it."""
    try:
        layout = from_placements([_text(placement) for placement in placements], mesh, ndim)
    except NotationError:
        return Foreign("[" + ", ".join(map(_foreign, placements)) + "]")
    if order is None:
        return layout
    dims = list(layout.dims)
    for dim, axes in order:
        dims[dim] = tuple(mesh.names[axis] for axis in axes)
    return Layout(tuple(dims), layout.partial)


def _text(placement: Any) -> str:
    """The notation of a placement.

    Raises:
        NotationError: `cases.model` has no such placement. A subclass, such as the Partial of a
            norm, has another meaning, although up to torch 2.9 it prints like its base class.
    """
    kind = type(placement)
    if kind is Replicate:
        return "R"
    if kind is Shard:
        return f"S({placement.dim})"
    if kind is _StridedShard:
        return f"SS({placement.dim},{placement.split_factor})"
    if kind is Partial:
        return f"P({reduction_name(placement)})"
    raise NotationError(f"a placement of type {kind.__name__}", "one that the model has")


def _foreign(placement: Any) -> str:
    text, kind = str(placement), type(placement).__name__
    plain = kind in ("Partial", "Replicate")
    return f"{kind}({text})" if text in ("P", "R") and not plain else text
