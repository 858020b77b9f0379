"""How do tests ask the JAX adapter? Through a real worker, with questions made in a line."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters import protocol
from adapters.answer import Answer, Collective, Observed
from adapters.worker_process import ROOT
from cases.arrays import pack, unpack
from cases.layout import are_equivalent, coordinates, index_ranges, offset
from cases.model import Input, Layout, Mesh, Question, Step, mesh
from cases.notation import from_placements
from tests.runs import read_from_worker

JIT, EXPLICIT = "jax/jit", "jax/explicit"
IMPLIED, CHEAPEST = "jax/shard_map:implied", "jax/shard_map:cheapest"
ROUTES = (JIT, EXPLICIT, IMPLIED, CHEAPEST)
DEVICES = 8

ROW = mesh({"x": 4})
SQUARE = mesh({"a": 2, "b": 2})


class Client:
    """A worker of the JAX adapter, or of another ``module``, asked one question at a time."""

    def __init__(
        self, folder: Path, module: str = "adapters.jax_xla.adapter", **variables: str
    ) -> None:
        self._asks, theirs = os.pipe()[::-1]
        answers, ours = os.pipe()
        self._answers = open(answers, "rb")  # noqa: SIM115
        self._asked = open(self._asks, "wb")  # noqa: SIM115
        command = ["-m", "adapters.worker", module, str(DEVICES)]
        self._process = subprocess.Popen(
            [sys.executable, *command, str(theirs), str(ours)],
            cwd=ROOT,
            env=os.environ | {"TMPDIR": str(folder)} | variables,
            pass_fds=(theirs, ours),
        )
        for fd in (theirs, ours):
            os.close(fd)
        hello = read_from_worker(self._answers)
        assert isinstance(hello, protocol.Hello)
        self.hello = hello

    def ask(self, question: Question, *subjects: str) -> list[Answer]:
        """The answers to one question, one per subject."""
        protocol.write(self._asked, protocol.Ask(question, subjects, 60.0))
        answers = [read_from_worker(self._answers) for _ in subjects]
        assert all(isinstance(answer, Answer) for answer in answers)
        return answers  # type: ignore[return-value]

    def close(self) -> int:
        """End the worker; returns its exit code."""
        self._asked.close()
        self._answers.close()
        return self._process.wait(30)


def layout(on: Mesh, *placements: str, ndim: int = 2) -> Layout:
    """The layout of one placement per mesh axis."""
    return from_placements(placements, on, ndim)


def count(*shape: int, dtype: str = "float32", start: int = 0) -> NDArray[Any]:
    """start, start + 1, ... in row-major order."""
    return (np.arange(math.prod(shape)) + start).reshape(shape).astype(np.dtype(dtype))


def tensor(name: str, value: NDArray[Any], at: Layout) -> Input:
    """An input given as a global array."""
    return Input(name, value.shape, value.dtype.name, at, pack(value))


def owed(name: str, on: Mesh, addends: NDArray[Any], at: Layout) -> Input:
    """A partial input: ``addends`` has a leading dim per partial axis, in their order."""
    lead = len(at.partial)
    shape = addends.shape[lead:]
    local = []
    for where, held in zip(coordinates(on), index_ranges(on, at, shape), strict=True):
        addend = addends[tuple(where[axis] for axis, _ in at.partial)]
        local.append(pack(addend[tuple(slice(*span) for span in held)]))
    return Input(name, shape, addends.dtype.name, at, per_device=tuple(local))


def question(on: Mesh, inputs: list[Input], *steps: Step, check: str = "") -> Question:
    """A question that checks every result, or the names in ``check``."""
    names = tuple(check.split()) or tuple(step.result for step in steps)
    return Question("q", on, tuple(inputs), steps, names)


def move(on: Mesh, given: Input, to: Layout) -> Question:
    """One change of layout, from ``given`` to y."""
    return question(on, [given], Step("y", "redistribute", (given.name,), to=to))


def value(observed: Observed) -> NDArray[Any]:
    """The global value that was seen."""
    return unpack(observed.full[0])


def locals_(observed: Observed) -> list[NDArray[Any]]:
    """Every position's local array."""
    assert observed.shards is not None
    return [unpack(shard) for shard in observed.shards if shard is not None]


def assert_holds(observed: Observed, on: Mesh, right: NDArray[Any], at: Layout) -> None:
    """The result lies as ``at`` and holds ``right``: value, shards and offsets."""
    assert isinstance(observed.layout, Layout)
    assert are_equivalent(on, observed.layout, at, right.shape)
    assert observed.dtype == right.dtype.name
    np.testing.assert_array_equal(value(observed), right)
    held = index_ranges(on, at, right.shape)
    for shard, spans in zip(locals_(observed), held, strict=True):
        np.testing.assert_array_equal(shard, right[tuple(slice(*span) for span in spans)])
    if right.size:
        assert observed.offsets == tuple(map(offset, held))


def kinds(collectives: tuple[Collective, ...] | None) -> list[tuple[str, tuple[str, ...]]]:
    """Kind and axes of each collective."""
    assert collectives is not None
    return [(one.kind, one.axes) for one in collectives]


def fired(answer: Answer) -> tuple[Collective, ...] | None:
    """The collectives of a one-step question, wherever the route keeps them."""
    return answer.program if answer.subject == JIT else answer["y"].collectives
