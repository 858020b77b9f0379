"""What does ``jax.jit`` do with a whole program on an Auto mesh?

The program is compiled once. The answer has the values of all checked results, and the collectives
of the whole program. It has layouts only of results that no later step uses, because the compiler
propagates layouts backwards. The addends of a partial input are stacked on leading dims and reduced
inside. A partial result cannot be expressed.
"""

from __future__ import annotations

import traceback
from contextlib import nullcontext

import jax
import msgspec

from adapters.answer import Observed
from adapters.jax_xla import arrays, compat, mesh_views, run_lines, source_lines
from adapters.jax_xla.answer_in_progress import (
    AnswerInProgress,
    observe_array,
    observe_without_data,
)
from adapters.jax_xla.attempt import RefusedByJax
from adapters.jax_xla.compiled_program import Compiler, output_structs, run
from adapters.jax_xla.recipes import answer as recipe
from cases.mesh_derivation import meshes_of_tensors
from cases.model import Input, Mesh, Question


def answer(compiler: Compiler, question: Question, notes: AnswerInProgress) -> None:
    """Write the observations of this route into ``notes``.

    Raises:
        RefusedByJax: JAX refused a step or an input.
    """
    if question.recipe is not None:
        recipe.answer(compiler, question, notes)
        return
    on, places = meshes_of_tensors(question), source_lines.mesh_texts(question)
    there = mesh_views.make_meshes(question, "Auto", notes)
    placed = {}
    for given in question.inputs:
        mesh = on[given.name]
        full_mesh = mesh_views.find_mesh(there, places[given.name])
        placed[given.name] = arrays.place_input(given, mesh, full_mesh, True, notes.is_dry_run)
        if notes.wants(given.name):
            notes.see(_input(given, placed[given.name], mesh), mesh)
    if not question.steps:
        return
    # Line i of the program belongs to names[i]. A traceback can be mapped to a step.
    source, names = [], []
    about = [(given.name, source_lines.reduce_lines(given)) for given in question.inputs]
    about += [
        (step.result, source_lines.step_lines(question, step, "jit", compat.RELEASE))
        for step in question.steps
    ]
    for name, texts in about:
        source += texts
        names += [name] * len(texts)
    results = [step.result for step in question.steps if notes.wants(step.result)]
    function = run_lines.function(list(placed), source, results, there)
    arguments = list(placed.values())
    last = question.steps[-1].result
    at = last if len(question.steps) == 1 else "program"
    try:
        # Without an input, the mesh context says which devices the program is for. In a release
        # without a mesh context, a requested layout does.
        known = any(step.to is not None for step in question.steps)
        known = bool(placed) or (known and not compat.has("jax.set_mesh as a context"))
        with nullcontext() if known else compat.mesh_context(there["mesh"], at):
            program = notes.keep_complaints(compiler.compile(at, function, arguments, on[last]))
        outputs = output_structs(program) if notes.is_dry_run else run(program, arguments)
    except RefusedByJax as stopped:
        raise _located(stopped, names) from stopped.__cause__
    notes.program = program.collectives
    notes.count_memory(program)
    consumed = {arg for step in question.steps for arg in step.args}
    for name, output in zip(results, outputs, strict=True):
        notes.see(observe_array(name, output, on[name], with_layout=name not in consumed), on[name])


def _input(given: Input, array: arrays.ArrayOrStruct, mesh: Mesh) -> Observed:
    if not given.layout.partial:
        return observe_array(given.name, array, mesh)
    # For JAX this is an array with the addends on leading dims. The answer omits these dims.
    lead = len(given.layout.partial)
    if isinstance(array, jax.ShapeDtypeStruct):
        return observe_without_data(given.name, array, None, "", lead)
    shards, _ = arrays.shards_of(array, mesh)
    addends = tuple(
        shard and msgspec.structs.replace(shard, shape=shard.shape[lead:]) for shard in shards
    )
    return Observed(given.name, array.dtype.name, given.shape, shards=addends)


def _located(stopped: RefusedByJax, names: list[str]) -> RefusedByJax:
    if stopped.__cause__ is None:
        return stopped
    for frame, number in traceback.walk_tb(stopped.__cause__.__traceback__):
        if frame.f_code.co_filename == run_lines.FILENAME and 0 <= number - 2 < len(names):
            return RefusedByJax(msgspec.structs.replace(stopped.end, step=names[number - 2]))
    return stopped
