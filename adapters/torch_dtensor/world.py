"""How are ranks started, asked and ended? A group of forked processes, and what can happen to them.

Notices deaths, silence and deadlines, and turns them into ends of answers. Of a message it only
knows whether a rank raised. This process is forked, so nothing here may start a thread.
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

# If ranks that are waited for say nothing for so many seconds, and hardly used or wanted a
# processor, they wait for one another for ever. Ranks that only lack a processor are runnable and
# not asleep. Ranks that are about to raise may be at work for a minute first: torch 2.15 lays
# attention out.
SILENCE = 2.0
# The same after one of the ranks has raised and will not come.
SILENCE_AFTER_ERROR = 1.0
# Seconds between looks at the ranks.
SAMPLE_INTERVAL = 0.25
# The share of looks that may find a rank running: threads of gloo wake up now and then.
MAX_RUNNING_SHARE = 0.25
# Clock ticks of a processor, some 10 ms each, that a rank may use meanwhile.
MAX_TICKS = 3
# Seconds for ranks to write their stacks. A signal handler takes microseconds.
STACK_SECONDS = 0.4
# Seconds for a rank to end after its link has ended.
EXIT_SECONDS = 1.0
# File descriptors of a rank, besides the inherited ones, beyond which its world is renewed. Each
# mesh of two axes costs a rank some 12, and 6 threads; with thousands everything is several times
# slower.
FD_LIMIT = 256

Serve = Callable[[int, int, socket.socket, str, int, memoryview], None]


class WorldFailure(Exception):
    """The world cannot be used again; ``end`` says how the question that met this ended."""

    def __init__(self, end: Crashed | Hung):
        super().__init__(str(end))
        self.end = end


class World:
    """Ranks 0 to ``size`` - 1, alive from here to `close`, each running ``serve``.

    Ranks meet in a file in memory, so that those of two worlds cannot. They talk over the loopback
    interface, and die with this process.

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
        self._inherited = len(os.listdir("/proc/self/fd"))
        for number in range(size):
            live = functools.partial(self._live, number, serve)
            pid, link = fork.fork_child(live, (self._store, self._stacks[number]))
            link.setblocking(False)
            self._pids.append(pid)
            self._links.append(link)
            self._selector.register(link, selectors.EVENT_READ, _Inbox(number))

    def _live(self, number: int, serve: Serve, link: socket.socket) -> None:
        """What a rank does in its own process, from its fork to its end."""
        store = f"/proc/self/fd/{self._store}"
        serve(number, self.size, link, store, self._stacks[number], self._progress)

    def usable(self) -> bool:
        """Whether every rank lives and has file descriptors to spare."""
        # A rank sends nothing unasked, so if there is something to read it is the end.
        if self._selector.select(0):
            return False
        grown, self._grown = self._grown, False
        return not grown or all(len(os.listdir(f"/proc/{pid}/fd")) < FD_LIMIT for pid in self._pids)

    def ask(self, task: Task, deadline: float) -> dict[int, RankMessage]:
        """Give a task to every rank; the first message of each about it.

        Raises:
            WorldFailure: as for `send` and `hear`.
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
            WorldFailure: a rank is dead, or does not listen by ``deadline`` (of `time.monotonic`).
        """
        body = rank_messages.encode_frame(message)
        for rank in ranks:
            left = memoryview(body)
            while left:
                try:
                    left = left[self._links[rank].send(left) :]
                except BlockingIOError:
                    self._wait(rank, deadline)
                except ConnectionError:
                    raise self._crashed(rank) from None

    def _wait(self, rank: int, deadline: float) -> None:
        """Wait until the link of a rank takes more, which an idle rank's does at once."""
        seconds = max(deadline - time.monotonic(), 0)
        if not select.select([], [self._links[rank]], [], seconds)[1]:
            raise self._hung("a rank does not listen", {rank}, {})

    def hear(self, ranks: Iterable[int], deadline: float) -> dict[int, RankMessage]:
        """The next message of each of some ranks.

        Raises:
            WorldFailure: a rank of the world died, or some were silent: at ``deadline``, or when
                all of them have been asleep for `SILENCE`, or for `SILENCE_AFTER_ERROR` if another
                has raised.
        """
        due = set(ranks)
        said: dict[int, RankMessage] = {}
        raised: list[int] = []
        looks: list[_Activity] = []
        while due:
            left = deadline - time.monotonic()
            for_ever = _are_asleep(looks, SILENCE_AFTER_ERROR if raised else SILENCE)
            if left <= 0 or for_ever:
                why = "every rank waits, and none works" if for_ever else "no answer in time"
                if for_ever and raised:
                    why = f"rank {min(raised)} raised, and others waited for it in a collective"
                raise self._hung(why, due, said, raised)
            dead = []
            heard = self._selector.select(min(left, SAMPLE_INTERVAL))
            looks = [] if heard else [*looks, *self._look(due)]
            for key, _ in heard:
                inbox: _Inbox = key.data
                if not inbox.fill(self._links[inbox.rank]):
                    dead.append(inbox.rank)
                elif inbox.rank in due and (message := inbox.next()) is not None:
                    said[inbox.rank] = message
                    due.discard(inbox.rank)
                    if isinstance(message, Raised):
                        raised.append(inbox.rank)
            if dead:
                raise self._crashed(*dead)
        return said

    def _look(self, ranks: Iterable[int]) -> list[_Activity]:
        """What the ranks are doing; None if one is just ending, which its link will tell."""
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
        """Kill every rank and wait until it is gone. May be called again."""
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
        # If several died, a killed one is more likely the cause than one that left.
        rank = min(fates, key=lambda rank: (not fates[rank].startswith("SIG"), rank))
        # If several die of one fault, chance decides which of them is found dead first. Chance also
        # decides how overwritten memory ends them: malloc aborts, or the next access faults.
        how = "SIGABRT or SIGSEGV" if fates[rank] in ("SIGABRT", "SIGSEGV") else fates[rank]
        ends = "".join(f"rank {rank}: {fate}\n" for rank, fate in fates.items())
        printed = ends + fork.read_stderr_since(self._printed)
        return WorldFailure(Crashed(f"a rank died: {how}", rank, printed))

    def _hung(
        self, why: str, silent: set[int], said: dict[int, RankMessage], raised: Sequence[int] = ()
    ) -> WorldFailure:
        stacks = self._read_stacks(sorted(silent))
        # The lowest rank and not the quickest, so that every run gives the same.
        if raised and isinstance(what := said[min(raised)], Raised):
            text = f"rank {min(raised)}: {what.error}: {what.line}"
            return WorldFailure(Hung(why, what.place, text, stacks))
        # The rank that is furthest behind keeps the others waiting.
        place = min((self._progress[rank] for rank in silent), default=-1)
        return WorldFailure(Hung(why, self._places[place], "", stacks))

    def _read_stacks(self, ranks: list[int]) -> tuple[str, ...]:
        """The Python stack of each of ``ranks`` outside this suite; "" for the others."""
        for rank in ranks:
            os.kill(self._pids[rank], signal.SIGUSR1)
        stop = time.monotonic() + STACK_SECONDS
        sizes, before = [0], [-1]
        # Until all have written, and the texts have stopped growing.
        while time.monotonic() < stop and (sizes != before or not all(sizes)):
            time.sleep(0.02)
            before, sizes = sizes, [os.fstat(self._stacks[rank]).st_size for rank in ranks]
        found = [""] * self.size
        for rank in ranks:
            text = os.pread(self._stacks[rank], 1 << 16, 0).decode(errors="replace").strip()
            found[rank] = remove_own_frames(text) or f"(no stack in {STACK_SECONDS} s)"
        return tuple(found)


