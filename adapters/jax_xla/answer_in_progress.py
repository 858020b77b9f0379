"""What has one route observed for one question so far?

Routes add observations step by step. Observations before an error are kept.
"""

from __future__ import annotations

from collections.abc import Iterable

import jax
import msgspec
import numpy as np

from adapters.answer import Answer, Collective, Done, End, Observed
from adapters.jax_xla import arrays
from adapters.jax_xla.compiled_program import CompiledProgram, peak_bytes
from cases.arrays import pack
from cases.model import Foreign, Layout, Mesh, Question


class AnswerInProgress:
    """The observations of one route for one question."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.seen: list[Observed] = []
        self.complaints: list[str] = []
        self.program: tuple[Collective, ...] | None = None
        self.peak: int | None = None

    @property
    def is_dry_run(self) -> bool:
        """Whether this is a dry run, which compiles programs but does not run them."""
        return self.question.mode == "dry run"

    def count_memory(
        self, program: CompiledProgram, beside: Iterable[arrays.ArrayOrStruct] = ()
    ) -> None:
        """In a dry run, update the peak: the bytes of ``program`` and of the arrays ``beside``."""
        if self.is_dry_run and (peak := peak_bytes(program)) is not None:
            self.peak = max(self.peak or 0, peak + sum(map(arrays.local_bytes, beside)))

    def wants(self, name: str) -> bool:
        """Whether the question checks the input or result ``name``."""
        return name in self.question.check

    def see(self, observed: Observed, mesh: Mesh) -> None:
        """Add an observation on ``mesh``. It names the mesh, unless that is the question's mesh."""
        other = None if mesh == self.question.mesh else mesh
        self.seen.append(msgspec.structs.replace(observed, mesh=other))

    def keep_complaints(self, program: CompiledProgram) -> CompiledProgram:
        """Add the complaints of a program, and return the program."""
        self.complaints.extend(f"{program.step}: {one}" for one in program.complaints)
        return program

    def finish(self, subject: str, end: End) -> Answer:
        """The answer with all observations so far."""
        return Answer(
            self.question.id, subject, end, tuple(self.seen), self.program, tuple(self.complaints),
            peak=self.peak if isinstance(end, Done) else None,
        )  # fmt: skip


def observe_array(
    name: str, array: arrays.ArrayOrStruct, mesh: Mesh, with_layout: bool = True
) -> Observed:
    """The observation of an array with a global value, without ``collectives`` and ``mesh``."""
    layout, note = arrays.layout_of(array, mesh) if with_layout else (None, "")
    if isinstance(array, jax.ShapeDtypeStruct):
        return observe_without_data(name, array, layout, note)
    shards, offsets = arrays.shards_of(array, mesh)
    full = (pack(np.asarray(array)),)
    return Observed(name, array.dtype.name, array.shape, layout, shards, offsets, full, note=note)


def observe_without_data(
    name: str,
    array: jax.ShapeDtypeStruct,
    layout: Layout | Foreign | None,
    note: str,
    lead: int = 0,
) -> Observed:
    """The observation of an array without data. The first ``lead`` dims are left out."""
    local = arrays.local_shape(array, lead)
    return Observed(name, array.dtype.name, array.shape[lead:], layout, note=note, local=local)
