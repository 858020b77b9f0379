"""What does one compiled program do? Its collectives, and the call that runs it.

Each program is lowered once and compiled once. Its collectives are those that the SPMD partitioner
inserted, read from XLA's dump of that stage: later passes merge all-reduces, and on CPU widen every
bfloat16 collective to float32. A dump needs no second compilation.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import jax
import msgspec

from adapters.answer import Collective
from adapters.jax_xla import collectives, compat, hlo
from adapters.jax_xla.attempt import attempt
from cases.model import Mesh

# The pass whose result is read. Its dump's file name contains this.
_PASS = "spmd-partitioning"
_MEMORY = "/dev/shm"
# The most programs that `Compiler.once` keeps.
_KEPT = 512


class CompiledProgram(msgspec.Struct, frozen=True):
    """A compiled function. ``step`` is where it stands in the question.

    ``collectives``: None if they could not be read; then a complaint says why. ``shapes`` gives
    those of its results, with dtypes.
    """

    step: str
    compiled: Callable[..., Any]
    shapes: Callable[[], Any]
    collectives: tuple[Collective, ...] | None
    complaints: tuple[str, ...]


def output_structs(program: CompiledProgram) -> Any:
    """What the program would return: shapes, dtypes and shardings, with no data."""
    return compat.compiled_outputs(program.compiled, program.shapes)


def peak_bytes(program: CompiledProgram) -> int | None:
    """Bytes that XLA allots on one device for the program: arguments, results and temporaries.

    Temporaries share memory where they can. None if XLA does not tell.
    """
    if not compat.has("Compiled.memory_analysis"):
        return None
    compiled: Any = program.compiled
    # Its own ``peak_memory_in_bytes`` leaves temporaries out on a CPU.
    stats = compiled.memory_analysis()
    if stats is None:
        return None
    held = stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
    return int(held + stats.temp_size_in_bytes)


def run(program: CompiledProgram, arguments: Sequence[Any]) -> Any:
    """What the program returns, after it has run.

    Raises:
        RefusedByJax: JAX refused to run it.
    """
    # Waits, so that a failure belongs to this step and not to the next use of the result.
    return attempt(program.step, lambda: jax.block_until_ready(program.compiled(*arguments)))


class Compiler:
    """Compiles, and owns the directory that XLA dumps into. Lives as long as its adapter."""

    def __init__(self) -> None:
        # XLA writes more files there than are read. In memory that costs half of what it does on a
        # disk.
        chosen = "TMPDIR" in os.environ
        memory = _MEMORY if os.access(_MEMORY, os.W_OK) and not chosen else None
        self._directory = tempfile.TemporaryDirectory(prefix="shard-parity-hlo-", dir=memory)
        self._kept: dict[Hashable, CompiledProgram] = {}

    def close(self) -> None:
        """Remove the directory."""
        self._directory.cleanup()

    def compile(
        self,
        step: str,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        mesh: Mesh,
        late: bool = False,
        results: Any = None,
    ) -> CompiledProgram:
        """The program of ``function`` for these arguments.

        ``late``: leave out its collectives before a gradient. ``results``: the ``out_shardings`` of
        ``jax.jit``, None where the compiler may choose.

        Raises:
            RefusedByJax: JAX refused to trace, lower or compile it; at ``step``.
        """
        # No out_shardings is passed where there is none: before 0.7, None took the place of
        # explicit types.
        told = {} if results is None else {"out_shardings": results}
        lowered = attempt(step, lambda: jax.jit(function, **told).lower(*arguments))
        options: dict[str, str | bool] = {
            **compat.FAST_COMPILE_OPTIONS,
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
        shapes = partial(jax.eval_shape, function, *arguments)
        return CompiledProgram(step, compiled, shapes, found, tuple(complaints))

    def once(self, key: Hashable, make: Callable[[], CompiledProgram]) -> CompiledProgram:
        """The program for ``key``: made before, or by ``make`` now."""
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
        # With one partition XLA runs no partitioner, and there are no other devices.
        return (), []
    if len(texts) != 1 or not set(devices) <= set(mesh.devices):
        return None, [f"{len(texts)} dumps of {_PASS}, on devices {devices}"]
    position = {device: at for at, device in enumerate(mesh.devices)}
    try:
        module = hlo.parse(texts[0])
        positions = tuple(position[device] for device in devices)
        found = collectives.find_collectives(module, mesh, positions, late)
    except hlo.HloError as error:
        return None, [f"HLO text: {error}"]
    ours, theirs = collectives.count_collectives(module), _counted_by_xla(texts[0])
    if theirs is not None and ours != theirs:
        return found, [f"our parser counts {dict(ours)}, XLA's own {dict(theirs)}"]
    return found, []


def _counted_by_xla(text: str) -> Counter[str] | None:
    """As `collectives.count_collectives`, but by XLA's own parser, to check ours.

    None if that does not tell; the worker's facts say so once.
    """
    if (every := compat.count_opcodes(text)) is None:
        return None
    found: Counter[str] = Counter()
    for opcode, count in every.items():
        if (base := collectives.started_collective(opcode)) is not None:
            found[base] += count
    return found
