"""What do JAX's own calls cost, route by route?

A question takes the placing of its inputs, `jax.jit`, `lower`, `compile`, the call, and reading
the result: `np.asarray` and the addressable shards of what is checked. The lines and redistribution
plans are the adapter's. No HLO is dumped or read, and nothing is kept, sent or compared. The
environment sets the number of devices, since JAX reads it once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from adapters.jax_xla import arrays, compat, run_lines, shard_map, source_lines
from adapters.reference.cheapest_plan import cheapest_plan
from adapters.reference.implied_plan import implied_plan
from benchmarks.bare import Job
from cases.mesh_derivation import meshes_of_tensors
from cases.model import Input, Mesh, Question, Step

Values = dict[str, jax.Array]
Call = Callable[[Values], None]
_GATHERS: dict[Any, Any] = {}
_PLANNERS = {"jax/shard_map:implied": implied_plan, "jax/shard_map:cheapest": cheapest_plan}


def compiled(jobs: Sequence[Job]) -> Callable[[int, int], None]:
    """Runs jobs, and compiles each subject's program anew."""
    calls = [[_calls(job.question, subject) for subject in job.subjects] for job in jobs]

    def run(first: int, last: int) -> None:
        for number in range(first, last):
            for sequence in calls[number]:
                values: Values = {}
                for call in sequence:
                    call(values)

    return run


def _calls(question: Question, subject: str) -> list[Call]:
    kind: source_lines.Kind = "Explicit" if subject == "jax/explicit" else "Auto"
    on = meshes_of_tensors(question)
    calls = [_put(given, on[given.name], kind) for given in question.inputs]
    steps = {"jax/jit": _jit, "jax/explicit": _explicit}.get(subject, _plans)
    if question.steps:
        calls += steps(question, subject, on)
    whole = kind == "Explicit"
    return [*calls, *(_read(name, whole) for name in question.check)]


def _put(given: Input, mesh: Mesh, kind: source_lines.Kind) -> Call:
    def put(values: Values) -> None:
        # This also views bytes as an array and makes a spec, which takes 0.03 ms.
        there = arrays.jax_mesh(mesh, kind)
        values[given.name] = arrays.place_input(given, mesh, there, stack=kind == "Auto")

    return put


def _program(function: Callable[..., Any], names: Sequence[str], results: Sequence[str]) -> Call:
    def call(values: Values) -> None:
        arguments = [values[name] for name in names]
        # JAX keeps a compiled program as long as its function lives, so this function is new.
        found = jax.jit(lambda *given: function(*given)).lower(*arguments).compile()(*arguments)
        values.update(zip(results, found if isinstance(found, tuple) else (found,), strict=True))

    return call


def _jit(question: Question, subject: str, on: dict[str, Mesh]) -> list[Call]:
    called = source_lines.mesh_variables(question)
    there = {name: arrays.jax_mesh(mesh, "Auto") for mesh, name in called.items()}
    source = [line for given in question.inputs for line in source_lines.reduce_lines(given)]
    for step in question.steps:
        source += source_lines.step_lines(question, step, "jit", compat.RELEASE)
    names = [given.name for given in question.inputs]
    results = [step.result for step in question.steps if step.result in question.check]
    return [_program(run_lines.function(names, source, results, there), names, results)]


def _explicit(question: Question, subject: str, on: dict[str, Mesh]) -> list[Call]:
    called = source_lines.mesh_variables(question)
    there = {name: arrays.jax_mesh(mesh, "Explicit") for mesh, name in called.items()}

    def one(step: Step) -> Call:
        names, source = (
            source_lines.names_used(question, step),
            source_lines.step_lines(question, step, "explicit", compat.RELEASE),
        )
        run = _program(
            run_lines.function(names, source, [step.result], there), names, [step.result]
        )

        def call(values: Values) -> None:
            with jax.set_mesh(there[called[on[step.result]]]):
                run(values)

        return call

    return [one(step) for step in question.steps]


def _plans(question: Question, subject: str, on: dict[str, Mesh]) -> list[Call]:
    given = {one.name: (one.layout, one.shape) for one in question.inputs}
    calls = []
    for step in question.steps:
        name = str(step.args[0])
        source, shape = given[name]
        target = source if step.to is None else step.to
        given[step.result] = target, shape
        plan = _PLANNERS[subject](question.mesh, source, target, shape)
        moved = shard_map._mapped(plan, source, target, question.mesh, shape)
        calls.append(_program(moved, [name], [step.result]))
    return calls


def _read(name: str, whole: bool) -> Call:
    def read(values: Values) -> None:
        array = values[name]
        for shard in array.addressable_shards:
            np.asarray(shard.data)
        if whole and not array.sharding.is_fully_replicated:
            array = _gather(array)
        # JAX cannot read an empty array whose shards do not fit its sharding.
        if array.size:
            np.asarray(array)

    return read


def _gather(array: jax.Array) -> jax.Array:
    """The counterpart of `full_tensor`: a reshard, compiled once for each layout."""
    key = (array.sharding, array.shape, array.dtype)
    if key not in _GATHERS:
        there: Any = array.sharding
        everywhere = NamedSharding(there.mesh, PartitionSpec())
        gather = jax.jit(lambda x: jax.sharding.reshard(x, everywhere))
        _GATHERS[key] = gather.lower(array).compile()
    gathered: jax.Array = _GATHERS[key](array)
    return gathered
