"""Which layout does a DTensor report? Its placements and shard order, read back into the model.

Reports what DTensor says of itself, not what its shards hold.
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
    """Which mesh dims split each tensor dim, in order, where that is not the mesh's order."""
    # Strided shards say the order themselves, and then this is None.
    order = getattr(tensor._spec, "shard_order", None)
    if order is None or all(list(entry[1]) == sorted(entry[1]) for entry in order):
        return None
    return tuple((entry[0], tuple(entry[1])) for entry in order)


def layout_of(
    placements: tuple[Any, ...], order: tuple[Any, ...] | None, mesh: Mesh, ndim: int
) -> Layout | Foreign:
    """The layout that placements and a `shard_order` mean; Foreign where the model has none."""
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
    """A placement that the model has.

    Raises:
        NotationError: it is of another kind. A subclass, such as the partial of a norm, means
            something else, and up to torch 2.9 prints as the class that it is made of.
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
