"""How does the torch adapter's answer end? Refusals, deaths, silence, and worlds that misbehave."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from adapters.answer import (
    Crashed,
    Hung,
    Refused,
    Unsupported,
)
from adapters.torch_dtensor.task_lines import make_task
from cases.model import (
    Foreign,
    Input,
    Question,
    Step,
    mesh,
)
from tests.torch_worker import (
    LINE,
    LONG,
    LOPSIDED,
    ROOT,
    SIMPLE,
    SQUARE,
    Live,
    addends,
    given,
    question,
    right,
    to,
    values,
)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    worker = Live(tmp_path_factory.mktemp("torch") / "printed")
    yield worker
    worker.close()


# How it ends.


def test_what_all_ranks_refuse_is_refused_and_the_world_goes_on(live: Live) -> None:
    """The type, first line and step of the exception; what came before it is still seen."""
    asked = question(
        "refused", LINE, [given("x", [4], "S(0)")], [to("y", "x", "R"), to("z", "y", "P(sum)")]
    )
    live.ask(SIMPLE)
    before = live.ranks()
    answer = live.ask(asked)
    assert isinstance(answer.end, Refused)
    assert (answer.end.error, answer.end.step) == ("RuntimeError", "z")
    assert answer.end.line.startswith("Can not redistribute from R to P(sum)")
    assert [one.name for one in answer.seen] == ["x", "y"]
    right(answer["y"], LINE, "R", [4], "float32")
    right(live.ask(SIMPLE)["y"], LINE, "R", [8], "float32")
    assert live.ranks() == before


def test_a_refused_input_ends_the_answer(live: Live) -> None:
    """Nothing is put in its place."""
    arrays = [[1, 2], [3, 4], [5, 6], [7, 9]]
    inputs = [addends("x", "P(sum) P(max)", arrays, SQUARE)]
    answer = live.ask(question("mixed", SQUARE, inputs, [to("y", "x", "R R", SQUARE)]))
    assert isinstance(answer.end, Refused)
    assert (answer.end.error, answer.end.step) == ("ValueError", "x")
    assert answer.seen == ()


def test_what_the_adapter_has_no_line_for_is_unsupported(live: Live) -> None:
    """An op of a later vocabulary, more devices than there are, and dims that torch.prod lacks."""
    x = given("x", [4, 4], "S(0)")
    ends = [
        live.ask(question("op", LINE, [x], [Step("y", "frobnicate", ("x",))])).end,
        live.ask(question("devices", mesh({"x": 9}), [])).end,
        live.ask(question("dims", LINE, [x], [Step("y", "prod", ("x",), {"axis": [0, 1]})])).end,
        live.ask(question("region", LINE, [x], context="tea_break")).end,
    ]
    assert all(isinstance(end, Unsupported) for end in ends)
    assert [end.step for end in ends if isinstance(end, Unsupported)] == ["y", "", "y", ""]


def test_a_rank_that_raises_while_others_wait_is_told_long_before_the_deadline(live: Live) -> None:
    """What it raised and where, a stack for each of the others, and then a new world."""
    live.ask(SIMPLE)
    before = set(live.ranks())
    start = time.monotonic()
    answer = live.ask(LOPSIDED, 60)
    assert time.monotonic() - start < 30
    assert isinstance(answer.end, Hung)
    # At the deadline there would be no answer in time.
    assert answer.end.why == "rank 3 raised, and others waited for it in a collective"
    assert answer.end.step == "y"
    assert answer.end.raised.startswith("rank 3: RuntimeError: max(): Expected reduction dim")
    assert answer.end.stacks[3] == ""
    # They wait at one place; what this suite does there is not told.
    (stack,) = {*answer.end.stacks[:3]}
    assert "full_tensor" in stack
    # An environment may lie in the checkout, so its folders are named one by one.
    assert not [
        folder for folder in ("adapters", "cases", "suites") if f"{ROOT / folder}/" in stack
    ]
    right(live.ask(SIMPLE)["y"], LINE, "R", [8], "float32")
    assert len(before - set(live.ranks())) == 4


@pytest.mark.parametrize(
    ("sent", "told"),
    [("SIGKILL", "SIGKILL"), ("SIGSEGV", "SIGABRT or SIGSEGV"), ("SIGABRT", "SIGABRT or SIGSEGV")],
)
def test_a_rank_killed_in_the_middle_of_a_question_is_told(
    live: Live, sent: str, told: str
) -> None:
    """Rank and signal, of those by which memory that was overwritten ends either; a new world."""
    fresh = msgspec.structs.replace(LONG, fresh=True)
    before = set(live.ranks())
    live.send(fresh)
    ranks = _new(live, before, 4)
    time.sleep(0.4)
    os.kill(ranks[2], signal.Signals[sent])
    answer = live.hear()
    assert isinstance(answer.end, Crashed)
    assert (answer.end.how, answer.end.rank) == (f"a rank died: {told}", 2)
    assert answer.end.output.startswith(f"rank 2: {sent}\n")
    assert answer.seen == ()
    assert set(live.ranks()) == before
    right(live.ask(SIMPLE)["y"], LINE, "R", [8], "float32")


def test_a_deadline_shows_where_each_rank_is(live: Live) -> None:
    """A rank that is stopped keeps the others waiting; their stacks say in what."""
    before = set(live.ranks())
    live.send(msgspec.structs.replace(LONG, fresh=True, check=("x4000",)), 3)
    ranks = _new(live, before, 4)
    time.sleep(0.3)
    os.kill(ranks[1], signal.SIGSTOP)
    start = time.monotonic()
    answer = live.hear()
    assert time.monotonic() - start < 4
    assert isinstance(answer.end, Hung)
    assert answer.end.why == "no answer in time"
    assert answer.end.raised == ""
    assert len(answer.end.stacks) == 4
    assert "no stack" in answer.end.stacks[1]
    assert "File" in answer.end.stacks[0]
    assert set(live.ranks()) == before
    right(live.ask(SIMPLE)["y"], LINE, "R", [8], "float32")


def _new(live: Live, before: set[int], count: int) -> list[int]:
    """The ranks of a world that is being made, once all are there."""
    for _ in range(500):
        found = [pid for pid in live.ranks() if pid not in before]
        if len(found) == count:
            return found
        time.sleep(0.01)
    raise AssertionError(f"no {count} new ranks")


def _ended(pid: int) -> bool:
    # A zombie keeps its descriptors open until the last of its threads has gone.
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "Z" and len(list(Path(f"/proc/{pid}/task").iterdir())) == 1


def test_a_world_that_died_between_questions_is_replaced(live: Live) -> None:
    """The next question has its right answer, not the death."""
    on = mesh({"x": 3})
    asked = question("three", on, [given("x", [6], "S(0)", on)])
    before = set(live.ranks())
    live.ask(asked)
    ranks = [pid for pid in live.ranks() if pid not in before]
    assert len(ranks) == 3
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)
    while not all(_ended(pid) for pid in ranks):
        time.sleep(0.01)
    right(live.ask(asked)["x"], on, "S(0)", [6], "float32")


# Worlds that are made to misbehave.

CHATTY = """
import gc
import socket

