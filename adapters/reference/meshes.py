"""What does each device observe of a derived mesh? The answer comes from index arithmetic.

It has the form of a framework's answer. The grid of mesh m has the coordinate as its offset. The
group along axis a is m/a. Shards are in the order of the question's mesh. No framework is asked.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from adapters.answer import Observed
from cases.arrays import pack
from cases.mesh_derivation import DerivedMesh, are_equal, derive_all
from cases.model import Question

# The last question is cached, because the answers of all subjects are compared with it.
_kept: deque[tuple[Question, tuple[Observed, ...]]] = deque(maxlen=1)


def observe(question: Question) -> tuple[Observed, ...]:
    """The results of the mesh steps of a question. An invalid step has no result."""
    for kept, seen in _kept:
        if kept is question:
            return seen
    seen = _observe(question)
    _kept.append((question, seen))
    return seen


def _observe(question: Question) -> tuple[Observed, ...]:
    made = derive_all(question.mesh, question.mesh_steps)
    found: list[Observed] = []
    for step in question.mesh_steps:
        if step.op == "mesh_equal":
            same = pack(np.asarray(are_equal(step, made)))
            found.append(Observed(step.result, "bool", (), shards=(same,) * question.mesh.size))
        elif step.result in made:
            found += _seen(step.result, made[step.result], question.mesh.devices)
    return tuple(found)


def _seen(name: str, view: DerivedMesh, devices: tuple[int, ...]) -> list[Observed]:
    shape, ids = view.mesh.shape, np.array(devices, np.int64)
    positions = range(len(devices))
    grids = tuple(pack(ids[list(view.seen(position))].reshape(shape)) for position in positions)
    where = tuple(view.coordinate(position) for position in positions)
    found = [Observed(name, "int64", shape, shards=grids, offsets=where)]
    for axis, lines in view.axes.items():
        groups = tuple(pack(ids[list(lines[position])]) for position in positions)
        found.append(Observed(f"{name}/{axis}", "int64", groups[0].shape, shards=groups))
    return found
