"""Which lines do ranks evaluate to answer a question? The result is a `Task`.

This module does not import torch. It raises `CannotAnswer` if there are no lines for a question.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable

from adapters.torch_dtensor.rank_messages import InputData, Line, Task, TensorOnDerivedMesh
from adapters.torch_dtensor.source_lines import (
    CONTEXTS,
    input_source,
    is_given_by_device,
    mesh_step_source,
    mesh_variable,
    step_source,
    variable_name,
)
from adapters.unsupported import CannotAnswer
from cases import mesh_derivation
from cases.model import Mesh, Question, Recipe
from cases.notation import NotationError
from cases.program import infer_types
from cases.recipes import RECIPES
from cases.recipes.layouts import observed_names, unsharded_names

# CommDebugMode checks the collectives of one question in `CHECK_INTERVAL`. Checking all would cost
# a tenth of the speed. The question id decides, so the order of questions does not matter.
CHECK_INTERVAL = 8

Meshes = list[tuple[str, Mesh]]


def make_task(question: Question) -> Task:
    """The lines of a question.

    Raises:
        CannotAnswer: there are none.
    """
    if question.recipe is not None:
        return _recipe_task(question, question.recipe)
    if question.context is not None and question.context not in CONTEXTS:
        raise CannotAnswer(f"the context {question.context}: no region of that name")
    meshes, derived = _mesh_lines(question)
    mesh_of = mesh_derivation.meshes_of_tensors(question)
    inputs = _input_lines(question, meshes, mesh_of)
    variables = {data.line.name: data.where for data in inputs}
    types = functools.cache(lambda: infer_types(question))
    steps = []
    for step in question.steps:
        view = step.params.get("view")
        first = next(iter(step.operands), None)
        where = "mesh" if first is None else variables[first]
        where = variables[step.result] = variable_name(view) if isinstance(view, str) else where
        steps.append(_line(step.result, step_source, step, mesh_of[step.result], where, types))
    return Task(
        question.mesh, question.devices, tuple(meshes), derived, inputs, tuple(steps),
        question.check, _is_checked(question), _find_whole_results(question),
        question.context or "",
        tuple(
            TensorOnDerivedMesh(name, variables[name], home) for name, home in mesh_of.items()
            if variables[name] not in dict(meshes)
        ),
    )  # fmt: skip


def _recipe_task(question: Question, recipe: Recipe) -> Task:
    """The task of a recipe. It has no lines, because a module runs it."""
    if recipe.name not in RECIPES:
        raise CannotAnswer(f"the recipe {recipe.name}: no module of that name")
    kind = RECIPES[recipe.name]
    # Only the values of the unsharded step matter. A dry run has no values.
    unsharded = unsharded_names(kind) if question.mode == "real" else ()
    return Task(
        question.mesh, question.devices, (("mesh", question.mesh),), (), (), (),
        (*observed_names(kind), *unsharded), _is_checked(question), unsharded, recipe=recipe,
    )  # fmt: skip


def _is_checked(question: Question) -> bool:
    return zlib.crc32(question.id.encode()) % CHECK_INTERVAL == 0


def _input_lines(
    question: Question, meshes: Meshes, mesh_of: dict[str, Mesh]
) -> tuple[InputData, ...]:
    """The inputs. If an input has its own mesh, that mesh is added to ``meshes``."""
    differentiated = {step.args[1] for step in question.steps if step.op == "grad"}
    late = {step.result: step.after for step in question.mesh_steps if step.after}
    inputs: list[InputData] = []
    for given in question.inputs:
        if given.view in late and late[given.view] not in [data.line.name for data in inputs]:
            raise CannotAnswer(f"the mesh {given.view} is not there yet", given.name)
        where, home = mesh_variable(given), mesh_of[given.name]
        if given.mesh is not None:
            meshes.append((where, given.mesh))
        line = _line(given.name, input_source, given, home, given.name in differentiated)
        arrays = given.per_device if given.value is None else (given.value,)
        inputs.append(InputData(line, where, arrays or (), is_given_by_device(given)))
    return tuple(inputs)


def _line(name: str, source: Callable[..., str], *args: object) -> Line:
    try:
        return Line(name, variable_name(name), source(*args))
    except (CannotAnswer, NotationError) as error:
        raise CannotAnswer(str(error), name) from None


def _find_whole_results(question: Question) -> tuple[str, ...]:
    """The plain results that are whole on every rank, and the results computed only from them."""
    found: set[str] = set()
    for step in question.steps:
        names = {*step.operands}
        if step.op in ("item", "full_tensor") or (names and names <= found):
            found.add(step.result)
    return tuple(step.result for step in question.steps if step.result in found)


def _mesh_lines(question: Question) -> tuple[Meshes, tuple[Line, ...]]:
    """The meshes over devices, and the lines that derive others."""
    meshes: Meshes = [("mesh", question.mesh)]
    made = mesh_derivation.derive_all(question.mesh, question.mesh_steps)
    lines: list[Line] = []
    for step in question.mesh_steps:
        if isinstance(sizes := step.params.get("from"), dict):
            # The question's mesh is derived from this one. Then it replaces this one.
            meshes[0] = ("mesh", Mesh(tuple(sizes.items()), question.mesh.devices))
            if step.after:
                raise CannotAnswer(
                    "the mesh of the question is made before everything", step.result
                )
        of = step.params.get("of")
        base = variable_name(of) if isinstance(of, str) else "mesh"
        axes = tuple(mesh_derivation.base_mesh(step, question.mesh, made).axes)
        source = mesh_step_source(step, base, axes, made)
        lines.append(Line(step.result, variable_name(step.result), source, step.after))
        if "from" in step.params:
            lines.append(Line(step.result, "mesh", variable_name(step.result)))
    return meshes, tuple(lines)


def ranks_in_meshes(task: Task) -> tuple[int, ...]:
    """The ranks that are in some mesh of the task, in order."""
    return tuple(sorted({device for _, mesh in task.meshes for device in mesh.devices}))
