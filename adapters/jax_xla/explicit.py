"""What does sharding-in-types make of a program, step by step, on an Explicit mesh?

Each step is a program of its own, so that each has its layout, as JAX's types report it, and its
collectives. The only route that shows pending reductions: ``unreduced``, for sums alone. If JAX
asks which layout is wanted and the question asks for none, JAX's refusal is the answer.
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
    """Write what this route sees of the question into ``notes``.

    Raises:
        RefusedByJax: JAX refused a step or an input.
    """
    on, places = meshes_of_tensors(question), source_lines.mesh_texts(question)
    there = mesh_views.make_meshes(question, "Explicit", notes)
    values: dict[str, arrays.ArrayOrStruct] = {}
    for given in question.inputs:
        name, mesh = given.name, on[given.name]
        whole = mesh_views.find_mesh(there, places[name])
        values[name] = arrays.place_input(given, mesh, whole, False, notes.plan)
        if notes.wants(name):
            notes.see(_observed(compiler, notes, name, values[name], mesh, None), mesh)
    for step in question.steps:
        names = source_lines.names_used(question, step)
        arguments = [values[name] for name in names]
        mesh = on[step.result]
        source = source_lines.step_lines(question, step, "explicit", compat.RELEASE)
        function = run_lines.function(names, source, [step.result], there)
        # A step without operands, or one that needs no value of them, is on the mesh in force. A
        # gradient runs forward again; the collectives of forward are told at their own steps.
        with compat.mesh_context(mesh_views.find_mesh(there, places[step.result])):
            program = notes.heed(
                compiler.compile(step.result, function, arguments, mesh, late=step.op == "grad")
            )
        (result,) = output_structs(program) if notes.plan else run(program, arguments)
        # What was made before is still there.
        notes.weigh(program, (value for name, value in values.items() if name not in names))
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
    """The global value on every device, and the collectives of the reshard that gives it.

    The program for a layout, shape and dtype is kept, since it depends on nothing else.
    """
    sharding = array.sharding
    if not isinstance(sharding, NamedSharding) or sharding.is_fully_replicated:
        return array, ()
    whole = NamedSharding(sharding.mesh, PartitionSpec())

    def gather(x: jax.Array) -> jax.Array:
        return compat.reshard(x, whole)

    step = f"{name}/full"
    kept = compiler.once(
        (sharding, array.shape, array.dtype), lambda: compiler.compile(step, gather, [array], mesh)
    )
    program = notes.heed(msgspec.structs.replace(kept, step=step))
    return array if notes.plan else run(program, [array]), program.collectives
