"""Which lines answer a question? The question, turned into what ranks evaluate.

Knows no torch; refuses what the adapter has no lines for, with the reason.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable

from adapters.torch_dtensor.python_text import variable_name
from adapters.torch_dtensor.rank_messages import InputData, Line, Task, TensorOnDerivedMesh
from adapters.torch_dtensor.source_lines import (
    CONTEXTS,
    Unsayable,
    input_source,
    is_given_by_device,
    mesh_step_source,
    mesh_variable,
    step_source,
)
from cases import mesh_derivation
from cases.model import Mesh, Question, Recipe
from cases.notation import NotationError
from cases.program import infer_types
from cases.recipes import RECIPES
from cases.recipes.layouts import observed_names, unsharded_names

# One question in so many has its collectives counted by CommDebugMode too: on every one that
# would take a tenth of the speed. Chosen by the id, so that order does not matter.
CHECK_INTERVAL = 8


Meshes = list[tuple[str, Mesh]]


class Unanswerable(Exception):
    """The adapter has no lines for a question: why, and the step or input at fault."""

    def __init__(self, why: str, place: str = ""):
        super().__init__(why)
        self.why = why
        self.place = place


def make_task(question: Question) -> Task:
    """The lines of a question.

    Raises:
        Unanswerable: there are none.
    """
    if question.recipe is not None:
        return _recipe_task(question, question.recipe)
    if question.context is not None and question.context not in CONTEXTS:
        raise Unanswerable(f"the context {question.context}: no region of that name")
    meshes, derived = _mesh_lines(question)
    homes = mesh_derivation.meshes_of_tensors(question)
    inputs, places = _input_lines(question, meshes, homes)
    typed = functools.cache(lambda: infer_types(question))
    steps = []
    for step in question.steps:
        view = step.params.get("view")
        place = next((places[arg] for arg in step.args if isinstance(arg, str)), "mesh")
        places[step.result] = variable_name(view) if isinstance(view, str) else place
        source = functools.partial(
            step_source, step, homes[step.result], places[step.result], typed
        )
        steps.append(_line(step.result, source))
    return Task(
        question.mesh, tuple(meshes), derived, inputs, tuple(steps), question.check,
        _is_checked(question), _find_whole_results(question), question.context or "",
        tuple(
            TensorOnDerivedMesh(name, places[name], home) for name, home in homes.items()
            if places[name] not in dict(meshes)
        ),
    )  # fmt: skip


def _recipe_task(question: Question, recipe: Recipe) -> Task:
    """The task of a recipe: no lines, for what it runs is a module."""
    if recipe.name not in RECIPES:
        raise Unanswerable(f"the recipe {recipe.name}: no module of that name")
    row = RECIPES[recipe.name]
    # A step on one device is there for its values, of which a plan has none.
    alone = unsharded_names(row) if question.mode == "real" else ()
    return Task(
        question.mesh, (("mesh", question.mesh),), (), (), (), (*observed_names(row), *alone),
        _is_checked(question), alone, recipe=recipe,
    )  # fmt: skip


def _is_checked(question: Question) -> bool:
    return zlib.crc32(question.id.encode()) % CHECK_INTERVAL == 0


def _input_lines(
    question: Question, meshes: Meshes, homes: dict[str, Mesh]
) -> tuple[tuple[InputData, ...], dict[str, str]]:
    """The inputs, and the variable of the mesh of each; adds the meshes that are their own."""
    slopes = {step.args[1] for step in question.steps if step.op == "grad"}
    late = {step.result: step.after for step in question.mesh_steps if step.after}
    inputs, places = [], dict[str, str]()
    for given in question.inputs:
        if given.view in late and late[given.view] not in places:
            raise Unanswerable(f"the mesh {given.view} is not there yet", given.name)
        place = places[given.name] = mesh_variable(given)
        if given.mesh is not None:
            meshes.append((place, given.mesh))
        home = homes[given.name]
        source = functools.partial(input_source, given, home, derived=given.name in slopes)
        arrays = given.per_device if given.value is None else (given.value,)
        inputs.append(
            InputData(_line(given.name, source), place, arrays or (), is_given_by_device(given))
        )
    return tuple(inputs), places


def _find_whole_results(question: Question) -> tuple[str, ...]:
    """The plain results that are whole on every rank, and what is made of them alone."""
    found: set[str] = set()
    for step in question.steps:
        names = {arg for arg in step.args if isinstance(arg, str)}
        if step.op in ("item", "full_tensor") or (names and names <= found):
            found.add(step.result)
    return tuple(step.result for step in question.steps if step.result in found)


def count_ranks(task: Task) -> int:
    """How many ranks a task needs: one for each device up to the last that a mesh names."""
    return 1 + max(max(mesh.devices) for _, mesh in task.meshes)


def ranks_in_meshes(task: Task) -> tuple[int, ...]:
    """The ranks that are in some mesh of the task, in order."""
    return tuple(sorted({device for _, mesh in task.meshes for device in mesh.devices}))


def _line(name: str, source: Callable[[], str]) -> Line:
    try:
        return Line(name, variable_name(name), source())
    except (Unsayable, NotationError) as error:
        raise Unanswerable(str(error), name) from None


def _mesh_lines(question: Question) -> tuple[Meshes, tuple[Line, ...]]:
    """The meshes over devices, and the lines that derive others."""
    meshes: Meshes = [("mesh", question.mesh)]
    made = mesh_derivation.derive_all(question.mesh, question.mesh_steps)
    lines: list[Line] = []
    for step in question.mesh_steps:
        if isinstance(sizes := step.params.get("from"), dict):
            # The question's mesh is itself made from this one, and then takes its place.
            meshes[0] = ("mesh", Mesh(tuple(sizes.items()), question.mesh.devices))
            if step.after:
                raise Unanswerable(
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