from adapters.torch_dtensor import adapter, op_table, recorder, world

op_table.OP_TABLE["exp"] = "torch.no_such_thing({x})"
op_table.OP_TABLE["abs"] = "torch.linalg.vector_norm({x})"
world.FD_LIMIT = 40
recorder.KINDS.pop("c10d::broadcast_")
note = recorder.Recorder._note


def deaf(self, name, args):
    gc.collect()
    if name != "_c10d_functional::all_reduce":
        note(self, name, args)


recorder.Recorder._note = deaf


def connect(devices):
    real = adapter.connect(devices)
    # Garbage that owns descriptors, and that the ranks inherit.
    loop = [socket.socket() for _ in range(40)]
    loop.append(loop)
    del loop
    serve = real._serve

    def noisy(*args):
        print('{"type": "Answer"}' * 10_000, flush=True)
        serve(*args)

    real._serve = noisy
    return real
"""


@pytest.fixture(scope="module")
def chatty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("chatty")
    (folder / "chatty.py").write_text(CHATTY)
    worker = Live(folder / "printed", "chatty")
    yield worker
    worker.close()


def test_what_ranks_print_damages_nothing(chatty: Live) -> None:
    """Frames on stdout stay there, and answers are whole."""
    right(chatty.ask(SIMPLE)["y"], LINE, "R", [8], "float32")
    assert '{"type": "Answer"}{"type"' in chatty.printed.read_text()


def test_garbage_of_the_worker_closes_nothing_of_a_rank(chatty: Live) -> None:
    """Sockets that it left to the collector are collected in ranks too, while gloo is at work."""
    asked = msgspec.structs.replace(SIMPLE, fresh=True)
    for _ in range(3):
        right(chatty.ask(asked)["y"], LINE, "R", [8], "float32")


def test_a_name_that_torch_lacks_is_unsupported(chatty: Live) -> None:
    """A missing function is not the framework's refusal."""
    answer = chatty.ask(
        question("gone", LINE, [given("x", [4], "S(0)")], [Step("y", "exp", ("x",))])
    )
    assert isinstance(answer.end, Unsupported)
    assert answer.end.step == "y"
    assert "no_such_thing" in answer.end.why
    assert [one.name for one in answer.seen] == ["x"]


