"""Does a run get every answer out of a worker, whatever the worker does?"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from adapters import worker_client
from adapters.answer import Answer, Crashed, Done, Hung
from adapters.worker_client import WorkerClient, WorkerError
from adapters.worker_process import ROOT
from cases.arrays import pack, unpack
from cases.model import Input, Layout, Question, Step, mesh

TOYS = "tests.toys."
SUBJECTS = ("toy/1", "toy/2")
Start = Callable[..., WorkerClient]


def question(name: str = "q", context: str | None = None, size: int = 4) -> Question:
    """Twice an arange of ``size``, split over two devices."""
    layout = Layout((("a",),))
    value = pack(np.arange(size, dtype=np.float32))
    return Question(
        id=name,
        mesh=mesh({"a": 2}),
        inputs=(Input("x", (size,), "float32", layout, value),),
        steps=(Step("y", "add", ("x", "x"), to=layout),),
        check=("y",),
        context=context,
    )


def is_right(answer: Answer, size: int = 4) -> bool:
    """Whether this is the right answer to `question`."""
    (y,) = answer.seen
    right = 2 * np.arange(size, dtype=np.float32)
    assert y.shards is not None
    halves = [unpack(shard) for shard in y.shards if shard is not None]
    return isinstance(answer.end, Done) and np.array_equal(np.concatenate(halves), right)


def process_of(answer: Answer) -> int:
    """Id of the process that gave this answer."""
    return int(answer.seen[0].note.split()[0])


def living(group: int) -> list[int]:
    """Processes of a process group that are not zombies."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                found.append(int(stat.parent.name))
    return found


def gone(group: int, seconds: float) -> bool:
    """Whether a process group ends within ``seconds``."""
    stop = time.monotonic() + seconds
    while living(group) and time.monotonic() < stop:
        time.sleep(0.02)
    return not living(group)


