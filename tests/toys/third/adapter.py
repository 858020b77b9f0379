"""How is the third framework asked? As `tests.toys.plain`, but for the op that the library has."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace
from numpy.typing import NDArray

from adapters.answer import Answer
from adapters.protocol import VERSION, Hello
from cases.model import Question
from tests.toys.plain import PROMISES, Plain
from tests.toys.third import toyshards


class Third(Plain):
    """The toy, of the release that is installed."""

    def hello(self) -> Hello:
        """Its name and release."""
        python, promises = platform.python_version(), {"toy": PROMISES["toy"]}
        return Hello(VERSION, "toy", toyshards.__version__, python, (), os.getpid(), (), promises)

    def observe(self, question: Question, subject: str, seconds: float) -> Answer:
        """The answer, without notes of the process."""
        found = super().observe(question, subject, seconds)
        return replace(found, seen=tuple(replace(one, note="") for one in found.seen))

    def run(self, op: str, args: list[Any], params: Mapping[str, Any]) -> NDArray[Any]:
        """The result of an op."""
        own = getattr(toyshards, op, None)
        return super().run(op, args, params) if own is None else own(*args, **params)


def connect(devices: int) -> Third:
    """The toy on ``devices`` devices, which it does without."""
    return Third(devices)
