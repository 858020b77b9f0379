"""How is a process forked warm, and how did it end? For every adapter that forks.

Importing a framework takes seconds; forking a process that has imported it takes milliseconds.
Adapters fork from their own process, so nothing here may start a thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Collection

# So many bytes at the end of what was printed are kept.
TAIL_BYTES = 4096

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def fork_child(
    live: Callable[[socket.socket], None], kept: Collection[int] = ()
) -> tuple[int, socket.socket]:
    """Fork a child that runs ``live`` with its end of a socket pair; its id, and our end.

    It dies with this process, and keeps no inherited descriptor but the standard ones and ``kept``.

    Raises:
        RuntimeError: this process has threads, which a fork would leave behind.
    """
    tasks = len(os.listdir("/proc/self/task"))
    if tasks != 1:
        raise RuntimeError(
            f"found {tasks} threads, wanted 1 before a process is forked"
            " (is OPENBLAS_NUM_THREADS=1 set before NumPy is imported?)"
        )
    sys.stdout.flush()
    sys.stderr.flush()
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == parent:
                _redirect_inherited_descriptors({0, 1, 2, theirs.fileno(), *kept})
                live(theirs)
                code = 0
        # No exception may leave this function in the child.
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    theirs.close()
    return pid, ours


def _redirect_inherited_descriptors(kept: set[int]) -> None:
    """In a child, redirect every inherited descriptor but ``kept`` to nowhere.

    The worker's pipes are among them, and a child must neither keep them open nor write to them.
    They are redirected and not closed: objects of the worker still own their numbers, and one that
    is collected here would close what the framework has opened since.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in {int(name) for name in os.listdir("/proc/self/fd")} - kept - {nowhere}:
        os.dup2(nowhere, fd)


def describe_exit(pid: int, patience: float, otherwise: str = "closed its link") -> str:
    """How a child ended: "SIGKILL", "exit code 1". It is not reaped.

    The result is ``otherwise`` for a child that still runs after ``patience`` seconds.
    """
    stop = time.monotonic() + patience
    while (status := read_exit(pid)) is None:
        if time.monotonic() > stop:
            return otherwise
        time.sleep(0.005)
    return status


def read_exit(pid: int) -> str | None:
    """How a child ended, None while it runs. It is not reaped, so no other process gets its id."""
    status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if status is None:
        return None
    if status.si_code == os.CLD_EXITED:
        return f"exit code {status.si_status}"
    try:
        return signal.Signals(status.si_status).name
    except ValueError:
        return f"signal {status.si_status}"


def stderr_size() -> int:
    """How many bytes have been printed on stderr, if that is a file."""
    return os.fstat(2).st_size


def read_stderr_since(start: int) -> str:
    """The end of what was printed on stderr since ``start``; "" if stderr is no file."""
    try:
        with open("/proc/self/fd/2", "rb") as printed:
            printed.seek(max(start, stderr_size() - TAIL_BYTES))
            return printed.read().decode(errors="replace")
    except OSError:
        return ""
