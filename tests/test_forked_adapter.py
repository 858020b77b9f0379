"""Is what befalls a forked child the answer of its question, and of no other?"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from adapters.answer import Crashed, Done, Hung
from adapters.worker_client import WorkerClient
from tests.test_worker_client import SUBJECTS, is_right, process_of, question


@pytest.fixture
def worker() -> Iterator[WorkerClient]:
    """A worker whose adapter works in a child."""
    worker = WorkerClient("toy", "tests.toys.forked", SUBJECTS, seconds=1.0)
    yield worker
    worker.close()


@pytest.mark.parametrize(
    ("context", "how", "told"),
    [("abort", "SIGABRT", "about to abort"), ("exit", "exit code 3", "")],
)
def test_a_death_is_the_answer_of_one_subject(
    worker: WorkerClient, context: str, how: str, told: str
) -> None:
    """How it died and what it printed; the worker lives, and another child answers the rest."""
    first, second = worker.answer(question("bad", context))
    assert isinstance(first.end, Crashed)
    assert first.end.how == how
    assert told in first.end.output
    assert is_right(second)
    before = worker.hello()
    assert all(map(is_right, worker.answer(question("good"))))
    assert worker.hello() == before


@pytest.mark.parametrize(
    ("context", "where"), [("hang", "asleep_in_python"), ("hang in C", "asleep_in_c")]
)
def test_a_hang_ends_at_the_deadline_with_its_stack(
    worker: WorkerClient, context: str, where: str
) -> None:
    """Even one that holds the interpreter."""
    worker.answer(question("warm"))
    started = time.monotonic()
    first, second = worker.answer(question("bad", context))
    assert 1.0 <= time.monotonic() - started < 3.0
    assert isinstance(first.end, Hung)
    assert where in first.end.stacks[0]
    assert is_right(second)


def test_a_child_killed_between_questions_is_replaced(worker: WorkerClient) -> None:
    """No question is to blame, so none is answered with its death."""
    (first, _) = worker.answer(question("one"))
    os.kill(process_of(first), signal.SIGKILL)
    time.sleep(0.2)
    assert all(map(is_right, worker.answer(question("two"))))


def test_a_child_killed_in_a_question_is_its_answer(worker: WorkerClient) -> None:
    """While it sleeps, from outside."""
    (first, _) = worker.answer(question("one"))
    worker.ask(question("bad", "hang"))
    time.sleep(0.3)
    os.kill(process_of(first), signal.SIGKILL)
    ends = [answer.end for answer in worker.answer(question("bad", "hang"))]
    assert ends == [Crashed("SIGKILL"), Done()]


def test_chatter_damages_nothing(worker: WorkerClient) -> None:
    """A child prints where its worker does, and speaks elsewhere."""
    assert all(map(is_right, worker.answer(question("loud", "chatter"))))


def test_a_child_dies_with_its_worker() -> None:
    """However the run ends its worker."""
    worker = WorkerClient("toy", "tests.toys.forked", SUBJECTS)
    child = process_of(worker.answer(question("one"))[0])
    worker.close()
    for _ in range(1000):
        if not os.path.exists(f"/proc/{child}"):
            return
        time.sleep(0.02)
    pytest.fail(f"process {child} lives")
