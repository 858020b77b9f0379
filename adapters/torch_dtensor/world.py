"""How are ranks started, asked and stopped? They are forked processes.

This module reports a dead rank as `Crashed`, and a silent rank or a missed deadline as `Hung`. It
does not look into messages, except for `Raised`. It must not start a thread, because it forks.
"""

from __future__ import annotations

import functools
import mmap
import os
import select
import selectors
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from adapters import fork
from adapters.answer import Crashed, Hung
from adapters.framing import FrameBuffer
from adapters.stacks import remove_own_frames
from adapters.torch_dtensor import rank_messages
from adapters.torch_dtensor.rank_messages import (
    Continue,
    Raised,
    RankMessage,
    SendFullTensors,
    Task,
)
from cases.model import Mesh

# If all awaited ranks are silent and asleep for this many seconds, they wait for one another for
# ever. Silence alone is not enough: a rank that lacks a processor is runnable, and torch 2.15 can
# search for a minute for a layout of attention before it raises.
SILENCE = 2.0
# The same, after a rank has raised and will never join the collective.
SILENCE_AFTER_ERROR = 1.0
# Seconds between two samples of the state of the ranks.
SAMPLE_INTERVAL = 0.25
# The share of samples that may find a rank running: gloo threads wake up now and then.
MAX_RUNNING_SHARE = 0.25
# Clock ticks of a processor, about 10 ms each, that a sleeping rank may use.
MAX_TICKS = 3
# Seconds for ranks to write their stacks. The signal handler needs microseconds.
STACK_SECONDS = 0.4
# Seconds for a rank to exit after its socket has closed.
EXIT_SECONDS = 1.0
# A world is replaced when a rank has this many file descriptors. Each mesh of two axes costs a rank
# about 12 descriptors and 6 threads. With thousands of them, everything is several times slower.
FD_LIMIT = 256

Serve = Callable[[int, int, socket.socket, str, int, memoryview], None]


class WorldFailure(Exception):
    """The world is no longer usable. ``end`` says how the current question ended."""

    def __init__(self, end: Crashed | Hung):
        super().__init__(str(end))
        self.end = end