def started(worker: WorkerClient) -> int:
    """Id of the worker's first process, once it has said Hello."""
    return worker.greet().pid


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts workers of toy adapters, and sees that none leaves a process behind."""
    with contextlib.ExitStack() as stack:

        def begin(module: str = "faulty", **options: object) -> WorkerClient:
            worker = WorkerClient("toy", TOYS + module, SUBJECTS, **options)  # type: ignore[arg-type]
            stack.callback(worker.close)
            return worker

        yield begin


def test_each_subject_answers_in_order(start: Start) -> None:
    worker = start("plain")
    asked = [question(f"q{i}") for i in range(10)]
    for one in asked:
        worker.ask(one)
    for one in reversed(asked):
        answers = worker.answer(one)
        assert [(a.question, a.subject) for a in answers] == [(one.id, s) for s in SUBJECTS]
        assert all(map(is_right, answers))
    notes = [a.seen[0].note.split()[1] for a in worker.answer(question("last"))]
    assert notes == ["21", "22"]


def test_hello_is_what_the_first_process_said(start: Start) -> None:
    worker = start("plain", devices=5)
    assert worker.hello() is None
    worker.answer(question())
    hello = worker.hello()
    assert hello is not None
    assert (hello.framework, hello.release, hello.facts) == ("toy", "1.0", ("5 devices",))
    assert hello.pid != os.getpid()


def test_a_greeting_is_waited_for(start: Start) -> None:
    worker = start("plain", devices=5)
    assert worker.greet().facts == ("5 devices",)
    assert worker.greet() == worker.hello()
    with pytest.raises(WorkerError, match="wanted a module with"):
        start("none").greet()


def test_an_answer_is_handed_out_once_and_then_forgotten(start: Start) -> None:
    worker = start("plain")
    worker.ask(question())
    worker.ask(question())
    first, again = worker.answer(question()), worker.answer(question())
    assert [a.seen[0].note.split()[1] for a in first + again] == ["1", "2", "3", "4"]


def test_two_questions_of_one_id_are_an_error(start: Start) -> None:
    worker = start("plain")
    worker.ask(question("q", size=4))
    with pytest.raises(ValueError, match="two questions with the id 'q'"):
        worker.ask(question("q", size=6))


@pytest.mark.parametrize(
    ("fault", "how"),
    [
        ("abort", "SIGABRT"),
        ("exit", "exit code 3"),
        ("raise", "exit code 1"),
        ("half a frame", "SIGABRT"),
        ("abort, leaving a child", "SIGABRT"),
    ],
)
def test_a_death_is_the_answer_and_the_next_subject_gets_a_new_process(
    start: Start, fault: str, how: str
) -> None:
    worker = start()
    asked = [question("before"), question("fault", fault), question("after")]
    for one in asked:
        worker.ask(one)
    (before, _), (crashed, next_subject), (after, _) = map(worker.answer, asked)
    assert is_right(before)
    assert isinstance(crashed.end, Crashed)
    assert (crashed.question, crashed.subject, crashed.end.how) == ("fault", "toy/1", how)
    assert is_right(next_subject)
    assert is_right(after)
    assert process_of(before) != process_of(next_subject) == process_of(after)
    assert gone(process_of(before), 1)


def test_a_crash_shows_the_last_that_was_printed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    worker = start()
    aborted, raised = (worker.answer(question(name, name))[0].end for name in ("abort", "raise"))
    assert isinstance(aborted, Crashed)
    assert isinstance(raised, Crashed)
    assert "about to abort" in aborted.output
    assert "faulty.py" in aborted.output
    assert raised.output.endswith("RuntimeError: a defect of the adapter")


@pytest.mark.parametrize(
    ("fault", "stack"),
    [
        ("hang", "in asleep_in_python"),
        ("hang in C", "in asleep_in_c"),
        ("stop", "(no stack: it did not heed SIGUSR1)"),
    ],
)
def test_a_hang_is_the_answer_with_the_stack(
    start: Start, monkeypatch: pytest.MonkeyPatch, fault: str, stack: str
) -> None:
    monkeypatch.setattr(worker_client, "MARGIN_SECONDS", 0.4)
    worker = start(seconds=0.3)
    group = started(worker)
    worker.ask(question("hang", fault))
    worker.ask(question("after"))
    hung, next_subject = worker.answer(question("hang", fault))
    assert isinstance(hung.end, Hung)
    assert hung.end.why == "no answer in 0.3 s"
    assert stack in hung.end.stacks[0]
    assert is_right(next_subject)
    assert is_right(worker.answer(question("after"))[0])
    assert gone(group, 1)


def test_the_deadline_is_per_answer(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_client, "MARGIN_SECONDS", 0.3)
    worker = start(seconds=0.4)
    asked = [question(f"q{i}", "take 0.3 s") for i in range(3)]
    for one in asked:
        worker.ask(one)
    assert all(is_right(answer) for one in asked for answer in worker.answer(one))
    time.sleep(0.8)
    assert is_right(worker.answer(question("after a pause"))[0])


def test_five_megabytes_of_chatter_damage_nothing(start: Start) -> None:
    worker = start()
    for one in (question("loud", "chatter"), question("after")):
        assert is_right(worker.answer(one)[0])
    assert process_of(worker.answer(question("last"))[0]) == started(worker)


def test_chatter_is_not_kept_without_end(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.worker_process._KEPT", 1_000_000)
    worker = start()
    for name in ("one", "two"):
        worker.answer(question(name, "chatter"))
    worker.answer(question("quiet"))
    process = worker._engine._process
    assert process is not None
    assert os.fstat(process._printed.fileno()).st_size < 1_000_000
    end = worker.answer(question("abort", "abort"))[0].end
    assert isinstance(end, Crashed)
    assert "about to abort" in end.output


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("text in the pipe", "protocol: no frame: b'warning: this"),
        ("json in the pipe", "protocol: no frame: Invalid value 'No'"),
        ("hello again", "protocol: a second Hello"),
        ("other question", "an answer of toy/1 to another where toy/1 to fault was due"),
        ("other subject", "an answer of toy/9 to fault where toy/1 to fault was due"),
        ("close the pipe", "closed its pipe"),
    ],
)
def test_a_broken_protocol_is_a_crash_and_the_process_is_replaced(
    start: Start, fault: str, said: str
) -> None:
    worker = start()
    group = started(worker)
    asked = [question("fault", fault), question("after")]
    for one in asked:
        worker.ask(one)
    (crashed, next_subject), (after, _) = map(worker.answer, asked)
    assert isinstance(crashed.end, Crashed)
    assert said in crashed.end.how
    assert is_right(next_subject)
    assert is_right(after)
    assert process_of(after) != group
    assert gone(group, 1)


def test_an_answer_too_many_is_no_answer_to_the_next_question(start: Start) -> None:
    worker = start()
    asked = [question("fault", "one too many"), question("after")]
    for one in asked:
        worker.ask(one)
    (first, crashed), (after, _) = map(worker.answer, asked)
    assert is_right(first)
    assert isinstance(crashed.end, Crashed)
    assert "an answer of toy/1 to fault where toy/2 to fault was due" in crashed.end.how
    assert is_right(after)


@pytest.mark.parametrize(
    ("fault", "found", "printed"),
    [
        ("version", "found protocol 2, wanted protocol 1", ""),
        ("framework", "found an adapter of other, wanted one of toy", ""),
        ("text", "found no frame: b'Loading the framework", ""),
        ("json", "found no frame: b'{}', wanted a Hello of protocol 1", ""),
        ("abort", "found SIGABRT before its Hello", "the driver is too old"),
        ("exit", "found exit code 0 before its Hello (it printed nothing)", ""),
        ("silence", "found nothing said in 2 s, wanted a Hello", 'File "'),
        ("no connect", "bad_start without connect, wanted a function connect(devices)", ""),
        ("no adapter", "without hello, observe, close, wanted adapters.protocol.Adapter", ""),
        ("no framework", "pip install toy_framework) or --toy-python pointing elsewhere", ""),
    ],
)
def test_what_cannot_start_is_said_once_and_plainly(
    start: Start, monkeypatch: pytest.MonkeyPatch, fault: str, found: str, printed: str
) -> None:
    monkeypatch.setenv("TOY_START", fault)
    monkeypatch.setattr(worker_client, "STARTUP_SECONDS", 2.0 if fault == "silence" else 60.0)
    worker = start("bad_start")
    worker.ask(question("q1"))
    for name in ("q1", "q2"):
        with pytest.raises(WorkerError) as error:
            worker.answer(question(name))
        line, _, rest = str(error.value).partition("\n")
        assert line.startswith(f"toy worker ({sys.executable}): found ")
        assert found in line
        assert printed in rest
    assert worker._engine._process is None


def test_an_interpreter_without_the_worker_s_needs_is_named(tmp_path: Path, start: Start) -> None:
    venv.create(tmp_path, with_pip=False, symlinks=True)
    python = str(tmp_path / "bin" / "python")
    with pytest.raises(WorkerError) as error:
        start("plain", python=python).answer(question())
    line = str(error.value).partition("\n")[0]
    assert line.startswith(f"toy worker ({python}): found no module '")
    assert line.endswith(f"{python} -m pip install msgspec numpy ml_dtypes packaging")


@pytest.mark.parametrize(
    ("python", "found"),
    [("/nowhere/python", "No such file or directory"), (str(ROOT), "Permission denied")],
)
def test_no_interpreter_is_an_error(start: Start, python: str, found: str) -> None:
    with pytest.raises(WorkerError, match=f"found {found}, wanted a Python interpreter"):
        start("plain", python=python).answer(question())


def test_no_such_adapter_is_an_error(start: Start) -> None:
    with pytest.raises(WorkerError, match=r"no module 'tests\.toys\.none', wanted a module with"):
        start("none").answer(question())


def test_the_folder_of_the_run_does_not_shadow_a_worker_s_imports(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("numpy.py", "adapters.py", "struct.py"):
        (tmp_path / name).write_text("raise AssertionError")
    monkeypatch.chdir(tmp_path)
    assert is_right(start("plain").answer(question())[0])


def test_a_process_killed_in_mid_question_is_replaced(start: Start) -> None:
    worker = start()
    group = started(worker)
    worker.ask(question("slow", "hang"))
    worker.ask(question("after"))
    time.sleep(0.2)
    os.kill(group, signal.SIGKILL)
    killed, next_subject = worker.answer(question("slow", "hang"))
    assert killed.end == Crashed("SIGKILL")
    assert is_right(next_subject)
    assert is_right(worker.answer(question("after"))[0])


@pytest.mark.parametrize("children", [None, "fork"])
def test_a_process_killed_while_idle_is_nobody_s_fault(start: Start, children: str | None) -> None:
    worker = start()
    first = worker.answer(question("first", children))[0]
    os.kill(process_of(first), signal.SIGKILL)
    time.sleep(0.1)
    assert is_right(worker.answer(question("second"))[0])
    assert started(worker) == process_of(first)
    assert gone(process_of(first), 1)


def test_deaths_in_a_row_end_the_worker(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_client, "MAX_DEATHS", 3)
    monkeypatch.setattr("tests.test_worker_client.SUBJECTS", ("toy/1",))
    worker = start()
    fine = ["exit", "abort", None, "abort", "exit"]
    for number, fault in enumerate(fine):
        (answer,) = worker.answer(question(f"q{number}", fault))
        assert isinstance(answer.end, Crashed if fault else Done)
    for name in ("last", "never"):
        with pytest.raises(WorkerError, match="found 3 deaths in a row, the last: crashed: exit"):
            worker.answer(question(name, "exit"))


def test_two_workers_do_not_meet(start: Start) -> None:
    workers = [start(), start(), start()]
    asked = [question(f"q{i}", "exit" if i == 3 else None) for i in range(8)]
    for one in asked:
        for worker in workers:
            worker.ask(one)
    seen = [[worker.answer(one) for one in asked] for worker in workers]
    assert [[is_right(a) for a, _ in row if a.seen] for row in seen] == [[True] * 7] * 3
    assert len({process_of(answer) for row in seen for _, answer in row}) == 6


def test_full_pipes_in_both_directions_are_no_deadlock(start: Start) -> None:
    worker = start("plain")
    size = 250_000
    asked = [question(f"q{i}", size=size) for i in range(30)]
    for one in asked:
        worker.ask(one)
    assert all(is_right(answer, size) for one in asked for answer in worker.answer(one))


def test_a_death_with_a_question_half_sent_is_only_a_death(start: Start) -> None:
    worker = start()
    faults = [question(f"fault{i}", "exit") for i in range(4)]
    large = [question(f"large{i}", size=100_000) for i in range(4)]
    for fault, one in zip(faults, large, strict=True):
        worker.ask(fault)
        worker.ask(one)
    for fault, one in zip(faults, large, strict=True):
        assert worker.answer(fault)[0].end == Crashed("exit code 3")
        assert all(is_right(answer, 100_000) for answer in worker.answer(one))


@pytest.mark.parametrize(("ahead", "waits"), [(1, False), (2, True)])
def test_no_more_than_ahead_questions_are_in_the_process(
    start: Start, ahead: int, waits: bool
) -> None:
    worker = start(ahead=ahead)
    started(worker)
    worker.ask(question("first", "what waits"))
    time.sleep(0.1)
    for name in ("second", "third"):
        worker.ask(question(name))
    (waiting,) = worker.answer(question("first", "what waits"))[0].complaints
    assert (int(waiting) > 0) == waits


def test_asking_never_waits(start: Start) -> None:
    worker = start()
    worker.ask(question("slow", "take 0.5 s"))
    asked = [question(f"q{i}", size=10_000) for i in range(100)]
    begin = time.monotonic()
    for one in asked:
        worker.ask(one)
    assert time.monotonic() - begin < 0.3


@pytest.mark.parametrize("busy", [None, "hang", "fork and hang", "stop", "chatter"])
def test_closing_is_immediate_and_leaves_no_process(start: Start, busy: str | None) -> None:
    worker = start()
    group = started(worker)
    for number in range(200):
        worker.ask(question(f"q{number}", busy))
    time.sleep(0.1)
    assert living(group)
    begin = time.monotonic()
    worker.close()
    worker.close()
    assert time.monotonic() - begin < 1
    assert gone(group, 0.5)
    with pytest.raises(RuntimeError, match="the worker is closed"):
        worker.ask(question())


def test_closing_at_once_leaves_nothing_open() -> None:
    before = set(os.listdir("/proc/self/fd"))
    for pause in (0, 0, 0.02, 0.1):
        worker = WorkerClient("toy", TOYS + "plain", SUBJECTS)
        time.sleep(pause)
        worker.close()
    assert set(os.listdir("/proc/self/fd")) == before
    assert not [thread for thread in threading.enumerate() if thread.name == "toy"]


def test_ctrl_c_while_waiting_loses_nothing(start: Start) -> None:
    """The answer comes later all the same, from the same process."""
    worker = start()
    group = started(worker)
    slow = question("slow", "take 0.6 s")
    # A process that a shell has started in the background ignores SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            worker.answer(slow)
    finally:
        signal.signal(signal.SIGINT, before)
    timer.join()
    assert is_right(worker.answer(slow)[0])
    assert process_of(worker.answer(question("after"))[0]) == group
