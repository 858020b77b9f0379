"""A framework that is right: the whole program in NumPy, and shards cut by index arithmetic.

Its result layouts are those asked for, or replicated where none is. Knows no partial layout.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from adapters.answer import Answer, Done, Observed
from adapters.protocol import VERSION, Hello, Promise
from cases.arrays import pack, unpack
from cases.layout import index_ranges, offset
from cases.model import Layout, Question
from cases.ops import OPS

# By whichever name it is asked.
PROMISES = dict.fromkeys(
    ("toy", "toy/1", "toy/2"), Promise(("dtype", "layout", "shards", "offsets", "full"))
)


class Plain:
    """The toy. ``calls`` counts the questions that this process was asked."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.calls = 0

    def hello(self) -> Hello:
        """A framework called toy."""
        facts = (f"{self.devices} devices",)
        python, pid = platform.python_version(), os.getpid()
        return Hello(VERSION, "toy", "1.0", python, facts, pid, promises=PROMISES)

    def observe(self, question: Question, subject: str, seconds: float) -> Answer:
        """The answer; the note of every tensor is "pid calls"."""
        self.calls += 1
        values: dict[str, NDArray[Any]] = {}
        layouts: dict[str, Layout | None] = {}
        for given in question.inputs:
            assert given.value is not None
            values[given.name], layouts[given.name] = unpack(given.value), given.layout
        for step in question.steps:
            args = step.arguments(values)
            values[step.result] = self.run(step.op, args, step.params)
            layouts[step.result] = step.to
        seen = tuple(self._see(question, name, values[name], layouts[name]) for name in values)
        checked = tuple(one for one in seen if one.name in question.check)
        return Answer(question.id, subject, Done(), checked)

    def run(self, op: str, args: list[Any], params: Mapping[str, Any]) -> NDArray[Any]:
        """The result of an op, by what it means."""
        result: NDArray[Any] = OPS[op].meaning(*args, **params)
        return result

    def _see(
        self, question: Question, name: str, value: NDArray[Any], layout: Layout | None
    ) -> Observed:
        layout = layout or Layout(((),) * value.ndim)
        held = index_ranges(question.mesh, layout, value.shape)
        return Observed(
            name,
            value.dtype.name,
            value.shape,
            layout,
            shards=tuple(pack(value[tuple(slice(*span) for span in spans)]) for spans in held),
            offsets=tuple(offset(spans) for spans in held),
            full=(pack(value),),
            note=f"{os.getpid()} {self.calls}",
        )

    def close(self) -> None:
        """Nothing to end."""


def connect(devices: int) -> Plain:
    """The toy on ``devices`` devices, which it does without."""
    return Plain(devices)