class World:
    """Processes for ranks 0 to ``size`` - 1. Each runs ``serve`` until `close`.

    Each world has its own in-memory file for the rendezvous, so two worlds cannot mix. The ranks
    communicate over the loopback interface. They die with this process.

    Raises:
        RuntimeError: this process has threads, which a fork would leave behind.
    """

    def __init__(self, size: int, serve: Serve):
        self.size = size
        self._meshes: set[Mesh] = set()
        self._grown = False
        self._shared = mmap.mmap(-1, max(size, 1) * struct.calcsize("i"))
        self._progress = memoryview(self._shared).cast("i")
        self._store = os.memfd_create("ranks")
        self._stacks = [os.memfd_create(f"stack of {number}") for number in range(size)]
        self._places: tuple[str, ...] = ()
        self._printed = 0
        self._pids: list[int] = []
        self._links: list[socket.socket] = []
        self._selector = selectors.DefaultSelector()
        for number in range(size):
            live = functools.partial(self._live, number, serve)
            pid, link = fork.fork_child(live, (self._store, self._stacks[number]))
            link.setblocking(False)
            self._pids.append(pid)
            self._links.append(link)
            self._selector.register(link, selectors.EVENT_READ, _Inbox(number))

    def _live(self, number: int, serve: Serve, link: socket.socket) -> None:
        """Run one rank in its own process."""
        store = f"/proc/self/fd/{self._store}"
        serve(number, self.size, link, store, self._stacks[number], self._progress)

    def usable(self) -> bool:
        """Whether every rank lives and has file descriptors to spare."""
        # An idle rank sends nothing. A readable socket means that the rank has exited.
        if self._selector.select(0):
            return False
        grown, self._grown = self._grown, False
        return not grown or all(len(os.listdir(f"/proc/{pid}/fd")) < FD_LIMIT for pid in self._pids)

    def ask(self, task: Task, deadline: float) -> dict[int, RankMessage]:
        """Send a task to every rank, and return the first message of each rank.

        Raises:
            WorldFailure: see `send` and `hear`.
        """
        self._printed = fork.stderr_size()
        new = {mesh for _, mesh in task.meshes} - self._meshes
        self._meshes |= new
        self._grown = self._grown or bool(new)
        self._places = rank_messages.progress_points(task)
        ranks = range(self.size)
        self.send(task, ranks, deadline)
        return self.hear(ranks, deadline)

    def send(
        self, message: Task | Continue | SendFullTensors, ranks: Iterable[int], deadline: float
    ) -> None:
        """Send a message to some ranks.

        Raises:
            WorldFailure: a rank is dead, or does not read before ``deadline`` (`time.monotonic`).
        """
        body = rank_messages.encode_frame(message)
        for rank in ranks:
            remaining = memoryview(body)
            while remaining:
                try:
                    remaining = remaining[self._links[rank].send(remaining) :]
                except BlockingIOError:
                    self._wait(rank, deadline)
                except ConnectionError:
                    raise self._crashed(rank) from None

    def _wait(self, rank: int, deadline: float) -> None:
        """Wait until the socket of a rank accepts more data. An idle rank reads at once."""
        seconds = max(deadline - time.monotonic(), 0)
        if not select.select([], [self._links[rank]], [], seconds)[1]:
            raise self._hung("a rank does not listen", {rank}, {})

    def hear(self, ranks: Iterable[int], deadline: float) -> dict[int, RankMessage]:
        """The next message of each rank in ``ranks``.

        Raises:
            WorldFailure: a rank of the world died, or a rank in ``ranks`` sent nothing before
                ``deadline``, or all silent ranks were asleep for `SILENCE` seconds (for
                `SILENCE_AFTER_ERROR` seconds if another rank has raised).
        """
        due = set(ranks)
        replies: dict[int, RankMessage] = {}
        raised: list[int] = []
        samples: list[_Activity] = []
        while due:
            remaining = deadline - time.monotonic()
            deadlocked = _are_asleep(samples, SILENCE_AFTER_ERROR if raised else SILENCE)
            if remaining <= 0 or deadlocked:
                why = "every rank waits, and none works" if deadlocked else "no answer in time"
                if deadlocked and raised:
                    why = f"rank {min(raised)} raised, and others waited for it in a collective"
                raise self._hung(why, due, replies, raised)
            dead = []
            heard = self._selector.select(min(remaining, SAMPLE_INTERVAL))
            samples = [] if heard else [*samples, *self._look(due)]
            for key, _ in heard:
                inbox: _Inbox = key.data
                if not inbox.fill(self._links[inbox.rank]):
                    dead.append(inbox.rank)
                elif inbox.rank in due and (message := inbox.next()) is not None:
                    replies[inbox.rank] = message
                    due.discard(inbox.rank)
                    if isinstance(message, Raised):
                        raised.append(inbox.rank)
            if dead:
                raise self._crashed(*dead)
        return replies

    def _look(self, ranks: Iterable[int]) -> list[_Activity]:
        """A sample of the state of ``ranks``. Empty if one is exiting: its socket reports that."""
        used, running = [], False
        try:
            for rank in ranks:
                pid = self._pids[rank]
                for task in os.listdir(f"/proc/{pid}/task"):
                    running |= _stat(f"/proc/{pid}/task/{task}/stat")[0] not in "SI"
                used.append(sum(map(int, _stat(f"/proc/{pid}/stat")[11:13])))
        except OSError:
            return []
        return [_Activity(time.monotonic(), tuple(used), running)]

    def close(self) -> None:
        """Kill every rank and wait until it has exited. A second call does nothing."""
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
        for pid in self._pids:
            os.waitpid(pid, 0)
        if self._pids:
            self._selector.close()
            for link in self._links:
                link.close()
            for fd in (self._store, *self._stacks):
                os.close(fd)
            self._progress.release()
            self._shared.close()
        self._pids = []

    def _crashed(self, *dead: int) -> WorldFailure:
        fates = {rank: fork.describe_exit(self._pids[rank], EXIT_SECONDS) for rank in sorted(dead)}
        # If several ranks are dead, one that died of a signal is the more likely cause.
        rank = min(fates, key=lambda rank: (not fates[rank].startswith("SIG"), rank))
        # Overwritten memory ends a rank by chance in one of two ways: malloc aborts, or the next
        # access faults. The answer must not depend on that.
        how = "SIGABRT or SIGSEGV" if fates[rank] in ("SIGABRT", "SIGSEGV") else fates[rank]
        ends = "".join(f"rank {rank}: {fate}\n" for rank, fate in fates.items())
        printed = ends + fork.read_stderr_since(self._printed)
        return WorldFailure(Crashed(f"a rank died: {how}", rank, printed))

    def _hung(
        self, why: str, ranks: set[int], replies: dict[int, RankMessage], raised: Sequence[int] = ()
    ) -> WorldFailure:
        stacks = self._read_stacks(sorted(ranks))
        # Report the lowest rank, not the fastest. Then every run reports the same.
        if raised and isinstance(what := replies[min(raised)], Raised):
            text = f"rank {min(raised)}: {what.error}: {what.line}"
            return WorldFailure(Hung(why, what.place, text, stacks))
        # The others wait for the rank that is furthest behind.
        place = min((self._progress[rank] for rank in ranks), default=-1)
        return WorldFailure(Hung(why, self._places[place], "", stacks))

    def _read_stacks(self, ranks: list[int]) -> tuple[str, ...]:
        """The Python stack of each rank in ``ranks`` without this suite's frames, else ""."""
        for rank in ranks:
            os.kill(self._pids[rank], signal.SIGUSR1)
        stop = time.monotonic() + STACK_SECONDS
        sizes, before = [0], [-1]
        # Wait until all have written and the sizes no longer grow.
        while time.monotonic() < stop and (sizes != before or not all(sizes)):
            time.sleep(0.02)
            before, sizes = sizes, [os.fstat(self._stacks[rank]).st_size for rank in ranks]
        found = [""] * self.size
        for rank in ranks:
            text = os.pread(self._stacks[rank], 1 << 16, 0).decode(errors="replace").strip()
            found[rank] = remove_own_frames(text) or f"(no stack in {STACK_SECONDS} s)"
        return tuple(found)


