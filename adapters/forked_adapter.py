"""How is an adapter protected from crashes? Its work is done in a child, forked warm.

An abort in the middle of a question then costs one fork. For adapters that answer in one process;
knows no framework. This process is forked, so nothing here may start a thread.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import signal
import socket
import time
from collections.abc import Callable

from adapters import fork, protocol
from adapters.answer import Answer, Crashed, Hung
from adapters.framing import read_frame
from adapters.protocol import Adapter, Ask, Hello
from adapters.stacks import remove_own_frames
from cases.model import Question

# Seconds for a child to write its stack. A signal handler takes microseconds.
STACK_SECONDS = 0.2
# Seconds for a child that has closed its link to end, so that one can tell how it ended.
EXIT_SECONDS = 1.0


class ForkedAdapter:
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
        """The child's answer; else how it died, or where it was when ``seconds`` were over."""
        if self._child is not None and not self._child.lives():
            self._child.end()
            self._child = None
        at_work = self._child = self._child or _Child(self._make)
        printed = fork.stderr_size()
        answer = at_work.ask(Ask(question, (subject,), seconds), time.monotonic() + seconds)
        if isinstance(answer, Answer):
            return answer
        self._child = None
        if answer == "late":
            at_work.show_stack()
            at_work.end()
            stack = fork.read_stderr_since(printed)
            hung = Hung(f"no answer in {seconds:g} s", stacks=(remove_own_frames(stack),))
            return Answer(question.id, subject, hung)
        how = at_work.end(EXIT_SECONDS)
        crashed = Crashed(how, output=fork.read_stderr_since(printed))
        return Answer(question.id, subject, crashed)

    def close(self) -> None:
        """Let the child end, and make sure that it does."""
        if self._child is not None:
            self._child.dismiss()
            self._child.end(EXIT_SECONDS)


class _Child:
    """One child, from its fork to `end`."""

    def __init__(self, make: Callable[[], Adapter]):
        self._pid, self._link = fork.fork_child(lambda link: _serve(link, make()))

    def lives(self) -> bool:
        """Whether the child can be asked. Unasked, it says nothing until it ends."""
        return not select.select([self._link], [], [], 0)[0]

    def ask(self, ask: Ask, deadline: float) -> Answer | str:
        """The answer; "late" if there is none by the deadline, "dead" if there will be none."""
        try:
            self._link.sendall(protocol.encode(ask))
            body = read_frame(lambda size: self._receive(size, deadline))
        except TimeoutError:
            return "late"
        except OSError:
            return "dead"
        if body is None:
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
                break
            data += part
        return bytes(data)

    def dismiss(self) -> None:
        """Ask nothing more: a child that is idle then ends by itself."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_WR)

    def show_stack(self) -> None:
        """Have the child write its stack on its stderr."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGUSR1)
        time.sleep(STACK_SECONDS)

    def end(self, patience: float = 0.0) -> str:
        """How it ended: "SIGABRT", "exit code 3". Killed if it lives past ``patience`` seconds."""
        how = fork.describe_exit(self._pid, patience)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._link.close()
        return how


def _serve(link: socket.socket, adapter: Adapter) -> None:
    faulthandler.register(signal.SIGUSR1)
    try:
        with link.makefile("rb") as asks:
            while (ask := protocol.read_ask(asks)) is not None:
                for subject in ask.subjects:
                    answer = adapter.observe(ask.question, subject, ask.seconds)
                    link.sendall(protocol.encode(answer))
    finally:
        adapter.close()
