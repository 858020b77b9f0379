"""How does JAX answer a question about a recipe? By one training step, of which all is shown.

One program under ``jax.jit``, and where there is data the same step on one device beside it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from adapters.answer import Observed
from adapters.jax_xla import answering, arrays, compat
from adapters.jax_xla.answering import Answering
from adapters.jax_xla.attempt import attempt
from adapters.jax_xla.program import Compiler, planned, run
from adapters.jax_xla.recipes import step
from cases.arrays import pack
from cases.model import Question
from cases.recipes import row_of, sizes_of
from cases.recipes.layouts import observed, plain
from cases.recipes.values import all_values


def answer(compiler: Compiler, question: Question, notes: Answering) -> None:
    """Write what a training step of the question's recipe does into ``notes``.

    Raises:
        Stopped: JAX refused an input, or the step.
    """
    assert question.recipe is not None
    row, sizes, dtype = row_of(question), sizes_of(question), question.recipe.dtype
    mesh = question.mesh
    made = step.sharded(row, sizes, mesh)
    given: dict[str, arrays.Value]
    if notes.plan:
        given = dict(step.structs(row, sizes, dtype, made))
    else:
        values = all_values(row.model, sizes, dtype)
        given = attempt("inputs", lambda: jax.device_put(values, made.arguments))
    shown = observed(row)
    for name in shown:
        if name in given:
            notes.see(answering.plain(name, given[name], mesh), mesh)
    program = notes.heed(
        compiler.compile("step", made.function, [given], mesh, results=made.results)
    )
    outputs = planned(program) if notes.plan else run(program, [given])
    notes.program = program.collectives
    notes.weigh(program)
    for name in shown:
        if name in outputs:
            notes.see(answering.plain(name, outputs[name], mesh), mesh)
    if notes.plan:
        return
    whole = attempt("plain", lambda: _plain(row.model, tuple(sizes.items()), dtype))
    for name in plain(row):
        array = whole[name.removeprefix("plain/")]
        notes.see(Observed(name, array.dtype.name, array.shape, full=(pack(array),)), mesh)


# The same for every recipe of a model, on every mesh.
@lru_cache(maxsize=64)
def _plain(model: str, sizes: tuple[tuple[str, int], ...], dtype: str) -> dict[str, NDArray[Any]]:
    values = all_values(model, dict(sizes), dtype)
    lowered = jax.jit(step.plain(model, dict(sizes))).lower(values)
    results = lowered.compile(compat.QUICK)(values)
    return {name: np.asarray(result) for name, result in results.items()}
