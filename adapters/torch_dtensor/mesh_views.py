"""What does one rank see of a mesh? Its grid, its place in it, its group along each axis.

Reports what DeviceMesh says, not what it should say.
"""

from __future__ import annotations

import numpy as np
import torch.distributed as dist

from adapters.torch_dtensor.compat import DeviceMesh
from adapters.torch_dtensor.rank_messages import RankObservation
from cases.arrays import Array, pack


def observe_mesh(name: str, mesh: DeviceMesh | bool) -> tuple[RankObservation, ...]:
    """The result of a mesh step: the grid with the coordinate as its offset, and the groups.

    The group along axis a of mesh m is called m/a. A comparison of two meshes is one bool.
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
