"""How does a run ask a framework that lives in another process? Work ahead, crash, hang, close.

A crash or a hang is the answer to the question that met it, and the next question gets a new
process. Knows no framework, and looks only at the question and the subject of an answer.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from queue import SimpleQueue

import msgspec

from adapters import protocol
from adapters.answer import Answer, Crashed, Hung, format_end
from adapters.framing import BadFrame
from adapters.protocol import Ask, Hello
from adapters.stacks import remove_own_frames
from adapters.worker_process import WorkerProcess
from cases.model import Question

# Seconds that an adapter has beyond the question's own, to stop itself and say why.
MARGIN_SECONDS = 3.0
# Seconds from the start of a process to its Hello. Importing a framework cold can take 20.
STARTUP_SECONDS = 120.0
# So many deaths in a row, without an answer between them, end the worker. Neighbours in a family
# may each crash a framework, so fewer deaths are just answers.
MAX_DEATHS = 20

# Seconds between checks for a death that the pipe does not show.
_TICK = 0.25
# Seconds between checks for a greeting, for which a run waits once.
_SHORT = 0.02
# Seconds for a process to die after it has closed its pipe, and to show its stack.
_PATIENCE = 1.0
_NEEDED = ("msgspec", "numpy", "ml_dtypes", "packaging")


class WorkerError(Exception):
    """A framework cannot be asked at all: one line, then the last lines that it printed."""

    def __init__(self, framework: str, python: str, found: str, wanted: str, printed: str = ""):
        self.framework = framework
        self.python = python
        self.found = found
        self.wanted = wanted
        self.printed = printed
        last = "".join(f"\n  {line}" for line in printed.splitlines()[-12:])
        super().__init__(f"{framework} worker ({python}): found {found}, wanted {wanted}{last}")


class WorkerClient:
    """One framework in its own process, asked by one thread of the run.

    It starts at once, in the background. ``seconds`` are allowed for each of the ``subjects``. At
    most ``ahead`` questions are in the process at a time. Answers that are not collected are kept
    until `close`.
    """

    def __init__(
        self,
        framework: str,
        module: str,
        subjects: Sequence[str],
        *,
        python: str = sys.executable,
        devices: int = 8,
        seconds: float = 30.0,
        ahead: int = 64,
    ):
        self._tasks: dict[str, _Task] = {}
        self._engine = _Engine(framework, module, tuple(subjects), python, devices, seconds, ahead)
        # A daemon thread, so that a run that forgets `close` still ends; the kernel ends the
        # process.
        self._thread = threading.Thread(target=self._engine.run, name=framework, daemon=True)
        self._thread.start()

    def hello(self) -> Hello | None:
        """What the first process said about itself; None until it has."""
        return self._engine.hello

    def greet(self) -> Hello:
        """What the first process says about itself. Waits for it.

        Raises:
            WorkerError: the framework cannot be asked at all.
            RuntimeError: the worker is closed.
        """
        while (hello := self._engine.hello) is None:
            if self._engine.failed is not None:
                raise self._engine.failed.with_traceback(None)
            if not self._thread.is_alive():
                raise RuntimeError("the worker is closed")
            time.sleep(_SHORT)
        return hello

    def ask(self, question: Question) -> None:
        """Queue a question behind those asked before, unless it is queued already.

        Raises:
            ValueError: another question with its id is still to be answered.
            RuntimeError: the worker is closed.
        """
        self._task(question)

    def answer(self, question: Question) -> tuple[Answer, ...]:
        """The answers, one per subject in order. Waits for them, and keeps none.

        Raises:
            WorkerError: the framework cannot be asked at all.
            ValueError, RuntimeError: as for `ask`.
        """
        answers = self._task(question).wait()
        del self._tasks[question.id]
        return answers

    def close(self) -> None:
        """End every process at once, whatever it is doing. Questions that wait are dropped."""
        self._engine.stop()
        self._thread.join()
        self._engine.forget()

    def _task(self, question: Question) -> _Task:
        task = self._tasks.get(question.id)
        if task is None:
            task = _Task(question)
            self._engine.take(task)
            self._tasks[question.id] = task
        elif task.question != question:
            raise ValueError(f"two questions with the id {question.id!r}")
        return task


class _Task:
    """A question on its way to its answers, or to the error that ended the worker."""

    def __init__(self, question: Question):
        self.question = question
        self.answers: list[Answer] = []
        self._result: tuple[Answer, ...] | BaseException | None = None
        self._ready: SimpleQueue[None] = SimpleQueue()

    def finish(self, result: tuple[Answer, ...] | BaseException) -> None:
        self._result = result
        self._ready.put(None)

    def wait(self) -> tuple[Answer, ...]:
        # This waits without a lock of our own, so that Ctrl-C leaves nothing locked and one can
        # wait again.
        while self._result is None:
            self._ready.get()
        if isinstance(self._result, BaseException):
            raise self._result.with_traceback(None)
        return self._result


class _Engine:
    """The thread of a `WorkerClient`: it runs `run`, and owns the process and private attributes.

    The run calls `take`, `stop` and, when the thread has ended, `forget`.

    One thread and non-blocking pipes: however full both pipes are, it neither waits for one of them
    nor misses a deadline.
    """

    def __init__(
        self,
        framework: str,
        module: str,
        subjects: tuple[str, ...],
        python: str,
        devices: int,
        seconds: float,
        ahead: int,
    ):
        self.framework = framework
        self.module = module
        self.subjects = subjects
        self.python = python
        self.devices = devices
        self.seconds = seconds
        self.ahead = ahead
        self.hello: Hello | None = None
        self.failed: BaseException | None = None
        # The run fills it and the thread empties it; a deque needs no lock for that.
        self._inbox: deque[_Task] = deque()
        self._stopped = False
        self._woken, self._wake = os.pipe()
        for fd in (self._woken, self._wake):
            os.set_blocking(fd, False)
        # Tasks without all their answers, in the order asked. The first `_sent` of them are in the
        # process, which works on the first one.
        self._queue: deque[_Task] = deque()
        self._sent = 0
        self._process: WorkerProcess | None = None
        self._greeted = False
        self._since = 0.0
        self._deaths = 0

    def take(self, task: _Task) -> None:
        """Accept a task. Never waits."""
        if self._stopped:
            raise RuntimeError("the worker is closed")
        self._inbox.append(task)
        self._rouse()

    def stop(self) -> None:
        """Have the thread end everything, and itself. Never waits."""
        self._stopped = True
        if self._wake >= 0:
            self._rouse()

    def forget(self) -> None:
        """Close the pipe that wakes the thread."""
        if self._wake >= 0:
            os.close(self._wake)
            os.close(self._woken)
            self._wake = self._woken = -1

    def _rouse(self) -> None:
        # If the pipe is full, the thread has yet to handle earlier calls.
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake, b".")

    def run(self) -> None:
        """Work until stopped. When that ends or fails, no process is left."""
        try:
            self._work()
        except BaseException as error:
            # Whatever ends the work has to reach those who wait for it.
            self._end()
            self._refuse(error)
        finally:
            self._end()

    def _work(self) -> None:
        self._start()
        while not self._stopped:
            while self._inbox:
                self._queue.append(self._inbox.popleft())
            if self._process is None and self._queue:
                self._start()
            if self._process is None:
                self._wait([])
            else:
                self._turn(self._process)

    def _refuse(self, error: BaseException) -> None:
        self.failed = error
        while self._queue:
            self._queue.popleft().finish(error)
        while not self._stopped:
            while self._inbox:
                self._inbox.popleft().finish(error)
            self._wait([])

    def _start(self) -> None:
        try:
            self._process = WorkerProcess(self.module, self.devices, self.python)
        except OSError as error:
            raise self._error(f"{error.strerror}", "a Python interpreter") from None
        self._greeted = False
        self._since = time.monotonic()

    def _turn(self, process: WorkerProcess) -> None:
        """Feed the process, wait until something happens, and handle it."""
        self._feed(process)
        wanted = [(process.answers, select.POLLIN)]
        if process.unsent:
            wanted.append((process.asks, select.POLLOUT))
        due = self._due()
        self._wait(wanted, None if due is None else min(due - time.monotonic(), _TICK))
        process.write()
        process.trim()
        # In this order, so that what was written before a death is read after it, and an idle
        # process that died is found before the question that woke us is sent to it.
        dead = process.dead()
        count, more = process.read()
        try:
            for body in process.frames():
                self._heed(body)
        except BadFrame as error:
            self._damaged(process, str(error))
        else:
            if dead or not more:
                self._died(process)
            elif due is not None and not count and time.monotonic() > due:
                self._late(process)

    def _wait(self, wanted: list[tuple[int, int]], seconds: float | None = None) -> None:
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        for fd, event in wanted:
            poll.register(fd, event)
        ready = poll.poll(None if seconds is None else max(0.0, seconds * 1000))
        if any(fd == self._woken for fd, _ in ready):
            os.read(self._woken, 1 << 16)

    def _feed(self, process: WorkerProcess) -> None:
        """Send what the process may have; one question at a time when its pipe is full."""
        if not self._greeted:
            return
        while not process.unsent and self._sent < min(self.ahead, len(self._queue)):
            if not self._sent:
                self._since = time.monotonic()
            task = self._queue[self._sent]
            subjects = self.subjects[len(task.answers) :]
            process.send(Ask(task.question, subjects, self.seconds))
            self._sent += 1

    def _due(self) -> float | None:
        """When the next frame must have come; None if none is due."""
        if not self._greeted:
            return self._since + STARTUP_SECONDS
        return self._since + self.seconds + MARGIN_SECONDS if self._sent else None

    def _heed(self, body: bytes) -> None:
        if not self._greeted:
            self._greet(body)
            return
        try:
            frame = protocol.decode(body)
        except msgspec.DecodeError as error:
            raise BadFrame(f"no frame: {error}: {body[:40]!r}") from None
        if not isinstance(frame, Answer):
            raise BadFrame("a second Hello")
        if not self._sent:
            raise BadFrame(f"an answer of {frame.subject} to {frame.question}, never asked")
        task = self._queue[0]
        subject = self.subjects[len(task.answers)]
        if (frame.question, frame.subject) != (task.question.id, subject):
            raise BadFrame(
                f"an answer of {frame.subject} to {frame.question}"
                f" where {subject} to {task.question.id} was due"
            )
        self._deaths = 0
        self._since = time.monotonic()
        self._deliver(frame)

    def _greet(self, body: bytes) -> None:
        wanted = f"a Hello of protocol {protocol.VERSION}"
        try:
            version = protocol.version(body)
            if version != protocol.VERSION:
                raise self._error(f"protocol {version}", f"protocol {protocol.VERSION}")
            hello = protocol.decode(body)
        except msgspec.DecodeError:
            raise self._error(f"no frame: {body[:40]!r}", wanted) from None
        if not isinstance(hello, Hello):
            raise self._error(f"an {type(hello).__name__}", wanted)
        if hello.framework != self.framework:
            raise self._error(f"an adapter of {hello.framework}", f"one of {self.framework}")
        self._greeted = True
        self._since = time.monotonic()
        self.hello = self.hello or hello

    def _deliver(self, answer: Answer) -> None:
        task = self._queue[0]
        task.answers.append(answer)
        if len(task.answers) == len(self.subjects):
            self._queue.popleft()
            self._sent -= 1
            task.finish(tuple(task.answers))

    def _blame(self, end: Crashed | Hung) -> None:
        """End the process; ``end`` becomes the answer that was due, the others are asked again."""
        self._deaths += isinstance(end, Crashed)
        if self._deaths == MAX_DEATHS:
            raise self._error(
                f"{MAX_DEATHS} deaths in a row, the last: {format_end(end)}", "an answer"
            )
        self._end()
        if self._sent:
            task = self._queue[0]
            self._deliver(Answer(task.question.id, self.subjects[len(task.answers)], end))
        self._sent = 0

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None

    def _damaged(self, process: WorkerProcess, found: str) -> None:
        if not self._greeted:
            raise self._error(found, f"a Hello of protocol {protocol.VERSION}")
        self._blame(Crashed(f"protocol: {found}", output=process.tail()))

    def _died(self, process: WorkerProcess) -> None:
        how = process.how(_PATIENCE)
        printed = process.tail()
        if not self._greeted:
            raise self._unborn(how, printed)
        self._blame(Crashed(how, output=printed))

    def _late(self, process: WorkerProcess) -> None:
        stack = process.stack(_PATIENCE)
        if not self._greeted:
            raise self._error(f"nothing said in {STARTUP_SECONDS:g} s", "a Hello", stack)
        self._blame(Hung(f"no answer in {self.seconds:g} s", stacks=(remove_own_frames(stack),)))

    def _unborn(self, how: str, printed: str) -> WorkerError:
        """The error for a process that ended before its Hello, from what it printed."""
        modules = re.findall(r"^ModuleNotFoundError: No module named '([\w.]+)'", printed, re.M)
        if not modules:
            last = printed.splitlines()[-1:] or ["it printed nothing"]
            return self._error(f"{how} before its Hello ({last[0]})", "a Hello", printed)
        missing = modules[-1]
        if (self.module + ".").startswith(missing + "."):
            wanted = "a module with a function connect(devices)"
        elif missing in _NEEDED:
            wanted = f"what a worker needs there: {self.python} -m pip install {' '.join(_NEEDED)}"
        else:
            wanted = (
                f"it there ({self.python} -m pip install {missing})"
                f" or --{self.framework}-python pointing elsewhere"
            )
        return self._error(f"no module {missing!r}", wanted, printed)

    def _error(self, found: str, wanted: str, printed: str | None = None) -> WorkerError:
        if printed is None:
            printed = "" if self._process is None else self._process.tail()
        return WorkerError(self.framework, self.python, found, wanted, printed)
