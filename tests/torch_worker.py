"""A worker with the torch adapter, questions for it, and what is right about their answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from adapters import protocol
from adapters.answer import (
    Answer,
    Collective,
    Observed,
)
from cases.arrays import Array, numpy_dtype, pack, unpack
from cases.layout import index_ranges, offset
from cases.model import (
    Input,
    Layout,
    Mesh,
    Question,
    Step,
    mesh,
)
from cases.notation import from_placements
from tests.runs import read_from_worker

ROOT = Path(__file__).resolve().parent.parent
LINE = mesh({"x": 4})
SQUARE = mesh({"dp": 2, "tp": 2})


def layout(text: str, on: Mesh, ndim: int) -> Layout:
    return from_placements(text.split(), on, ndim)


def counting(shape: Sequence[int], dtype: str = "float32") -> np.ndarray:
    count = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    return (count % 2 if dtype == "bool" else count).astype(numpy_dtype(dtype))


def given(
    name: str, shape: Sequence[int], text: str, on: Mesh = LINE, dtype: str = "float32"
) -> Input:
    value = pack(counting(shape, dtype))
    return Input(name, tuple(shape), dtype, layout(text, on, len(shape)), value)


def addends(name: str, text: str, arrays: Sequence[Sequence[float]], on: Mesh = LINE) -> Input:
    packed = tuple(pack(np.array(array, "float32")) for array in arrays)
    shape = packed[0].shape
    return Input(name, shape, "float32", layout(text, on, len(shape)), per_device=packed)


def to(result: str, arg: str, text: str, on: Mesh = LINE, ndim: int = 1) -> Step:
    return Step(result, "redistribute", (arg,), to=layout(text, on, ndim))


def question(
    id: str, on: Mesh, inputs: Sequence[Input], steps: Sequence[Step] = (), **more: object
) -> Question:
    names = [one.name for one in inputs] + [one.result for one in steps]
    fields = {"check": tuple(names)} | more
    return Question(id, on, tuple(inputs), tuple(steps), **fields)  # type: ignore[arg-type]


SIMPLE = question("simple", LINE, [given("x", [8], "S(0)")], [to("y", "x", "R")])
# Rank 3 holds no row, where torch.max raises; the others go on to the next all-gather.
LOPSIDED = question("lopsided", LINE, [given("x", [5], "S(0)")], [Step("y", "max", ("x",))])
LONG = question(
    "long",
    LINE,
    [given("x0", [64, 64], "S(0)")],
    [Step(f"x{i + 1}", "multiply", (f"x{i}", 1)) for i in range(4000)],
    check=(),
)


class Live:
    """A worker process with the torch adapter, or with a module of the test's."""

    def __init__(self, printed: Path, module: str = "adapters.torch_dtensor.adapter"):
        asks, self._asks = os.pipe()
        self._answers, answers = os.pipe()
        path = os.pathsep.join([str(ROOT), str(printed.parent)])
        self.printed = printed
        with printed.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "adapters.worker", module, "8", str(asks), str(answers)],
                pass_fds=(asks, answers),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
            )
        os.close(asks)
        os.close(answers)
        self._writing = os.fdopen(self._asks, "wb")
        self._reading = os.fdopen(self._answers, "rb")
        self.hello = read_from_worker(self._reading)
        if not isinstance(self.hello, protocol.Hello):
            self.close()
            raise AssertionError(printed.read_text())

    def send(self, asked: Question, seconds: float = 30) -> None:
        protocol.write(self._writing, protocol.Ask(asked, ("torch",), seconds))

    def hear(self) -> Answer:
        answer = read_from_worker(self._reading)
        assert isinstance(answer, Answer), self.printed.read_text()
        return answer

    def ask(self, asked: Question, seconds: float = 30) -> Answer:
        self.send(asked, seconds)
        return self.hear()

    def ranks(self) -> list[int]:
        """Process ids of every rank of every world, each world's in rank order."""
        pid = self.process.pid
        return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def close(self) -> None:
        self._writing.close()
        self.process.wait(10)
        self._reading.close()


def values(arrays: Sequence[Array | None] | None) -> list[object]:
    assert arrays is not None
    return [None if array is None else unpack(array).tolist() for array in arrays]


def counted(fired: tuple[Collective, ...] | None) -> list[tuple[str, tuple[str, ...], int]]:
    assert fired is not None
    return [(one.kind, one.axes, one.bytes) for one in fired]


def right(seen: Observed, on: Mesh, text: str, shape: Sequence[int], dtype: str) -> None:
    """Assert layout, shards, offsets and full tensor of what counts 0, 1, 2, …"""
    wanted = layout(text, on, len(shape))
    whole = counting(shape, dtype)
    held = index_ranges(on, wanted, tuple(shape))
    assert (seen.layout, seen.shape, seen.dtype) == (wanted, tuple(shape), dtype)
    slices = [pack(whole[tuple(slice(*one) for one in spans)]) for spans in held]
    assert seen.shards == tuple(slices)
    assert seen.offsets == tuple(map(offset, held))
    assert seen.full == (pack(whole),)
    assert seen.disagreements == ()
