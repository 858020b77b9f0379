"""Do ranks that wait for ever, and caches that outlive a case, do harm? Not to the next case."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from adapters.answer import Done, Hung, Refused
from adapters.torch_dtensor import world
from adapters.torch_dtensor.world import MAX_TICKS, SAMPLE_INTERVAL, SILENCE, _Activity, _are_asleep
from cases.model import Step
from tests.torch_worker import LINE, SIMPLE, Live, given, layout, question


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    worker = Live(tmp_path_factory.mktemp("torch") / "printed")
    yield worker
    worker.close()


def looks(used: list[int], running: list[bool]) -> list[_Activity]:
    """One rank, looked at every `SAMPLE_INTERVAL`."""
    return [
        _Activity(at * SAMPLE_INTERVAL, (ticks,), ran)
        for at, (ticks, ran) in enumerate(zip(used, running))
    ]


LONG = int(SILENCE / SAMPLE_INTERVAL) + 2
ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("used", "running", "asleep"),
    [
        ([5] * LONG, [False] * LONG, True),
        ([5] * (LONG - 3), [False] * (LONG - 3), False),  # not for long enough yet
        ([*range(LONG)], [False] * LONG, False),  # it works
        ([5] * LONG, [True] * LONG, False),  # it wants a processor and gets none
        ([0] * (LONG - 1) + [MAX_TICKS], [False] * (LONG - 1) + [True], True),  # a thread woke up
        ([*range(20), *[20] * LONG], [False] * (20 + LONG), True),  # it worked before
        ([], [], False),
    ],
)  # fmt: skip
def test_a_rank_sleeps_that_neither_has_nor_wants_a_processor(
    used: list[int], running: list[bool], asleep: bool
) -> None:
    """For as long as `SILENCE`, but for what a thread takes that wakes up now and then."""
    assert _are_asleep(looks(used, running), SILENCE) is asleep


def test_ranks_that_wait_for_one_another_are_noticed_before_the_deadline(live: Live) -> None:
    """Uneven shards mapped over: ranks disagree on what to gather, and none raises."""
    step = Step("y", "map_shards", ("x",), {"scale": 2}, layout("S(0)", LINE, 2))
    asked = question("waits", LINE, [given("x", [6, 2], "S(0)")], [step], check=("y",))
    began = time.monotonic()
    answer = live.ask(asked, seconds=60)
    assert isinstance(answer.end, Hung)
    assert answer.end.why == "every rank waits, and none works"
    assert answer.end.step == "y/full"
    assert time.monotonic() - began < 45
    assert live.ask(SIMPLE).end == Done()


# Rank 0 raises at once. Rank 1 does so after three times the grace, at work or asleep until then.
APART = """
import sys, time
from adapters.torch_dtensor import rank_messages
from adapters.torch_dtensor.world import SILENCE_AFTER_ERROR, World, WorldFailure

def serve(number, size, link, store, stack, progress):
    done = time.monotonic() + 3 * SILENCE_AFTER_ERROR * number
    while time.monotonic() < done:
        if sys.argv[1] == "asleep":
            time.sleep(0.1)
    link.send(rank_messages.encode_frame(rank_messages.Raised("ValueError", "no", "y", False, ())))
    time.sleep(60)

world = World(2, serve)
try:
    print(*sorted(world.hear(range(2), time.monotonic() + 20)))
except WorldFailure as fault:
    print(fault.end.why)
finally:
    world.close()
"""


@pytest.mark.parametrize(
    ("until_then", "told"),
    [("asleep", "rank 0 raised, and others waited for it in a collective"), ("at work", "0 1")],
)
def test_only_ranks_that_sleep_wait_for_one_that_raised(until_then: str, told: str) -> None:
    """A rank that is still at work may raise the same."""
    command = [sys.executable, "-c", APART, until_then]
    # A process is forked before it has threads, which NumPy's BLAS would start.
    alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    ran = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == told


def test_one_case_s_layouts_do_not_reach_the_next(live: Live) -> None:
    """DTensor's cache of layouts has no k in its key: each topk is asked of ranks without it."""
    asked = [
        question(f"k{k}", LINE, [given("x", [2, 16], "S(1)")],
                 [Step("y", "topk_values", ("x",), {"k": k})])
        for k in (1, 4, 1)
    ]  # fmt: skip
    one, four, again = (live.ask(one)["y"] for one in asked)
    assert [seen.shape for seen in (one, four, again)] == [(2, 1), (2, 4), (2, 1)]
    assert [seen.shards and seen.shards[0].shape for seen in (one, four)] == [(2, 1), (2, 4)]  # type: ignore[union-attr]


def test_ranks_that_end_apart_are_told_of_and_are_no_fault_of_a_counter(live: Live) -> None:
    """One rank has an element and goes on, the others have none and raise."""
    asked = question("apart", LINE, [given("x", [1], "S(0)")], [Step("y", "item", ("x",))],
                     check=("y",))  # fmt: skip
    answer = live.ask(asked)
    assert isinstance(answer.end, Refused)
    assert answer.apart == ("rank 0 finished",)
    assert answer.complaints == ()
    assert live.ask(msgspec.structs.replace(SIMPLE, id="next")).end == Done()


def test_a_look_at_ranks_that_are_gone_is_none() -> None:
    """Their links tell of that."""
    gone = world.World.__new__(world.World)
    gone._pids = [2**22 + 1]
    assert gone._look([0]) == []
