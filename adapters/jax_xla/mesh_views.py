"""Which meshes does a question have in JAX, and what does each device observe of a derived mesh?

This module evaluates the lines of `mesh_lines`. A derived mesh uses some axes of a full mesh. Each
device observes the devices that have its index along all other axes.
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
    """The meshes and views of a question by Python name. Checked views are added to ``notes``.

    Raises:
        RefusedByJax: JAX refuses a mesh step. CannotAnswer: this release lacks axes of ``kind``.
    """
    found: Scope = {
        name: jax_mesh(mesh, kind) for mesh, name in source_lines.mesh_variables(question).items()
    }
    variables = source_lines.view_variables(question)
    for name, text in source_lines.view_sources(question, kind, compat.RELEASE):
        made = attempt(name, lambda: run_lines.evaluate(text, found))  # noqa: B023
        found[variables[name]] = made
        if notes.wants(name):
            # A dry run can have thousands of devices, so it shows only the view of the first.
            devices = question.mesh.devices[: 1 if notes.is_dry_run else None]
            seen = _seen(name, made, devices)
            notes.seen += [_padded(one, question.mesh.size - len(devices)) for one in seen]
    return found


def find_mesh(scope: Scope, place: str) -> jax.sharding.Mesh:
    """The mesh of a text of `source_lines.mesh_texts`."""
    found: jax.sharding.Mesh = run_lines.evaluate(place, scope)
    return found


def _seen(name: str, made: NamedSharding | bool, devices: tuple[int, ...]) -> list[Observed]:
    """What each device observes of the result of a mesh step.

    A comparison is one bool. A view has a grid with the coordinate of the device as its offset, and
    a group along each axis. The group along axis a of view m is named m/a.
    """
    if isinstance(made, bool):
        return [_observed(name, [np.asarray(made) for _ in devices])]
    axes, mesh = compat.spec_entries(made.spec), made.mesh
    sizes = tuple(mesh.shape[axis] for axis in axes)
    # An array with the sizes of the axes has one element per coordinate.
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
    """The observation with None for ``count`` more devices."""
    rest = (None,) * count
    offsets = None if seen.offsets is None else (*seen.offsets, *rest)
    return msgspec.structs.replace(seen, shards=(*(seen.shards or ()), *rest), offsets=offsets)


def _observed(
    name: str, seen: list[Any], where: tuple[tuple[int, ...], ...] | None = None
) -> Observed:
    shards: tuple[Array, ...] = tuple(map(pack, seen))
    return Observed(name, shards[0].dtype, shards[0].shape, shards=shards, offsets=where)
