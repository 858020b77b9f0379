"""Which collectives does a compiled program have, and how does it run?

Each program is lowered and compiled once. Its collectives are read from XLA's dump after the SPMD
partitioner, which needs no second compilation. Later passes merge all-reduces. On CPU they also
widen bfloat16 collectives to float32.
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

# The pass whose result is read. The file name of its dump contains this.
_PASS = "spmd-partitioning"
_MEMORY = "/dev/shm"
# The most programs that `Compiler.once` keeps.
_KEPT = 512


class CompiledProgram(msgspec.Struct, frozen=True):
    """A compiled function for the step ``step`` of a question.

    ``collectives``: None if they could not be read. Then a complaint says why.
    ``shapes``: returns shapes and dtypes of the results.
    """

    step: str
    compiled: Callable[..., Any]
    shapes: Callable[[], Any]
    collectives: tuple[Collective, ...] | None
    complaints: tuple[str, ...]


def output_structs(program: CompiledProgram) -> Any:
    """The shapes, dtypes and shardings of the results."""
    return compat.compiled_outputs(program.compiled, program.shapes)


def peak_bytes(program: CompiledProgram) -> int | None:
    """The bytes that XLA allocates on one device for arguments, results and temporaries.

    Temporaries share memory where possible. None if XLA does not report them.
    """
    if not compat.has("Compiled.memory_analysis"):
        return None
    compiled: Any = program.compiled
    # On a CPU, ``peak_memory_in_bytes`` does not count temporaries.
    stats = compiled.memory_analysis()
    if stats is None:
        return None
    buffers = stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
    return int(buffers + stats.temp_size_in_bytes)


def run(program: CompiledProgram, arguments: Sequence[Any]) -> Any:
    """Run the program and wait for its results.

    Raises:
        RefusedByJax: JAX refused to run it.
    """
    # Waiting makes a failure belong to this step, not to a later read of the result.
    return attempt(program.step, lambda: jax.block_until_ready(program.compiled(*arguments)))


class Compiler:
    """Compiles programs. It owns the directory for XLA's dumps."""

    def __init__(self) -> None:
        # XLA writes many files that are not read. In memory that takes half as long as on a disk.
        chosen = "TMPDIR" in os.environ
        memory = _MEMORY if os.access(_MEMORY, os.W_OK) and not chosen else None
        self._directory = tempfile.TemporaryDirectory(prefix="shard-parity-hlo-", dir=memory)
        self._kept: dict[Hashable, CompiledProgram] = {}

    def close(self) -> None:
        """Remove the dump directory."""
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

        ``late``: leave out the collectives before a gradient. ``results``: the ``out_shardings`` of
        ``jax.jit``. If it is None, the compiler chooses.

        Raises:
            RefusedByJax: JAX refused to trace, lower or compile it. The end names ``step``.
        """
        # Before 0.7, ``out_shardings=None`` overrides explicit sharding types, so it is left out.
        shardings = {} if results is None else {"out_shardings": results}
        lowered = attempt(step, lambda: jax.jit(function, **shardings).lower(*arguments))
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
        """The program that ``make`` returns, cached by ``key``."""
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
        # With one partition, XLA runs no partitioner, and there are no collectives.
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
    """`collectives.count_collectives` with XLA's own parser, as a cross-check.

    None if this release cannot count them. The facts of `Hello` then say so.
    """
    if (every := compat.count_opcodes(text)) is None:
        return None
    found: Counter[str] = Counter()
    for opcode, count in every.items():
        if (base := collectives.started_collective(opcode)) is not None:
            found[base] += count
    return found
