"""What does one rank observe of a mesh? The grid, its own coordinate and its group along each axis.

This module reports what DeviceMesh says. It does not know what is right.
"""

from __future__ import annotations

import numpy as np
import torch.distributed as dist

from adapters.torch_dtensor.compat import DeviceMesh
from adapters.torch_dtensor.rank_messages import RankObservation
from cases.arrays import Array, pack


def observe_mesh(name: str, mesh: DeviceMesh | bool) -> tuple[RankObservation, ...]:
    """The grid of a mesh, with the coordinate of this rank as its offset, and its groups.

    The group along axis a of mesh m is named m/a. ``mesh`` is a bool if two meshes were compared.
    """
    if isinstance(mesh, bool):
        return (_seen(name, pack(np.asarray(mesh))),)
    grid = pack(mesh.mesh.numpy().astype(np.int64))
    found = [_seen(name, grid, mesh.get_coordinate())]
    for axis in mesh.mesh_dim_names or ():
        ranks = dist.get_process_group_ranks(mesh.get_group(axis))
        found.append(_seen(f"{name}/{axis}", pack(np.array(ranks, np.int64))))
    return tuple(found)


def _seen(name: str, array: Array, place: tuple[int, ...] | None = None) -> RankObservation:
    where = None if place is None else tuple(place)
    return RankObservation(
        name, array.dtype, array.shape, None, None, array, where, None, None, None
    )
