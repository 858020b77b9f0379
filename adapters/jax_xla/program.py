"""What does one compiled program do? Its collectives, and the call that runs it.

Each program is lowered once and compiled once. Its collectives are those that the SPMD
partitioner put in, read from XLA's dump of that stage: later passes merge all-reduces, and
on CPU widen every bfloat16 collective to float32. A dump needs no second compilation, and
the program that runs is the ordinary one.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import msgspec
from jaxlib import _hlo  # type: ignore[attr-defined]

from adapters.answer import Collective
from adapters.jax_xla import collectives, hlo
from adapters.jax_xla.attempt import attempt
from cases.model import Mesh

# The pass whose result is read, and the part of its dump's file name that says so.
_PASS = "spmd-partitioning"
_MEMORY = "/dev/shm"
# Programs kept by `Compiler.once` at most.
_KEPT = 512


class Program(msgspec.Struct, frozen=True):
    """A compiled function. ``step`` is where it stands in the question.

    ``collectives``: None where they could not be read, and then a complaint says why.
    """

    step: str
    compiled: Callable[..., Any]
    collectives: tuple[Collective, ...] | None
    complaints: tuple[str, ...]


def run(program: Program, arguments: Sequence[jax.Array]) -> Any:
    """What the program returns, once it is there.

    Raises:
        Stopped: JAX refused to run it.
    """
    # Waits, so that a failure is this step's and not that of whoever reads the result.
    return attempt(program.step, lambda: jax.block_until_ready(program.compiled(*arguments)))


class Compiler:
    """Compiles, and owns the directory that XLA dumps into. Lives as long as its adapter."""

    def __init__(self) -> None:
        # XLA writes more there than is read: in memory that costs half of what it does on a disk.
        chosen = "TMPDIR" in os.environ
        memory = _MEMORY if os.access(_MEMORY, os.W_OK) and not chosen else None
        self._directory = tempfile.TemporaryDirectory(prefix="shard-parity-hlo-", dir=memory)
        self._kept: dict[Hashable, Program] = {}

    def close(self) -> None:
        """Remove the directory."""
        self._directory.cleanup()

    def compile(
        self,
        step: str,
        function: Callable[..., Any],
        arguments: Sequence[jax.Array],
        mesh: Mesh,
        late: bool = False,
    ) -> Program:
        """The program of ``function`` for these arguments.

        ``late``: of its collectives, those before a gradient are left out.

        Raises:
            Stopped: JAX refused to trace, lower or compile it; at ``step``.
        """
        lowered = attempt(step, lambda: jax.jit(function).lower(*arguments))
        options: dict[str, str | bool] = {
            "xla_dump_to": self._directory.name,
            "xla_dump_hlo_pass_re": f"^{_PASS}$",
        }
        try:
            compiled = attempt(step, lambda: lowered.compile(options))
        finally:
            texts = self._take_dump()
        executable: Any = compiled.runtime_executable()
        devices = [device.id for device in executable.local_devices()]
        found, complaints = _read(texts, devices, mesh, late)
        return Program(step, compiled, found, tuple(complaints))

    def once(self, key: Hashable, make: Callable[[], Program]) -> Program:
        """The program that ``make`` returned for ``key`` before, or returns now."""
        if key not in self._kept:
            if len(self._kept) == _KEPT:
                self._kept.clear()
            self._kept[key] = make()
        return self._kept[key]

    def _take_dump(self) -> list[str]:
        texts = []
        with os.scandir(self._directory.name) as entries:
            for entry in entries:
                if f".after_{_PASS}." in entry.name:
                    with open(entry.path, encoding="utf-8") as file:
                        texts.append(file.read())
                os.unlink(entry.path)
        return texts


def _read(
    texts: list[str], devices: list[int], mesh: Mesh, late: bool
) -> tuple[tuple[Collective, ...] | None, list[str]]:
    if not texts and len(devices) == 1:
        # One partition: XLA runs no partitioner and there is nobody to talk to.
        return (), []
    if len(texts) != 1 or not set(devices) <= set(mesh.devices):
        return None, [f"{len(texts)} dumps of {_PASS}, on devices {devices}"]
    position = {device: at for at, device in enumerate(mesh.devices)}
    try:
        module = hlo.parse(texts[0])
        positions = tuple(position[device] for device in devices)
        found = collectives.found_in(module, mesh, positions, late)
    except hlo.HloError as error:
        return None, [f"HLO text: {error}"]
    ours, theirs = collectives.counts(module), _counted_by_xla(texts[0])
    if ours != theirs:
        return found, [f"our parser counts {dict(ours)}, XLA's own {dict(theirs)}"]
    return found, []


def _counted_by_xla(text: str) -> Counter[str]:
    """As `collectives.counts`, but read by XLA's own parser: the cross-check of ours."""
    module = _hlo.hlo_module_from_text(text)
    opcodes = (
        # HloOpcode.kAllGatherStart is all-gather-start.
        re.sub(r"(?<=.)(?=[A-Z])", "-", str(instruction.opcode).partition(".k")[2]).lower()
        for computation in module.computations()
        for instruction in computation.instructions()
    )
    return Counter(base for opcode in opcodes if (base := collectives.started(opcode)) is not None)