class _Activity(NamedTuple):
    """A sample of some ranks: the time, processor ticks of each so far, whether any was running."""

    at: float
    used: tuple[int, ...]
    running: bool


def _are_asleep(samples: Sequence[_Activity], seconds: float) -> bool:
    """Whether the ranks have been asleep for ``seconds``."""
    if not samples or samples[-1].at - samples[0].at < seconds:
        return False
    recent = [one for one in samples if samples[-1].at - one.at <= seconds + SAMPLE_INTERVAL]
    used = max(last - first for first, last in zip(recent[0].used, recent[-1].used, strict=True))
    awake = sum(one.running for one in recent)
    return used <= MAX_TICKS and awake <= MAX_RUNNING_SHARE * len(recent)


def _stat(path: str) -> list[str]:
    """The fields of a ``stat`` file of proc(5), starting at the third, which is the state."""
    with open(path) as file:
        return file.read().rpartition(")")[2].split()


class _Inbox:
    """A buffer for the bytes of one rank that are not yet a complete message."""

    def __init__(self, rank: int):
        self.rank = rank
        self._received = FrameBuffer()

    def fill(self, link: socket.socket) -> bool:
        """Read the available bytes. False if the rank has closed its end."""
        try:
            data = link.recv(1 << 20)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        self._received.add(data)
        return bool(data)

    def next(self) -> RankMessage | None:
        """The next complete message. None if there is not one yet."""
        body = self._received.next()
        return None if body is None else rank_messages.from_rank.decode(body)
