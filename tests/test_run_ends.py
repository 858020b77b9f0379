"""Does a run that ends badly, or stops for a while, leave a worker behind or an answer out?"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import pytest

from adapters.worker_process import ROOT
from tests.test_worker_client import gone, living

RUN = """
    import sys, time
    from adapters import worker_client
    from adapters.worker_client import WorkerClient
    from tests.test_worker_client import question, started
    worker_client.MARGIN_SECONDS = 0.2
    worker = WorkerClient("toy", "tests.toys.faulty", ("toy/1", "toy/2"), seconds=0.8)
    pid = started(worker)
    asked = [question(f"q{i}", sys.argv[1]) for i in range(int(sys.argv[2]))]
    for one in asked:
        worker.ask(one)
    time.sleep(0.2)
    print(pid, flush=True)
    ends = {type(answer.end).__name__ for one in asked for answer in worker.answer(one)}
    print(*ends)
"""


@contextlib.contextmanager
def a_run(context: str, count: int = 1) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A run of its own that waits for faulty answers, and the group of its worker."""
    command = [sys.executable, "-c", textwrap.dedent(RUN), context, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as run:
        assert run.stdout is not None
        try:
            yield run, int(run.stdout.readline())
        finally:
            run.kill()


@pytest.mark.parametrize("busy", ["hang in C", "fork and hang"])
def test_a_run_that_is_killed_takes_its_workers_with_it(busy: str) -> None:
    with a_run(busy) as (run, group):
        assert living(group)
        run.kill()
        run.wait()
        assert gone(group, 1)


def test_a_run_that_ends_without_closing_leaves_no_process() -> None:
    with a_run("take 0.3 s") as (run, group):
        assert run.communicate(timeout=10)[0] == "Done\n"
        assert run.returncode == 0
        assert gone(group, 1)


def test_an_answer_that_came_while_the_run_was_stopped_is_not_late() -> None:
    with a_run("take 0.2 s", 9) as (run, _):
        run.send_signal(signal.SIGSTOP)
        time.sleep(1.2)
        run.send_signal(signal.SIGCONT)
        assert run.communicate(timeout=10)[0] == "Done\n"
