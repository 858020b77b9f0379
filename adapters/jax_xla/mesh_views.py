"""Which meshes does a question have in JAX, and what does each device see of a derived one?

Runs the lines of `mesh_lines`, and reads what they made. A slice is the whole mesh with some of
its axes used: what a device sees of it are the devices that share its index along all others.
"""

from __future__ import annotations

from typing import Any

import jax
import msgspec
import numpy as np
from jax.sharding import NamedSharding

from adapters.answer import Observed
from adapters.jax_xla import compat, run_lines, source_lines
from adapters.jax_xla.answer_in_progress import AnswerInProgress
from adapters.jax_xla.arrays import jax_mesh
from adapters.jax_xla.attempt import attempt
from adapters.jax_xla.source_lines import Kind
from cases.arrays import Array, pack
from cases.model import Question

Scope = dict[str, Any]


def make_meshes(question: Question, kind: Kind, notes: AnswerInProgress) -> Scope:
    """The meshes and views of a question by their Python names; shows those that are wanted.

    Raises:
        RefusedByJax: JAX refuses a mesh step, or this release has no axes of ``kind``.
    """
    found: Scope = {
        name: jax_mesh(mesh, kind) for mesh, name in source_lines.mesh_variables(question).items()
    }
    variables = source_lines.view_variables(question)
    for name, text in source_lines.view_sources(question, kind, compat.RELEASE):
        made = attempt(name, lambda: run_lines.evaluate(text, found))  # noqa: B023
        found[variables[name]] = made
        if notes.wants(name):
            # Of a plan on thousands of devices, what the first sees says enough.
            devices = question.mesh.devices[: 1 if notes.plan else None]
            seen = _seen(name, made, devices)
            notes.seen += [_padded(one, question.mesh.size - len(devices)) for one in seen]
    return found


def find_mesh(scope: Scope, place: str) -> jax.sharding.Mesh:
    """The mesh that a text of `source_lines.mesh_texts` names."""
    found: jax.sharding.Mesh = run_lines.evaluate(place, scope)
    return found


def _seen(name: str, made: NamedSharding | bool, devices: tuple[int, ...]) -> list[Observed]:
    """What each device, in the order given, sees of what a mesh step made.

    A comparison is one bool. Of a view, the grid with the device's coordinate as its offset,
    and the group along each axis, called after both.
    """
    if isinstance(made, bool):
        return [_observed(name, [np.asarray(made) for _ in devices])]
    axes, mesh = compat.spec_entries(made.spec), made.mesh
    sizes = tuple(mesh.shape[axis] for axis in axes)
    # One row for each index along the axes: which of them a device has is its coordinate.
    found: dict[Any, Any] = attempt(name, lambda: dict(made.devices_indices_map(sizes)))
    rows = {one.id: index for one, index in found.items()}
    ids = np.array([one.id for one in mesh.devices.flat]).reshape(mesh.devices.shape)
    place = {int(one): at for at, one in np.ndenumerate(ids)}
    order = [mesh.axis_names.index(axis) for axis in axes]
    turn = [sorted(order).index(at) for at in order]
    grids, groups = [], dict[str, list[Any]]()
    for device in devices:
        at = place[device]
        along = tuple(slice(None) if dim in order else i for dim, i in enumerate(at))
        grids.append(ids[along].transpose(turn))
        for axis, dim in zip(axes, order, strict=True):
            line = ids[(*at[:dim], slice(None), *at[dim + 1 :])]
            groups.setdefault(f"{name}/{axis}", []).append(line)
    where = tuple(tuple(index.start or 0 for index in rows[device]) for device in devices)
    grid = _observed(name, grids, where)
    return [grid, *(_observed(group, seen) for group, seen in groups.items())]


def _padded(seen: Observed, count: int) -> Observed:
    """Nothing said of ``count`` devices more."""
    rest = (None,) * count
    offsets = None if seen.offsets is None else (*seen.offsets, *rest)
    return msgspec.structs.replace(seen, shards=(*(seen.shards or ()), *rest), offsets=offsets)


def _observed(
    name: str, seen: list[Any], where: tuple[tuple[int, ...], ...] | None = None
) -> Observed:
    shards: tuple[Array, ...] = tuple(map(pack, seen))
    return Observed(name, shards[0].dtype, shards[0].shape, shards=shards, offsets=where)
