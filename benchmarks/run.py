"""How much slower is the suite than the frameworks alone? Ratios, measured side by side in one run.

``python -m benchmarks.run [PART ...]`` prints the rows of each part. A run of all parts writes the
table into the README beside this file. The two sides of a ratio take turns, batch by batch, so that
a busy machine affects both. Imports no framework.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec

from adapters import record
from adapters.answer import Done
from adapters.registry import FRAMEWORKS
from adapters.worker_client import STARTUP_SECONDS, WorkerClient
from benchmarks.bare import Job
from cases.catalogue import FAMILIES, family
from cases.model import Question
from suites.sources import RECORDS, most_devices, record_path

ROOT = Path(__file__).resolve().parent.parent
README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- measured -->\n", "<!-- end -->\n"
DEVICES = 8
# The environment of the bare processes, as the adapters set it for themselves.
_FUNCTIONS = {"torch": "benchmarks.bare_torch:forked", "jax": "benchmarks.bare_jax:compiled"}
_ENVIRONMENT = {
    "GLOO_SOCKET_IFNAME": "lo",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}",
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_X64": "1",
    "JAX_ENABLE_COMPILATION_CACHE": "0",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


class Measurement(msgspec.Struct, frozen=True):
    """A line of the table."""

    what: str
    ours: str
    bare: str
    ratio: str
    goal: str


class BareProcess:
    """A process of `benchmarks.bare`, from its making to `close`."""

    def __init__(self, function: str, jobs: Sequence[Job]):
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._jobs = tempfile.NamedTemporaryFile()  # noqa: SIM115
        self._jobs.write(msgspec.json.encode(jobs))
        self._jobs.flush()
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.bare", function, self._jobs.name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            cwd=ROOT, env=os.environ | _ENVIRONMENT, start_new_session=True,
        )  # fmt: skip

    def send(self, first: int, last: int) -> None:
        """Start jobs ``first`` to ``last``."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(f"{first} {last}\n")
        self._popen.stdin.flush()

    def read_line(self) -> str:
        """The next line that it prints.

        Raises:
            RuntimeError: it has ended.
        """
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline().strip()
        if not line:
            self._errors.seek(0)
            raise RuntimeError(self._errors.read().decode(errors="replace")[-4000:])
        return line

    def wait_until(self, line: str) -> None:
        """Read lines up to this one."""
        while self.read_line() != line:
            pass

    def run(self, first: int, last: int) -> float:
        """Seconds that jobs ``first`` to ``last`` take."""
        self.send(first, last)
        return float(self.read_line())

    def close(self) -> None:
        """End it and its ranks."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.communicate()
        self._errors.close()
        self._jobs.close()


def start_worker(
    framework: str, subjects: Sequence[str], questions: Sequence[Question]
) -> WorkerClient:
    """A worker of the framework that is ready for questions, as in a run."""
    module = FRAMEWORKS[framework].adapter
    made = WorkerClient(framework, module, subjects, devices=most_devices(questions))
    until = time.monotonic() + STARTUP_SECONDS
    while made.hello() is None and time.monotonic() < until:
        time.sleep(0.01)
    return made


def find_answered_jobs(framework: str, questions: Sequence[Question]) -> list[Job]:
    """The questions that end well, each with the subjects for which they do.

    The committed record of the release says so if it has all questions. Otherwise they are asked.
    """
    row = FRAMEWORKS[framework]
    path = record_path(RECORDS, framework, version(framework))
    source: WorkerClient | record.Record | None = None
    if path.exists():
        kept = record.load(path, framework, row.subjects)
        digests = {id: line.digest for id, line in kept.lines.items()}
        if all(digests.get(one.id) == record.digest_question(one) for one in questions):
            source = kept
    if source is None:
        source = start_worker(framework, row.subjects, questions)
    for question in questions:
        source.ask(question)
    jobs = []
    for question in questions:
        ends = [(one.subject, one.end) for one in source.answer(question)]
        done = tuple(subject for subject, end in ends if isinstance(end, Done))
        jobs += [Job(question, done)] if done else []
    source.close()
    return jobs


def time_adapter(asked: WorkerClient, jobs: Sequence[Job]) -> float:
    """Seconds that a worker takes for these jobs, asked in advance as in a run."""
    started = time.perf_counter()
    for job in jobs:
        asked.ask(job.question)
    for job in jobs:
        for got in asked.answer(job.question):
            if not isinstance(got.end, Done):
                raise RuntimeError(f"{got.question}: {got.end}")
    return time.perf_counter() - started


def spread(jobs: Sequence[Job], count: int) -> list[Job]:
    """At most ``count`` of the jobs, evenly spread."""
    count = min(count, len(jobs))
    return [jobs[number * len(jobs) // count] for number in range(count)]


def against_bare(
    what: str, framework: str, subject: str, jobs: Sequence[Job], batches: int, rounds: int
) -> Measurement:
    """Cases per second of an adapter over those of the bare calls, in batches that take turns."""
    jobs = [Job(job.question, (subject,)) for job in jobs]
    size = math.ceil(len(jobs) / batches)
    took: list[tuple[float, float]] = []
    for _ in range(rounds):
        bare = BareProcess(_FUNCTIONS[framework], jobs)
        ours = start_worker(framework, (subject,), [job.question for job in jobs])
        try:
            bare.wait_until("ready")
            for first in range(0, len(jobs), size):
                last = min(first + size, len(jobs))
                early = bare.run(first, last) if len(took) % 2 else 0.0
                mine = time_adapter(ours, jobs[first:last])
                took.append((mine, early or bare.run(first, last)))
        finally:
            ours.close()
            bare.close()
    count = len(jobs) * rounds
    mine, theirs = (sum(side) for side in zip(*took))
    ratios = sorted(bare / adapter for adapter, bare in took)
    ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    what = f"{subject}, {len(jobs)} {what}"
    return Measurement(what, f"{count / mine:.0f}/s", f"{count / theirs:.0f}/s", ratio, "≥ 0.75")


class Extent(msgspec.Struct, frozen=True):
    """How much of each part is measured.

    ``cases``: at most so many for a row; None for as many as the part has. ``repeats``: how often
    a part measures the same thing. ``suite``: what pytest runs; ``families``: the cases in it.
    """

    cases: int | None = None
    repeats: int = 3
    suite: str = "suites"
    families: tuple[str, ...] = tuple(FAMILIES)

    def most(self, usual: int) -> int:
        """How many cases a row has that usually has so many."""
        return usual if self.cases is None else min(usual, self.cases)


def torch(extent: Extent) -> Iterator[Measurement]:
    """Redistribute on 4 and on 8 ranks."""
    jobs = find_answered_jobs("torch", [case.question for case in family("redistribute")])
    for ranks in (4, 8):
        some = [job for job in jobs if job.question.mesh.size == ranks]
        some = spread(some, extent.most(len(some)))
        what = f"redistributes on {ranks} ranks"
        yield against_bare(what, "torch", "torch", some, 4, extent.repeats)


def jax(extent: Extent) -> Iterator[Measurement]:
    """Redistribute by each route, for a sample of the cases."""
    done = find_answered_jobs("jax", [case.question for case in family("redistribute")][::4])
    for route in FRAMEWORKS["jax"].subjects:
        some = spread([job for job in done if route in job.subjects], extent.most(120))
        yield against_bare("redistributes", "jax", route, some, 6, 1)


def ops(extent: Extent) -> Iterator[Measurement]:
    """Ops on sharded operands, forward and with a gradient, by each route."""
    for name in ("operators", "gradients"):
        questions = [case.question for case in family(name) if case.question.mesh.size == 4]
        for framework, routes in (("torch", ("torch",)), ("jax", ("jax/jit", "jax/explicit"))):
            done = [
                job for job in find_answered_jobs(framework, questions)
                if _can_run_bare(job.question)
            ]  # fmt: skip
            for route in routes:
                some = [job for job in done if route in job.subjects]
                some = spread(some, extent.most(384 if framework == "torch" else 96))
                rounds = min(2, extent.repeats) if framework == "torch" else 1
                yield against_bare(name, framework, route, some, 6, rounds)


def _can_run_bare(question: Question) -> bool:
    """Whether the bare loops have calls for it: data, kept meshes, DTensors, no region."""
    if question.recipe is not None or question.mode != "real":
        return False
    local = any(step.op in ("to_local", "item") for step in question.steps)
    irregular = any(given.irregular for given in question.inputs)
    return not (question.fresh or question.mesh_steps or question.context or local or irregular)


def spawn(extent: Extent) -> Iterator[Measurement]:
    """Kept ranks, compared with a spawn of ranks for each test."""
    tests, batch = extent.most(5), extent.most(60)
    questions = [case.question for case in family("redistribute")]
    jobs = [job for job in find_answered_jobs("torch", questions) if job.question.mesh.size == 4]
    bare = BareProcess("benchmarks.bare_torch:spawned", spread(jobs, tests))
    ours = start_worker("torch", ("torch",), questions)
    mine, theirs = [], []
    try:
        bare.wait_until("ready")
        for number in range(tests):
            part = jobs[number * batch : (number + 1) * batch]
            mine.append(time_adapter(ours, part) / len(part))
            theirs.append(bare.run(number, number + 1))
    finally:
        ours.close()
        bare.close()
    fast, slow = statistics.median(mine), statistics.median(theirs)
    ratio = f"{slow / fast:.0f} ×"
    what = "torch on 4 ranks, compared with a spawn of ranks per test"
    yield Measurement(what, f"{1 / fast:.0f}/s", f"{1 / slow:.2f}/s", ratio, "≥ 100 ×")


def whole(extent: Extent) -> Iterator[Measurement]:
    """The default run, compared with both bare loops at once, before it and after it."""
    questions = [case.question for name in extent.families for case in family(name)]
    jobs = {
        name: [job for job in find_answered_jobs(name, questions) if _can_run_bare(job.question)]
        for name in FRAMEWORKS
    }
    before = _time_both_bare(jobs)
    started = time.perf_counter()
    # Red cases change nothing about the time.
    _run([*_PYTEST, extent.suite, "-q"], 0, 1)
    ours = time.perf_counter() - started
    loops, start = (sum(sides) / 2 for sides in zip(before, _time_both_bare(jobs)))
    what = f"the default run, {len(questions)} cases in both frameworks"
    bare = f"{loops:.0f} s + {start:.0f} s to start"
    yield Measurement(what, f"{ours:.0f} s", bare, f"{ours / (loops + start):.2f}", "≤ 1.25")


def _time_both_bare(jobs: dict[str, list[Job]]) -> tuple[float, float]:
    """Seconds of the bare loops run side by side, and of the imports before them."""
    started = time.perf_counter()
    both = [BareProcess(_FUNCTIONS[name], some) for name, some in jobs.items()]
    try:
        for bare in both:
            bare.wait_until("imported")
        start = time.perf_counter() - started
        for bare in both:
            bare.wait_until("ready")
        started = time.perf_counter()
        for bare, some in zip(both, jobs.values()):
            bare.send(0, len(some))
        for bare in both:
            bare.read_line()
        return time.perf_counter() - started, start
    finally:
        for bare in both:
            bare.close()


_PYTEST = (sys.executable, "-u", "-m", "pytest", "-p", "no:cacheprovider")


def _run(command: Sequence[str], *good: int) -> str:
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if ended.returncode not in good:
        raise RuntimeError(f"{ended.returncode}: {ended.stdout[-4000:]}{ended.stderr[-4000:]}")
    return ended.stdout


_COLLECT = """
import sys, pytest
code = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[1:]])
print("imported:", *sorted({"torch", "jax"} & set(sys.modules)))
sys.exit(code)
"""


def collect(extent: Extent) -> Iterator[Measurement]:
    """Collection alone."""
    took = []
    for _ in range(extent.repeats):
        started = time.perf_counter()
        lines = _run([sys.executable, "-c", _COLLECT, extent.suite], 0).splitlines()
        took.append(time.perf_counter() - started)
    imported = lines[-1].removeprefix("imported:").strip() or "neither framework"
    items = sum("::" in line for line in lines)
    what = f"`pytest --collect-only`, {items} items: imports {imported}"
    yield Measurement(what, f"{statistics.median(took):.1f} s", "", "", "≤ 2 s, neither")


def first(extent: Extent) -> Iterator[Measurement]:
    """From the start of a run to its first verdict."""
    took = []
    for _ in range(extent.repeats):
        started = time.perf_counter()
        command = [*_PYTEST, extent.suite, "-v"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as run:
            assert run.stdout is not None
            printed = b""
            while not re.search(rb"PASSED|FAILED|SKIPPED", printed):
                if not (more := os.read(run.stdout.fileno(), 1 << 16)):
                    raise RuntimeError(printed.decode()[-4000:])
                printed += more
            took.append(time.perf_counter() - started)
            run.send_signal(signal.SIGINT)
            run.stdout.read()
    what = "first verdict of `pytest suites`"
    yield Measurement(what, f"{statistics.median(took):.1f} s", "", "", "≤ 8 s")


PARTS: dict[str, Callable[[Extent], Iterator[Measurement]]] = {
    part.__name__: part for part in (torch, jax, ops, spawn, whole, collect, first)
}


def main(names: Sequence[str]) -> None:
    """Measure the parts called ``names``, all if there are none."""
    if unknown := set(names) - set(PARTS):
        sys.exit(f"found {', '.join(sorted(unknown))}, wanted some of {', '.join(PARTS)}")
    # The figures are those of two cores, on a larger machine too.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    began = os.getloadavg()[0]
    table = ["| | suite | bare | ratio | goal |", "|---|---|---|---|---|"]
    print(*table, sep="\n", flush=True)
    for name, part in PARTS.items():
        if not names or name in names:
            for row in part(Extent()):
                table.append(f"| {' | '.join(msgspec.structs.astuple(row))} |")
                print(table[-1], flush=True)
    cores = len(os.sched_getaffinity(0))
    table += ["", f"{cores} cores of {os.cpu_count()}, Python {platform.python_version()},"
              f" torch {version('torch')}, jax {version('jax')}."
              f" Load average before the run {began:.1f}."]  # fmt: skip
    print(table[-1])
    if not names:
        write_table(BEGIN, table, END)


def write_table(begin: str, lines: Sequence[str], end: str) -> None:
    """Replace what stands in the README between two marks."""
    head, _, rest = README.read_text().partition(begin)
    tail = rest.partition(end)[2]
    README.write_text(head + begin + "\n" + "\n".join(lines) + "\n\n" + end + tail)


if __name__ == "__main__":
    main(sys.argv[1:])
