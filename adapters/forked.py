"""How is an adapter spared what kills it? Its work is done in a child, forked warm.

Importing a framework takes seconds and forking a process that has imported it takes
milliseconds, so an abort in the middle of a question costs one fork. For adapters that answer
in one process; knows no framework. It is forked from, so nothing here may start a thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable

from adapters import protocol
from adapters.answer import Answer, Crashed, Hung
from adapters.protocol import HEAD, Adapter, Ask, Hello
from cases.model import Question

# Seconds for a child to write its stack, which takes a signal handler microseconds.
STACK = 0.2
# Seconds for a child that has closed its link to be gone, so that it can be said how.
DYING = 1.0
# Of what a child printed before it died, the last so many bytes are kept.
TAIL = 4096

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Forked:
    """An adapter that answers through a child; see `adapters.protocol.Adapter`.

    ``make`` is called in the child and gives the adapter that does the work there. ``hello``
    is what the framework says without being started.
    """

    def __init__(self, hello: Hello, make: Callable[[], Adapter]):
        self._hello = hello
        self._make = make
        self._child: _Child | None = None

    def hello(self) -> Hello:
        """Which framework and release this is."""
        return self._hello

    def observe(self, question: Question, subject: str, seconds: float) -> Answer:
        """The child's answer; how it died, or where it was when ``seconds`` were over."""
        if self._child is not None and not self._child.lives():
            self._child.end()
            self._child = None
        child = self._child = self._child or _Child(self._make)
        printed = _so_far()
        answer = child.ask(Ask(question, (subject,), seconds), time.monotonic() + seconds)
        if isinstance(answer, Answer):
            return answer
        self._child = None
        if answer == "late":
            child.show_stack()
            child.end()
            stack = _since(printed)
            return Answer(
                question.id, subject, Hung(f"no answer in {seconds:g} s", stacks=(stack,))
            )
        return Answer(question.id, subject, Crashed(child.end(), output=_since(printed)))

    def close(self) -> None:
        """Let the child end, and see that it does."""
        if self._child is not None:
            self._child.dismiss()
            self._child.end(DYING)


class _Child:
    """One child, from its fork to `end`."""

    def __init__(self, make: Callable[[], Adapter]):
        tasks = len(os.listdir("/proc/self/task"))
        if tasks != 1:
            raise RuntimeError(f"found {tasks} threads, wanted 1 before a child is forked")
        self._link, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _live(theirs, parent, make)
        theirs.close()

    def lives(self) -> bool:
        """Whether the child can be asked: it says nothing unasked but its end."""
        return not select.select([self._link], [], [], 0)[0]

    def ask(self, ask: Ask, deadline: float) -> Answer | str:
        """The answer; "late" if there is none by the deadline, "dead" if there will be none."""
        try:
            self._link.sendall(protocol.encode(ask))
            head = self._receive(HEAD.size, deadline)
            body = self._receive(HEAD.unpack(head)[0], deadline)
        except TimeoutError:
            return "late"
        except OSError:
            return "dead"
        frame = protocol.decode(body)
        assert isinstance(frame, Answer)
        return frame

    def _receive(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            if not select.select([self._link], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError
            part = self._link.recv(size - len(data))
            if not part:
                raise ConnectionResetError
            data += part
        return bytes(data)

    def dismiss(self) -> None:
        """Ask nothing more: a child that is not at work ends by itself."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_WR)

    def show_stack(self) -> None:
        """Have the child write where it is on its stderr."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGUSR1)
        time.sleep(STACK)

    def end(self, patience: float = 0.0) -> str:
        """How it ended: "SIGABRT", "exit code 3". Killed if it lives past ``patience`` seconds."""
        stop = time.monotonic() + patience
        done, status = os.waitpid(self._pid, os.WNOHANG)
        while not done and time.monotonic() < stop:
            time.sleep(0.005)
            done, status = os.waitpid(self._pid, os.WNOHANG)
        if not done:
            os.kill(self._pid, signal.SIGKILL)
            _, status = os.waitpid(self._pid, 0)
        self._link.close()
        code = os.waitstatus_to_exitcode(status)
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _live(link: socket.socket, parent: int, make: Callable[[], Adapter]) -> None:
    """The life of a child. Never returns into the code that forked."""
    code = 1
    try:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            kept = {0, 1, 2, link.fileno()}
            # The worker's pipes among them: what a child does to them would reach the run.
            for fd in {int(name) for name in os.listdir("/proc/self/fd")} - kept:
                with contextlib.suppress(OSError):
                    os.close(fd)
            faulthandler.register(signal.SIGUSR1)
            _serve(link, make())
            code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _serve(link: socket.socket, adapter: Adapter) -> None:
    try:
        with link.makefile("rb") as asks:
            while (ask := protocol.read_from_run(asks)) is not None:
                for subject in ask.subjects:
                    answer = adapter.observe(ask.question, subject, ask.seconds)
                    link.sendall(protocol.encode(answer))
    finally:
        adapter.close()


def _so_far() -> int:
    """How many bytes have been printed on stderr, where that is a file."""
    return os.fstat(2).st_size


def _since(start: int) -> str:
    """The end of what was printed on stderr since ``start``; "" where it is no file to read."""
    try:
        with open("/proc/self/fd/2", "rb") as printed:
            printed.seek(max(start, _so_far() - TAIL))
            return printed.read().decode(errors="replace")
    except OSError:
        return ""