class _Activity(NamedTuple):
    """What was seen of some ranks: when, their processor ticks so far, whether one was running."""

    at: float
    used: tuple[int, ...]
    running: bool


def _are_asleep(looks: Sequence[_Activity], seconds: float) -> bool:
    """Whether the ranks have been asleep for so long."""
    if not looks or looks[-1].at - looks[0].at < seconds:
        return False
    recent = [look for look in looks if looks[-1].at - look.at <= seconds + SAMPLE_INTERVAL]
    used = max(last - first for first, last in zip(recent[0].used, recent[-1].used, strict=True))
    awake = sum(look.running for look in recent)
    return used <= MAX_TICKS and awake <= MAX_RUNNING_SHARE * len(recent)


def _stat(path: str) -> list[str]:
    """The fields of a ``stat`` file of proc(5) from the third, the state, on."""
    with open(path) as file:
        return file.read().rpartition(")")[2].split()


class _Inbox:
    """What has come from one rank and is not yet a whole message."""

    def __init__(self, rank: int):
        self.rank = rank
        self._received = FrameBuffer()

    def fill(self, link: socket.socket) -> bool:
        """Take in what has come; False at the end, which is the rank's."""
        try:
            data = link.recv(1 << 20)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        self._received.add(data)
        return bool(data)

    def next(self) -> RankMessage | None:
        """The next whole message, None if there is none yet."""
        body = self._received.next()
        return None if body is None else rank_messages.from_rank.decode(body)
