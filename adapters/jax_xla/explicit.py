"""What does sharding-in-types do with each step of a program on an Explicit mesh?

Each step is compiled as its own program, with its own layout and collectives. Only this route shows
partial values, as ``unreduced``, and only for sums. If JAX requires a layout and the question does
not request one, the error of JAX is the answer.
"""

from __future__ import annotations

import jax
import msgspec
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from adapters.answer import Collective, Observed
from adapters.jax_xla import arrays, compat, mesh_views, run_lines, source_lines
from adapters.jax_xla.answer_in_progress import AnswerInProgress, observe_without_data
from adapters.jax_xla.compiled_program import Compiler, output_structs, run
from cases.arrays import pack
from cases.mesh_derivation import meshes_of_tensors
from cases.model import Mesh, Question


def answer(compiler: Compiler, question: Question, notes: AnswerInProgress) -> None:
    """Write the observations of this route into ``notes``.

    Raises:
        RefusedByJax: JAX refused a step or an input.
    """
    on, places = meshes_of_tensors(question), source_lines.mesh_texts(question)
    there = mesh_views.make_meshes(question, "Explicit", notes)
    values: dict[str, arrays.ArrayOrStruct] = {}
    for given in question.inputs:
        name, mesh = given.name, on[given.name]
        full_mesh = mesh_views.find_mesh(there, places[name])
        values[name] = arrays.place_input(given, mesh, full_mesh, False, notes.is_dry_run)
        if notes.wants(name):
            notes.see(_observed(compiler, notes, name, values[name], mesh, None), mesh)
    for step in question.steps:
        names = source_lines.names_used(question, step)
        arguments = [values[name] for name in names]
        mesh = on[step.result]
        source = source_lines.step_lines(question, step, "explicit", compat.RELEASE)
        function = run_lines.function(names, source, [step.result], there)
        # A result without operands is placed on the mesh of the context. ``late``: a gradient
        # repeats the forward steps, whose collectives those steps have reported.
        with compat.mesh_context(mesh_views.find_mesh(there, places[step.result])):
            program = notes.keep_complaints(
                compiler.compile(step.result, function, arguments, mesh, late=step.op == "grad")
            )
        (result,) = output_structs(program) if notes.is_dry_run else run(program, arguments)
        # All earlier values are still in memory.
        notes.count_memory(program, (value for name, value in values.items() if name not in names))
        values[step.result] = result
        if notes.wants(step.result):
            cost = program.collectives
            notes.see(_observed(compiler, notes, step.result, result, mesh, cost), mesh)


def _observed(
    compiler: Compiler,
    notes: AnswerInProgress,
    name: str,
    array: arrays.ArrayOrStruct,
    mesh: Mesh,
    collectives: tuple[Collective, ...] | None,
) -> Observed:
    layout, note = arrays.layout_of(array, mesh)
    full, cost = _materialised(compiler, notes, name, array, mesh)
    if isinstance(array, jax.ShapeDtypeStruct):
        seen = observe_without_data(name, array, layout, note)
        return msgspec.structs.replace(seen, collectives=collectives, full_collectives=cost)
    shards, offsets = arrays.shards_of(array, mesh)
    return Observed(
        name,
        array.dtype.name,
        array.shape,
        layout,
        shards,
        offsets,
        (pack(np.asarray(full)),),
        collectives,
        cost,
        note=note,
    )


def _materialised(
    compiler: Compiler, notes: AnswerInProgress, name: str, array: arrays.ArrayOrStruct, mesh: Mesh
) -> tuple[arrays.ArrayOrStruct, tuple[Collective, ...] | None]:
    """The global value on every device, and the collectives of the reshard that gathers it.

    The compiled program is cached by sharding, shape and dtype.
    """
    sharding = array.sharding
    if not isinstance(sharding, NamedSharding) or sharding.is_fully_replicated:
        return array, ()
    replicated = NamedSharding(sharding.mesh, PartitionSpec())

    def gather(x: jax.Array) -> jax.Array:
        return compat.reshard(x, replicated)

    step = f"{name}/full"
    kept = compiler.once(
        (sharding, array.shape, array.dtype), lambda: compiler.compile(step, gather, [array], mesh)
    )
    program = notes.keep_complaints(msgspec.structs.replace(kept, step=step))
    return array if notes.is_dry_run else run(program, [array]), program.collectives
