"""What becomes of a run when a process dies, hangs, talks too much or is interrupted?

With the real frameworks. Each time the run ends, the case at fault says what happened, every
other case has its verdict, and no process is left behind.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.runs import ROOT, Ran, pytest_command, run

CASES = str(Path(__file__).with_name("data") / "faults.toml")


def processes(mark: str) -> dict[int, str]:
    """The processes that have this mark in their environment, with their command lines."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if f"SHARD_PARITY_MARK={mark}".encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue  # it ended, or is not ours
    return found


@pytest.fixture
def mark() -> Iterator[str]:
    """A mark for the processes of a run; none may be left when the test ends."""
    mark = uuid.uuid4().hex
    yield mark
    left = {}
    for _ in range(50):
        left = processes(mark)
        if not left:
            break
        time.sleep(0.1)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == {}


def others_are_right(ran: Ran, fault: str = "empty-shard") -> bool:
    """Whether every case but the one at fault came out without a divergence."""
    return {one[0] for one in ran.diverging()} <= {fault} and {v["case"] for v in ran.verdicts} == {
        "before",
        "empty-shard",
        "after",
    }


def meanwhile(
    mark: str, when: Callable[[dict[int, str]], list[int]], sign: int
) -> threading.Thread:
    """Send a signal to the first process that ``when`` picks out of those of a run."""

    def watch() -> None:
        for _ in range(600):
            if picked := when(processes(mark)):
                os.kill(picked[0], sign)
                return
            time.sleep(0.05)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_a_rank_that_raises_while_others_wait_ends_its_case_at_once(
    tmp_path: Path, mark: str
) -> None:
    """Not at the deadline: with the exception, each rank's stack, and the next case answered."""
    started = time.monotonic()
    ran = run(tmp_path, f"--cases={CASES}", "--jax=off", SHARD_PARITY_MARK=mark)
    assert time.monotonic() - started < 25  # the deadline alone is 30
    assert ran.code == 1
    assert others_are_right(ran)
    hung = [v for v in ran.verdicts if v["got"].startswith("hung")]
    assert hung
    assert "rank 3" in ran.out
    # Ranks with one stack are told together; where a rank that waits stands is in part chance.
    heads = re.findall(r"^ +ranks? ([0-9, ]+):$", ran.out, re.MULTILINE)
    assert sorted(", ".join(heads).split(", ")) == ["0", "1", "2"]
    assert ran.out.count("in full_tensor") == len(heads)
    assert "rank 3 had ended" in ran.out


def test_a_killed_rank_is_the_answer_of_its_case(tmp_path: Path, mark: str) -> None:
    """SIGKILL while ranks wait for one another; the case after it is answered by a new world.

    The slow case is the first, and takes each rank several seconds of work.
    """
    cases = tmp_path / "slow.toml"
    cases.write_text(_slow() + Path(CASES).read_text())

    def a_rank(found: dict[int, str]) -> list[int]:
        workers = [pid for pid, line in found.items() if "torch_dtensor" in line]
        ranks = [pid for pid in workers if _parent(pid) in workers]
        # By processor time, not by the clock: making the world takes a rank a fifth of this.
        return [pid for pid in ranks if _worked(pid) > 1][:1]

    thread = meanwhile(mark, a_rank, signal.SIGKILL)
    ran = run(
        tmp_path, f"--cases={cases}", "--jax=off", "-k", "slow or after", SHARD_PARITY_MARK=mark
    )
    thread.join()
    assert {one[0] for one in ran.diverging()} == {"slow"}, ran.out
    assert "SIGKILL" in ran.out
    assert {v["case"] for v in ran.verdicts} == {"after", "slow"}


