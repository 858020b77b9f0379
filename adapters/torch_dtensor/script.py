"""Which lines answer a question? The question, turned into what ranks evaluate.

Knows no torch; refuses what the adapter has no lines for, with the reason.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable

import msgspec

from adapters.torch_dtensor.ops import (
    CONTEXTS,
    Unsayable,
    input_source,
    mesh_step_source,
    mesh_variable,
    step_source,
    variable,
)
from adapters.torch_dtensor.wire import Data, Line, Task
from cases.model import Mesh, MeshStep, Question
from cases.notation import NotationError
from cases.program import shapes

# One question in so many has its collectives counted by CommDebugMode too: on every one that
# would take a tenth of the speed. Chosen by the id, so that order does not matter.
CHECKED = 8


Meshes = list[tuple[str, Mesh]]


class Unanswerable(Exception):
    """The adapter has no lines for a question: why, and the step or input at fault."""

    def __init__(self, why: str, place: str = ""):
        super().__init__(why)
        self.why = why
        self.place = place


def task(question: Question) -> Task:
    """The lines of a question.

    Raises:
        Unanswerable: there are none.
    """
    if question.mode == "plan":
        raise Unanswerable("plan mode: this adapter runs on data")
    if question.recipe is not None:
        raise Unanswerable(f"the recipe {question.recipe.name}: no module of that name")
    if question.context is not None and question.context not in CONTEXTS:
        raise Unanswerable(f"the context {question.context}: no region of that name")
    meshes, derived, known = _meshes(question)
    inputs, homes = _inputs(question, meshes, known)
    typed = functools.cache(lambda: shapes(question))
    steps = []
    for step in question.steps:
        home = next((homes[arg] for arg in step.args if isinstance(arg, str)), "mesh")
        homes[step.result] = home
        source = functools.partial(step_source, step, known[home], home, typed)
        steps.append(_line(step.result, source))
    checked = zlib.crc32(question.id.encode()) % CHECKED == 0
    return Task(
        question.mesh, tuple(meshes), derived, inputs, tuple(steps), question.check, checked,
        _whole(question), question.context or "",
    )  # fmt: skip


def _inputs(
    question: Question, meshes: Meshes, known: dict[str, Mesh]
) -> tuple[tuple[Data, ...], dict[str, str]]:
    """The inputs, and the variable of the mesh of each; adds the meshes that are their own."""
    slopes = {step.args[1] for step in question.steps if step.op == "grad"}
    late = {step.result: step.after for step in question.mesh_steps if step.after}
    inputs, homes = [], {}
    for given in question.inputs:
        if given.view in late and late[given.view] not in homes:
            raise Unanswerable(f"the mesh {given.view} is not there yet", given.name)
        place = homes[given.name] = mesh_variable(given)
        if given.mesh is not None:
            meshes.append((place, given.mesh))
            known[place] = given.mesh
        source = functools.partial(input_source, given, known[place], derived=given.name in slopes)
        arrays = given.per_device if given.value is None else (given.value,)
        inputs.append(Data(_line(given.name, source), place, arrays or (), given.value is None))
    return tuple(inputs), homes


def _whole(question: Question) -> tuple[str, ...]:
    """The plain results that are whole on every rank: items, and what is made of them alone."""
    found: set[str] = set()
    for step in question.steps:
        names = {arg for arg in step.args if isinstance(arg, str)}
        if step.op == "item" or (names and names <= found):
            found.add(step.result)
    return tuple(step.result for step in question.steps if step.result in found)


def ranks(task: Task) -> int:
    """How many ranks a task needs: one for each device up to the last that a mesh names."""
    return 1 + max(max(mesh.devices) for _, mesh in task.meshes)


def members(task: Task) -> tuple[int, ...]:
    """The ranks that are in some mesh of the task, in order."""
    return tuple(sorted({device for _, mesh in task.meshes for device in mesh.devices}))


def _line(name: str, source: Callable[[], str]) -> Line:
    try:
        return Line(name, variable(name), source())
    except (Unsayable, NotationError) as error:
        raise Unanswerable(str(error), name) from None


def _meshes(question: Question) -> tuple[Meshes, tuple[Line, ...], dict[str, Mesh]]:
    """The meshes over devices, the lines that derive others, and all of them by variable."""
    meshes: Meshes = [("mesh", question.mesh)]
    known = {"mesh": question.mesh}
    derived: list[Line] = []
    made: dict[str, Mesh] = {}
    for step in question.mesh_steps:
        root = question.mesh
        if isinstance(sizes := step.params.get("from"), dict):
            # The question's mesh is itself made from this one, and then takes its place.
            root = Mesh(tuple(sizes.items()), question.mesh.devices)
            meshes[0] = ("mesh", root)
            if step.after:
                raise Unanswerable(
                    "the mesh of the question is made before everything", step.result
                )
        line = _line(
            step.result,
            lambda: mesh_step_source(step, "mesh", root.names, set(made)),  # noqa: B023
        )
        derived.append(msgspec.structs.replace(line, after=step.after))
        made[step.result] = known[line.variable] = _derived(step, root, made)
        if root is not question.mesh:
            derived.append(Line(step.result, "mesh", line.variable))
    return meshes, tuple(derived), known


def _derived(step: MeshStep, root: Mesh, made: dict[str, Mesh]) -> Mesh:
    """The axes of a derived mesh. Its devices are another on each rank, so 0, 1, 2, … here."""
    sizes = dict(root.axes)
    for mesh in made.values():
        sizes |= dict(mesh.axes)
    axes: dict[str, int] = {}
    if step.op == "mesh_flatten":
        axes = {step.result: math.prod(sizes[axis] for axis in step.axes)}
    elif step.op == "mesh_unflatten":
        for axis, size in root.axes:
            inner = step.params["axes"] if axis == step.axes[0] else {axis: size}
            assert isinstance(inner, dict)
            axes |= inner
    else:
        for axis in step.axes:
            axes |= dict(made[axis].axes) if axis in made else {axis: sizes[axis]}
    return Mesh(tuple(axes.items()), tuple(range(math.prod(axes.values()))))
