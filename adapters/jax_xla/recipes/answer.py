"""How does JAX answer a question about a recipe? It runs one training step under ``jax.jit``.

The answer shows all tensors of the step. With data, it also shows the same step on one device.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from adapters.answer import Observed
from adapters.jax_xla import answer_in_progress, arrays, compat
from adapters.jax_xla.answer_in_progress import AnswerInProgress
from adapters.jax_xla.attempt import attempt
from adapters.jax_xla.compiled_program import Compiler, output_structs, run
from adapters.jax_xla.recipes import step
from cases.arrays import pack
from cases.model import Question
from cases.recipes import recipe_of, sizes_of
from cases.recipes.layouts import observed_names, unsharded_names
from cases.recipes.parameter_values import all_arrays


def answer(compiler: Compiler, question: Question, notes: AnswerInProgress) -> None:
    """Write the observations of one training step of the question's recipe into ``notes``.

    Raises:
        RefusedByJax: JAX refused an input, or the step.
    """
    assert question.recipe is not None
    row, sizes, dtype = recipe_of(question), sizes_of(question), question.recipe.dtype
    mesh = question.mesh
    made = step.sharded_step(row, sizes, mesh)
    given: dict[str, arrays.ArrayOrStruct]
    if notes.is_dry_run:
        given = dict(step.input_structs(row, sizes, dtype, made))
    else:
        values = all_arrays(row.model, sizes, dtype)
        given = attempt("inputs", lambda: jax.device_put(values, made.arguments))
    shown = observed_names(row)
    for name in shown:
        if name in given:
            notes.see(answer_in_progress.observe_array(name, given[name], mesh), mesh)
    program = notes.keep_complaints(
        compiler.compile("step", made.function, [given], mesh, results=made.results)
    )
    outputs = output_structs(program) if notes.is_dry_run else run(program, [given])
    notes.program = program.collectives
    notes.count_memory(program)
    for name in shown:
        if name in outputs:
            notes.see(answer_in_progress.observe_array(name, outputs[name], mesh), mesh)
    if notes.is_dry_run:
        return
    results = attempt("plain", lambda: _plain(row.model, tuple(sizes.items()), dtype))
    for name in unsharded_names(row):
        array = results[name.removeprefix("plain/")]
        notes.see(Observed(name, array.dtype.name, array.shape, full=(pack(array),)), mesh)


# The unsharded step is the same for every recipe of a model, on every mesh.
@lru_cache(maxsize=64)
def _plain(model: str, sizes: tuple[tuple[str, int], ...], dtype: str) -> dict[str, NDArray[Any]]:
    values = all_arrays(model, dict(sizes), dtype)
    lowered = jax.jit(step.unsharded_step(model, dict(sizes))).lower(values)
    results = lowered.compile(compat.FAST_COMPILE_OPTIONS)(values)
    return {name: np.asarray(result) for name, result in results.items()}