def _slow() -> str:
    """A case that keeps four ranks exchanging shards for a few seconds."""
    steps = ["y0 = redistribute(x, x=S(1))"]
    steps += [f"y{i} = redistribute(y{i - 1}, x=S({(i + 1) % 2}))" for i in range(1, 200)]
    return f"""
[[case]]
id = "slow"
mesh = {{ x = 4 }}
inputs.x = {{ shape = [2048, 1024], placements = {{ x = "S(0)" }} }}
program = {steps!r}
check = ["y199"]
"""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _worked(pid: int) -> float:
    """The processor time of a process in seconds."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def _age(pid: int) -> float:
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0.0
    up = float(Path("/proc/uptime").read_text().split()[0])
    return up - ticks / os.sysconf("SC_CLK_TCK")


def test_an_aborted_jax_child_is_the_answer_of_one_case(tmp_path: Path, mark: str) -> None:
    """Another child of the worker answers what follows."""

    def at_work(found: dict[int, str]) -> list[int]:
        workers = [pid for pid, line in found.items() if "jax_xla" in line]
        # A child compiles from its first question to its last.
        return [pid for pid in workers if _parent(pid) in workers and _age(pid) > 1.0][:1]

    thread = meanwhile(mark, at_work, signal.SIGABRT)
    ran = run(
        tmp_path, "suites/test_redistribute.py", "-k", "x4 and not uneven", "--torch=off",
        SHARD_PARITY_MARK=mark,
    )  # fmt: skip
    thread.join()
    crashed = [v for v in ran.verdicts if v["got"].startswith("crashed: SIGABRT")]
    assert len({v["case"] for v in crashed}) == 1
    assert {one[0] for one in ran.diverging()} == {v["case"] for v in crashed}


def test_chatter_of_real_frameworks_damages_nothing(tmp_path: Path, mark: str) -> None:
    """Megabytes of debugging output from torch and JAX on their standard streams."""
    ran = run(
        tmp_path, "suites/test_lesson.py", SHARD_PARITY_MARK=mark,
        TORCH_DISTRIBUTED_DEBUG="DETAIL", TORCH_CPP_LOG_LEVEL="INFO", JAX_LOG_COMPILES="1",
        JAX_LOGGING_LEVEL="DEBUG", TF_CPP_MIN_LOG_LEVEL="0",
    )  # fmt: skip
    assert ran.code == 0, ran.out


def test_two_runs_at_once_do_not_meet(tmp_path: Path, mark: str) -> None:
    """Each has processes, pipes and stores of its own."""
    runs: dict[str, Ran] = {}

    def one(name: str) -> None:
        folder = tmp_path / name
        folder.mkdir()
        runs[name] = run(folder, "suites/test_lesson.py", SHARD_PARITY_MARK=mark)

    threads = [threading.Thread(target=one, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert runs["one"].code == runs["two"].code == 0
    assert runs["one"].verdicts == runs["two"].verdicts


def test_two_processes_give_the_verdicts_of_one(tmp_path: Path, mark: str) -> None:
    """``-n 2`` changes who asks, not what is answered; a hang in one leaves the other alone."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    args = (f"--cases={CASES}", "--jax=off")
    one = run(folders[0], *args, SHARD_PARITY_MARK=mark)
    two = run(folders[1], *args, "-n", "2", SHARD_PARITY_MARK=mark)
    assert others_are_right(two)
    keys = ("case", "step", "aspect", "subject", "verdict")
    assert [[v[k] for k in keys] for v in one.verdicts] == [
        [v[k] for k in keys] for v in two.verdicts
    ]


def test_an_interrupted_run_ends_and_leaves_nothing(tmp_path: Path, mark: str) -> None:
    """Ctrl-C while frameworks work: pytest's own exit code, and the verdicts so far are written."""
    path = tmp_path / "verdicts.jsonl"
    command = pytest_command(f"--verdicts={path}", "suites/test_redistribute.py", "-v")
    with subprocess.Popen(
        # A process that a shell has started in the background ignores SIGINT, and so do its own.
        ["env", "--default-signal=INT", *command], cwd=ROOT,
        env={**os.environ, "SHARD_PARITY_MARK": mark}, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            if "PASSED" in line:
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert len(path.read_text().splitlines()) > 1
