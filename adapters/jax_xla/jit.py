"""What does ``jax.jit`` make of a whole program on an Auto mesh?

One program, one compilation: values of every checked result, layouts of those that nothing
later consumes (the compiler propagates the layouts of others backwards), and the collectives
of the program as one. Partial inputs arrive as addends stacked on leading dims and are
reduced inside; a partial result has no form here.
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
    """Write what this route sees of the question into ``notes``.

    Raises:
        RefusedByJax: how it ended, if not at the end of the program.
    """
    if question.recipe is not None:
        recipe.answer(compiler, question, notes)
        return
    on, places = meshes_of_tensors(question), source_lines.mesh_texts(question)
    there = mesh_views.make_meshes(question, "Auto", notes)
    placed = {}
    for given in question.inputs:
        mesh = on[given.name]
        whole = mesh_views.find_mesh(there, places[given.name])
        placed[given.name] = arrays.place_input(given, mesh, whole, True, notes.plan)
        if notes.wants(given.name):
            notes.see(_input(given, placed[given.name], mesh), mesh)
    if not question.steps:
        return
    # Line i of the program is about names[i]: so a traceback tells the step at fault.
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
        # Where there is no input, the mesh in force says which devices the program is for; in a
        # release that has no such thing, a layout asked for does.
        said = any(step.to is not None for step in question.steps)
        said = bool(placed) or (said and not compat.has("jax.set_mesh as a context"))
        with nullcontext() if said else compat.mesh_context(there["mesh"], at):
            program = notes.heed(compiler.compile(at, function, arguments, on[last]))
        outputs = output_structs(program) if notes.plan else run(program, arguments)
    except RefusedByJax as stopped:
        raise _located(stopped, names) from stopped.__cause__
    notes.program = program.collectives
    notes.weigh(program)
    consumed = {arg for step in question.steps for arg in step.args}
    for name, output in zip(results, outputs, strict=True):
        notes.see(observe_array(name, output, on[name], with_layout=name not in consumed), on[name])


def _input(given: Input, array: arrays.ArrayOrStruct, mesh: Mesh) -> Observed:
    if not given.layout.partial:
        return observe_array(given.name, array, mesh)
    # JAX sees addends on leading dims, and no layout of ours. They are shown without the dims.
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