def test_a_layout_that_only_torch_has_is_told_in_its_words(chatty: Live) -> None:
    """The partial of a norm is no reduction of the model; it has shards and a full tensor."""
    asked = question("norm", LINE, [given("x", [4], "S(0)")], [Step("y", "abs", ("x",))])
    seen = chatty.ask(asked)["y"]
    assert isinstance(seen.layout, Foreign)
    assert "Norm" in seen.layout.text
    assert values(seen.shards) == [0, 1, 2, 3]
    assert values(seen.full) == [pytest.approx(14**0.5)]


def checked(inputs: Sequence[Input]) -> Question:
    """A question whose collectives CommDebugMode counts too."""
    asked = (question(f"checked-{i}", LINE, inputs, [to("y", "x", "R")]) for i in range(100))
    return next(one for one in asked if make_task(one).checked)


def test_a_recorder_that_misses_a_collective_is_noticed(chatty: Live) -> None:
    """CommDebugMode counts it."""
    answer = chatty.ask(checked([addends("x", "P(sum)", [[1.0]] * 4)]))
    assert answer.complaints == ("rank 0: the recorder counts 0 all-reduce, CommDebugMode 2",)


def test_a_collective_without_a_kind_is_noticed(chatty: Live) -> None:
    """By every rank, and by CommDebugMode."""
    answer = chatty.ask(checked([given("x", [4], "R")]))
    assert answer.complaints == (
        "rank 0: an op without a kind: c10d::broadcast_",
        "rank 0: CommDebugMode counts c10d.broadcast_, which has no kind",
        "rank 1: an op without a kind: c10d::broadcast_",
        "rank 2: an op without a kind: c10d::broadcast_",
        "rank 3: an op without a kind: c10d::broadcast_",
    )


def test_a_world_with_too_many_descriptors_is_renewed(chatty: Live) -> None:
    """Each mesh keeps some open; past the limit the next question gets a new world."""
    chatty.ask(SIMPLE)
    before = chatty.ranks()
    for order in ((0, 1, 2, 3), (1, 0, 2, 3), (2, 1, 0, 3), (3, 1, 2, 0), (0, 2, 1, 3)):
        on = mesh({"a": 2, "b": 2}, order)
        answer = chatty.ask(question("many", on, [given("x", [4], "R R", on)]))
        right(answer["x"], on, "R R", [4], "float32")
    chatty.ask(SIMPLE)
    assert not set(before) & set(chatty.ranks())


def test_ranks_die_with_their_worker(chatty: Live) -> None:
    """Even when it is killed, and in the middle of a question."""
    chatty.send(LONG)
    time.sleep(0.3)
    ranks = chatty.ranks()
    assert len(ranks) == 4
    chatty.process.kill()
    chatty.process.wait()
    assert _gone(ranks)


def test_a_closed_worker_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process, and no file."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    worker = Live(tmp_path / "printed")
    worker.ask(SIMPLE)
    ranks = worker.ranks()
    assert len(ranks) == 4
    worker.close()
    assert worker.process.returncode == 0
    assert _gone(ranks)
    # Torch makes a folder for compiled code when it is imported.
    made = {path.name for path in tmp_path.iterdir()} - {"printed"}
    assert not [name for name in made if not name.startswith("torchinductor")]


def _gone(pids: list[int]) -> bool:
    for _ in range(200):
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.01)
    return False
