"""How does DTensor answer a question? One gloo process per device evaluates it.

The adapter keeps one world of ranks for each number of devices. It replaces a world that may be
damaged. Dry runs run in one forked process. This module does not know which answers are right.
"""

from __future__ import annotations

import functools
import gc
import os
import platform
import time

import torch

from adapters.answer import Answer, Collective, Done, End, Observed, Refused, Unsupported
from adapters.forked_adapter import ForkedAdapter
from adapters.protocol import VERSION, Hello
from adapters.torch_dtensor import merge_ranks, rank
from adapters.torch_dtensor.compat import RELEASE
from adapters.torch_dtensor.dry_run import DryRunAdapter
from adapters.torch_dtensor.names import HIDDEN_COLLECTIVES, promises
from adapters.torch_dtensor.rank_messages import (
    Continue,
    FullTensors,
    Raised,
    Report,
    SendFullTensors,
    Task,
)
from adapters.torch_dtensor.recorder import Recorder
from adapters.torch_dtensor.task_lines import make_task, ranks_in_meshes
from adapters.torch_dtensor.world import World, WorldFailure
from adapters.unsupported import CannotAnswer
from cases.model import Question


def connect(devices: int) -> TorchAdapter:
    """The adapter for questions on up to ``devices`` devices. It does not start a process yet."""
    # All ranks are on this machine. Without this, gloo looks up the host name for an interface.
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    # The ranks provide the parallelism. They are forked, and thread pools do not survive a fork.
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    # Frozen objects are never collected, so the ranks keep sharing their memory.
    gc.collect()
    gc.freeze()
    return TorchAdapter(devices)


class TorchAdapter:
    """PyTorch DTensor, live. See `adapters.protocol.Adapter`."""

    def __init__(self, devices: int):
        self._devices = devices
        self._worlds: dict[int, World] = {}
        self._serve = functools.partial(rank.serve, recorder=Recorder())
        hello = self.hello()
        self._dry_runs = ForkedAdapter(hello, lambda: DryRunAdapter(hello))

    def hello(self) -> Hello:
        """The release of torch and its facts."""
        facts = ("gloo", f"{self._devices} ranks")
        return Hello(
            VERSION,
            "torch",
            RELEASE,
            platform.python_version(),
            facts,
            os.getpid(),
            HIDDEN_COLLECTIVES,
            promises(RELEASE),
        )

    def observe(self, question: Question, subject: str, seconds: float) -> Answer:
        """The answer of DTensor. This takes at most about ``seconds`` seconds."""
        if question.mode == "dry run":
            return self._dry_runs.observe(question, subject, seconds)
        deadline = time.monotonic() + seconds
        try:
            lines = make_task(question)
            size = lines.world_size
            if size > self._devices:
                raise CannotAnswer(f"{size} devices, of {self._devices}")
        except CannotAnswer as error:
            return Answer(question.id, subject, Unsupported(error.why, error.place))
        # Irregular shards can leave unread bytes in a connection, which the next task would read.
        irregular = any(given.irregular for given in question.inputs)
        fresh = question.fresh or bool(question.mesh_steps) or irregular
        world = World(size, self._serve) if fresh else self._get_world(size)
        exchange = _Exchange(world, lines, deadline)
        try:
            exchange.run()
        except WorldFailure as fault:
            exchange.end, exchange.seen, exchange.reusable = fault.end, (), False
        finally:
            if fresh:
                world.close()
            elif not exchange.reusable:
                self._worlds.pop(size).close()
        return Answer(
            question.id,
            subject,
            exchange.end,
            exchange.seen,
            exchange.program,
            complaints=tuple(exchange.complaints),
            apart=tuple(exchange.apart),
        )

    def close(self) -> None:
        """End every rank."""
        self._dry_runs.close()
        for world in self._worlds.values():
            world.close()
        self._worlds.clear()

    def _get_world(self, size: int) -> World:
        world = self._worlds.get(size)
        if world is None or not world.usable():
            if world is not None:
                world.close()
            world = self._worlds[size] = World(size, self._serve)
        return world


class _Exchange:
    """The exchange with a world about one task.

    ``reusable``: whether the world can take another task. It starts as False, so that an exception
    in this suite also discards the world.
    """

    def __init__(self, world: World, lines: Task, deadline: float):
        self._world = world
        self._task = lines
        self._deadline = deadline
        self._members = ranks_in_meshes(lines)
        self.end: End = Done()
        self.seen: tuple[Observed, ...] = ()
        self.program: tuple[Collective, ...] | None = None
        self.complaints: list[str] = []
        self.apart: list[str] = []
        self.reusable = False
        self._clean = True

    def run(self) -> None:
        """Send the task and receive the reports of all ranks.

        Raises:
            WorldFailure: a rank died, or was silent for too long.
        """
        messages = self._world.ask(self._task, self._deadline)
        reports: dict[int, Report] = {}
        while True:
            raised = {r: one for r, one in sorted(messages.items()) if isinstance(one, Raised)}
            reports |= {r: one for r, one in messages.items() if isinstance(one, Report)}
            if not raised:
                break
            self._note_errors(raised)
            finished = [r for r in sorted(reports) if r in self._members]
            if finished or not merge_ranks.raised_in_step(list(raised.values())):
                self.apart += [f"rank {r} finished" for r in finished]
                return
            # No rank waits for another, so all can continue together.
            self._world.send(Continue(), raised, self._deadline)
            messages = self._world.hear(raised, self._deadline)
        self._finish(dict(sorted(reports.items())))

    def _note_errors(self, raised: dict[int, Raised]) -> None:
        first = raised[min(raised)]
        # A rank may have raised halfway through a collective.
        self._clean = self._clean and not any(one.halfway for one in raised.values())
        self.apart += merge_ranks.format_error_differences(raised)
        if not isinstance(self.end, Done):
            return
        if first.missing:
            self.end = Unsupported(first.line, first.place)
        else:
            self.end = Refused(first.error, first.line, first.place)

    def _finish(self, reports: dict[int, Report]) -> None:
        fulls = {}
        if names := merge_ranks.find_differing_full_tensors(reports):
            self._world.send(SendFullTensors(names), self._members, self._deadline)
            messages = self._world.hear(self._members, self._deadline)
            fulls = {r: one.arrays for r, one in messages.items() if isinstance(one, FullTensors)}
        homes = {home.name: home.mesh for home in self._task.homes}
        self.seen = merge_ranks.merge_observations(self._task.mesh, reports, fulls, homes)
        self.program = merge_ranks.merge_program_collectives(reports)
        self.complaints += merge_ranks.format_program_differences(reports)
        for number, report in reports.items():
            self.complaints += [f"rank {number}: {one}" for one in report.complaints]
        self.reusable = self._clean
