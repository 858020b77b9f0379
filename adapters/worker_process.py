"""How is one worker process started, spoken to and ended? Pipes, what it printed, its group.

Knows nothing of questions, nor which of them is to blame: `worker_client` does. Nothing here waits
for the worker, except `end` until the kernel has reaped it, and `stack` for a moment.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from adapters import protocol
from adapters.fork import describe_exit, read_exit
from adapters.framing import FrameBuffer

ROOT = Path(__file__).resolve().parent.parent

# What a worker prints is kept up to this size, so that a print in a loop cannot fill the disk.
_KEPT = 1 << 26
_TAIL = 4000
_STACK = 16000
_CHUNK = 1 << 16
_BURST = 1 << 24


class WorkerProcess:
    """One worker process: started when made, gone after `end`.

    It runs in a session of its own, so Ctrl-C in the terminal does not reach it, and its
    standard streams are not the run's: input is empty, output goes to a file without a name.

    Raises:
        OSError: ``python`` cannot be started.
    """

    def __init__(self, module: str, devices: int, python: str):
        asks, self.asks = os.pipe()
        self.answers, answers = os.pipe()
        alive, self._alive = os.pipe()
        # `end` closes it, so it must outlive this call.
        self._printed = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        printed = self._printed.fileno()
        # The worker's temporary files go with this folder, however the worker ends.
        self._folder = tempfile.TemporaryDirectory(
            prefix="shard-parity-", ignore_cleanup_errors=True
        )
        # In append mode, so that output goes on at the new end after `trim`.
        _set_flag(printed, os.O_APPEND)
        for fd in (self.asks, self.answers):
            os.set_blocking(fd, False)
        self._unsent = bytearray()
        self._received = FrameBuffer()
        path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        # The folder that pytest was started in must not shadow a worker's imports.
        extra = {
            "PYTHONPATH": os.pathsep.join(path),
            "PYTHONSAFEPATH": "1",
            # With this, messages that print a set are the same in every run.
            "PYTHONHASHSEED": "0",
            "TMPDIR": self._folder.name,
        }
        command = [python, "-u", "-m", "adapters.worker", module, str(devices)]
        try:
            self._popen = subprocess.Popen(
                [*command, str(asks), str(answers)],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                pass_fds=(asks, answers, alive),
                start_new_session=True,
                env=os.environ | extra,
            )
        except OSError:
            self._close()
            raise
        else:
            _die_together(alive, self._popen.pid)
        finally:
            for fd in (asks, answers, alive):
                os.close(fd)

    @property
    def pid(self) -> int:
        """Id of the process, and of its group and session."""
        return self._popen.pid

    @property
    def unsent(self) -> int:
        """Bytes that the pipe has not taken yet."""
        return len(self._unsent)

    def send(self, frame: protocol.Frame) -> None:
        """Queue one frame, and write as much as the pipe takes now."""
        self._unsent += protocol.encode(frame)
        self.write()

    def write(self) -> None:
        """Write as much of what is queued as the pipe takes now."""
        try:
            while self._unsent:
                sent = os.write(self.asks, self._unsent[:_CHUNK])
                del self._unsent[:sent]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            # The process is dying, which `read` and `dead` report.
            self._unsent.clear()

    def read(self) -> tuple[int, bool]:
        """Take in what has come: how many bytes, and whether there can be more."""
        count = 0
        while count < _BURST:
            try:
                data = os.read(self.answers, _CHUNK)
            except BlockingIOError:
                return count, True
            if not data:
                return count, False
            self._received.add(data)
            count += len(data)
        return count, True

    def frames(self) -> Iterator[bytes]:
        """The bodies of the whole frames that have come, each once.

        Raises:
            BadFrame: the next bytes are no frame.
        """
        while (body := self._received.next()) is not None:
            yield body

    def dead(self) -> bool:
        """Whether it has ended. `read` cannot tell while children hold its pipes open."""
        return read_exit(self.pid) is not None

    def how(self, patience: float) -> str:
        """How it ended: "SIGABRT", "exit code 3"; "closed its pipe" if it still runs."""
        return describe_exit(self.pid, patience, "closed its pipe")

    def tail(self, start: int = 0, most: int = _TAIL) -> str:
        """The end of what it printed, of what came after byte ``start``."""
        size = os.fstat(self._printed.fileno()).st_size
        first = max(start, size - most, 0)
        text = os.pread(self._printed.fileno(), size - first, first).decode(errors="replace")
        return text.strip()

    def stack(self, patience: float) -> str:
        """Where its Python threads are, after SIGUSR1; waits ``patience`` seconds at most.

        Without an answer, a sentence that says so.
        """
        start = os.fstat(self._printed.fileno()).st_size
        os.kill(self.pid, signal.SIGUSR1)
        stop = time.monotonic() + patience
        before = ""
        while time.monotonic() < stop:
            time.sleep(0.1)
            text = self.tail(start, _STACK)
            if text and text == before:
                break
            before = text
        return before or "(no stack: it did not heed SIGUSR1)"

    def trim(self) -> None:
        """Drop what was printed, if it is too much to keep."""
        if os.fstat(self._printed.fileno()).st_size > _KEPT:
            os.ftruncate(self._printed.fileno(), 0)

    def end(self) -> None:
        """Kill it and every process of its group, at once, and reap it."""
        os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()
        self._close()

    def _close(self) -> None:
        for fd in (self.asks, self.answers, self._alive):
            os.close(fd)
        self._printed.close()
        self._folder.cleanup()


def _set_flag(fd: int, flag: int) -> None:
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | flag)


def _die_together(alive: int, group: int) -> None:
    """Have the kernel kill ``group`` once no process holds the other end of the pipe ``alive``.

    The run holds it and never writes, so the kernel acts when the run has ended, even by SIGKILL. A
    death signal (PR_SET_PDEATHSIG) would be tied to the thread that forks, and would miss the
    processes that an adapter forks. On other systems a worker notices the end of its pipe when it
    next reads.
    """
    if sys.platform == "linux":
        fcntl.fcntl(alive, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(alive, fcntl.F_SETOWN, -group)
        _set_flag(alive, os.O_ASYNC)
