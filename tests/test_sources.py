"""How do the processes of a framework share the questions of a run?"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest

from adapters.registry import FRAMEWORKS, Framework
from cases.arrays import pack
from cases.model import Input, Layout, Question, mesh
from suites.sources import QUESTIONS_IN_A_ROW, LiveFramework


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveFramework]:
    """A framework whose answers say which process gave them, in two processes."""
    monkeypatch.setitem(FRAMEWORKS, "toy", Framework("tests.toys.plain", ("toy",)))
    made = LiveFramework("toy", sys.executable, 8, 30.0, 4, 2)
    yield made
    made.close()


def question(number: int) -> Question:
    """One input, which is the answer."""
    value = pack(np.arange(2, dtype=np.float32))
    given = Input("x", (2,), "float32", Layout((("a",),)), value)
    return Question(f"q{number}", mesh({"a": 2}), (given,), check=("x",))


def answered_by(toy: LiveFramework, number: int) -> str:
    """The process that answered a question."""
    (answer,) = toy.answer(question(number))
    assert answer.question == f"q{number}"
    return answer["x"].note.partition(" ")[0]


def test_neighbours_go_to_one_process_and_the_next_to_another(toy: LiveFramework) -> None:
    """In rows, in turn; the answers come in whatever order they are asked for."""
    count = 2 * QUESTIONS_IN_A_ROW + 1
    for number in range(count):
        toy.ask(question(number))
    by = {number: answered_by(toy, number) for number in reversed(range(count))}
    first, second = by[0], by[QUESTIONS_IN_A_ROW]
    assert first != second
    assert {by[number] for number in range(QUESTIONS_IN_A_ROW)} == {first}
    assert {by[QUESTIONS_IN_A_ROW + at] for at in range(QUESTIONS_IN_A_ROW)} == {second}
    assert by[count - 1] == first


def test_a_few_questions_start_no_second_process(toy: LiveFramework) -> None:
    """Asked twice they are still few."""
    for _ in range(2):
        for number in range(QUESTIONS_IN_A_ROW):
            toy.ask(question(number))
    assert len(toy._workers) == 1
    assert answered_by(toy, 0)
