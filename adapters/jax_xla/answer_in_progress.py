"""What has one route seen of one question so far? An answer that is not finished.

Routes write into it step by step, so that what was reached before a refusal is kept.
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
    """Lives while one route answers one question."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.seen: list[Observed] = []
        self.complaints: list[str] = []
        self.program: tuple[Collective, ...] | None = None
        self.peak: int | None = None

    @property
    def plan(self) -> bool:
        """Whether there is no data, so that programs are compiled and not run."""
        return self.question.mode == "dry run"

    def weigh(self, program: CompiledProgram, beside: Iterable[arrays.ArrayOrStruct] = ()) -> None:
        """Count what a device holds while ``program`` runs, and what it holds in addition."""
        if self.plan and (own := peak_bytes(program)) is not None:
            self.peak = max(self.peak or 0, own + sum(map(arrays.local_bytes, beside)))

    def wants(self, name: str) -> bool:
        """Whether the input or result called ``name`` is to be shown."""
        return name in self.question.check

    def see(self, observed: Observed, mesh: Mesh) -> None:
        """Show an input or result on ``mesh``, which is named if it is not the question's."""
        own = None if mesh == self.question.mesh else mesh
        self.seen.append(msgspec.structs.replace(observed, mesh=own))

    def heed(self, program: CompiledProgram) -> CompiledProgram:
        """Keep the program's complaints; returns the program."""
        self.complaints.extend(f"{program.step}: {one}" for one in program.complaints)
        return program

    def finish(self, subject: str, end: End) -> Answer:
        """The answer, however it ended."""
        return Answer(
            self.question.id, subject, end, tuple(self.seen), self.program, tuple(self.complaints),
            peak=self.peak if isinstance(end, Done) else None,
        )  # fmt: skip


def observe_array(
    name: str, array: arrays.ArrayOrStruct, mesh: Mesh, with_layout: bool = True
) -> Observed:
    """What JAX says about an array with a global value; ``collectives`` and ``mesh`` stay None."""
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
    """What JAX says about an array without data, shown without ``lead`` dims."""
    local = arrays.local_shape(array, lead)
    return Observed(name, array.dtype.name, array.shape[lead:], layout, note=note, local=local)
