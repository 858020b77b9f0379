"""What do the lines of a task evaluate to on one rank? Meshes, inputs, steps and full tensors.

This module does not know whether the world is real or fake, what other ranks observe, or which
results are right.
"""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections.abc import Callable, Iterable
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any, Protocol

import msgspec
import torch

from adapters.answer import Collective
from adapters.error_line import error_line
from adapters.torch_dtensor.compat import (
    DeviceMesh,
    DTensor,
    clear_layout_caches,
    compute_local_shape_and_global_offset,
    format_missing,
    has,
    has_mask_buffer,
    mesh_groups,
    names_for_lines,
    process_group_name,
    wait_for_collectives,
)
from adapters.torch_dtensor.layouts import layout_of, mesh_of, shard_order
from adapters.torch_dtensor.rank_messages import InputData, Line, Raised, Task, TensorOnDerivedMesh
from adapters.torch_dtensor.recipes.step import Step, TensorSource
from adapters.torch_dtensor.recorder import Axes, GroupAxes
from adapters.torch_dtensor.source_lines import CONTEXTS, mesh_source
from adapters.unsupported import CannotAnswer
from cases.model import PASSES, Foreign, Layout, Mesh

# The names, besides those of the program, that a line may use.
NAMES: dict[str, Any] = names_for_lines()
_LINE = "<line>"


@lru_cache(maxsize=65536)
def _compiled(source: str) -> CodeType:
    return compile(source, _LINE, "eval")


class CollectiveSource(Protocol):
    """A recorder of the collectives that this process fires."""

    def take(self, axes: Axes) -> tuple[Collective, ...]:
        """The collectives since the last call."""
        ...


class RankEnvironment(TensorSource, Protocol):
    """The real or fake world in which lines are evaluated."""

    def at(self, place: int) -> None:
        """Take the current place of the rank in the task. The end is -1."""
        ...

    def given(self, data: InputData, position: int) -> torch.Tensor:
        """The global tensor of an input, or its local tensor at one position of the mesh."""
        ...

    def raised(self, raised: Raised) -> None:
        """Take an error. If this returns, the evaluation continues after the line that raised."""
        ...


class TaskRun:
    """The results of one task so far."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = dict(NAMES)
        self.values: dict[str, Any] = {}
        self.fulls: dict[str, torch.Tensor] = {}
        self.collectives: dict[str, tuple[Collective, ...]] = {}
        self.full_collectives: dict[str, tuple[Collective, ...]] = {}
        self.fired: list[Collective] = []
        self.complaints: list[str] = []
        self.axes: Callable[[str], tuple[tuple[str, ...], int]] = no_axes
        self.homes: dict[str, TensorOnDerivedMesh] = {}
        self.step: Step | None = None
        self.program: list[Collective] = []
        self.failed = False
        self.place = -1


class Evaluation:
    """Evaluates the lines of tasks on rank ``number`` of a world. It keeps the world's meshes."""

    def __init__(self, number: int, recorder: CollectiveSource, place: RankEnvironment):
        self._number = number
        self._recorder = recorder
        self._place = place
        self._meshes: dict[Mesh, DeviceMesh] = {}
        self._models: dict[DeviceMesh, Mesh] = {}
        self._axes: dict[Any, GroupAxes] = {}
        self._view_axes: dict[str, GroupAxes] = {}
        self._layouts: dict[Any, Layout | Foreign] = {}
        self._offsets: dict[Any, tuple[int, ...]] = {}

    def make_meshes(self, task: Task, run: TaskRun) -> None:
        """Make every mesh, even without this rank: all ranks of the world must create a group."""
        run.homes = {home.name: home for home in task.homes}
        for variable, mesh in task.meshes:
            if mesh not in self._meshes:
                source = mesh_source(mesh)
                made = self._next(run, variable, lambda: eval(_compiled(source), dict(NAMES)))  # noqa: B023
                if run.failed:
                    return
                self._meshes[mesh] = made
            else:
                self.at(run)
            run.names[variable] = self._meshes[mesh]
        self.derive(task, "", run)
        if run.failed:
            return
        known = ((task.mesh, "mesh"), *((mesh, name) for name, mesh in task.meshes[1:]))
        # A world with derived meshes runs only one task.
        key = tuple(mesh for mesh, _ in known)
        if key not in self._axes:
            groups = [(mesh, _groups(run.names[name])) for mesh, name in known]
            self._axes[key] = GroupAxes(self._number, groups)
        run.axes = self._axes[key]
        if task.recipe is not None:
            run.step = Step(task.recipe, task.mesh, self._number, run.names["mesh"], self._place)

    def alone(self, task: Task, run: TaskRun) -> None:
        """Run the unsharded step of a recipe on this device."""
        self._train(task, run, ("plain",))

    def place(self, task: Task, run: TaskRun) -> None:
        """Make every input, or the parallelized module of a recipe."""
        self._train(task, run, ("place",))
        for data in task.inputs:
            if not run.failed:
                run.names[data.line.variable] = self._given(task, data)
            self.lines((data.line,), run)
            self.derive(task, data.line.name, run)

    def _given(self, task: Task, data: InputData) -> torch.Tensor:
        """The plain tensor from which this rank makes an input."""
        home = task.home(data.line.name)
        devices = (home.mesh if home else dict(task.meshes)[data.where]).devices
        position = 0
        if data.per_device and self._number in devices:
            position = devices.index(self._number)
        return self._place.given(data, position)

    def evaluate(self, task: Task, run: TaskRun) -> None:
        """Evaluate every step, or the passes of a recipe."""
        self._train(task, run, PASSES)
        if run.step is not None:
            run.step.close()
        region: Any = None
        if task.context and not run.failed:
            made = _compiled(CONTEXTS[task.context])
            region = self._attempt(run, task.steps[0].name, lambda: eval(made, run.names))
        with region or contextlib.nullcontext():
            for line in task.steps:
                self.lines((line,), run)
                self.derive(task, line.name, run)

    def _train(self, task: Task, run: TaskRun, phases: Iterable[str]) -> None:
        """Run some `PHASES` of a recipe until one fails. Do nothing without a recipe."""
        for phase in phases if run.step is not None else ():
            if run.failed or (phase == "plain" and not task.whole_results):
                self.at(run)
                continue
            shown = self._next(run, phase, getattr(run.step, phase))
            if not run.failed:
                run.values |= shown
                fired = self.take(run)
                if phase in PASSES:
                    # A collective that is fired during backward counts as backward.
                    run.program += [msgspec.structs.replace(one, pass_=phase) for one in fired]

    def derive(self, task: Task, after: str, run: TaskRun) -> None:
        """Derive the meshes that need the input or result ``after``. "" derives the others."""
        with self._place.bare():
            self.lines(task.late(after), run)

    def lines(self, lines: Iterable[Line], run: TaskRun) -> None:
        """Evaluate lines in order until one fails."""
        for line in lines:
            if run.failed:
                self.at(run)
                continue
            code = line.source
            value = self._next(
                run,
                line.name,
                lambda: wait_for_collectives(eval(_compiled(code), run.names)),  # noqa: B023
            )
            if not run.failed:
                run.names[line.variable] = run.values[line.name] = value
                run.collectives[line.name] = self.take(run, line.name)

    def materialise(self, task: Task, run: TaskRun) -> None:
        """Gather the full tensors of checked values after the program, so they cannot affect it.

        A Partial with a mask buffer can be reduced only once, and the program may have done so.
        Its full tensor comes from another run of the program.
        """
        failed, run.failed = run.failed, False
        for name in task.check:
            value = run.values.get(name)
            if isinstance(value, DTensor):
                look: Callable[[], torch.Tensor] = value.full_tensor
                if task.recipe is None and any(map(has_mask_buffer, value.placements)):
                    look = functools.partial(self._full_of_another_run, task, run, name)
                full = self._next(run, f"{name}/full", look)
                fired = self.take(run, name)
                if full is not None:
                    run.fulls[name] = full
                    # A training step does not gather its tensors. Only the report needs them.
                    if task.recipe is None:
                        run.full_collectives[name] = fired
            else:
                self.at(run)
                if name in task.whole_results and isinstance(value, torch.Tensor):
                    run.fulls[name] = value
        run.failed = failed

    def _full_of_another_run(self, task: Task, run: TaskRun, name: str) -> torch.Tensor:
        """The full tensor of a result from another run of the program, up to that result.

        The run has new inputs and the existing meshes. It gathers nothing else.
        """
        # A cached layout has the mask of the first run.
        clear_layout_caches()
        names = dict(run.names)
        with torch.enable_grad():
            for data in task.inputs:
                names[data.line.variable] = self._given(task, data)
                names[data.line.variable] = wait_for_collectives(
                    eval(_compiled(data.line.source), names)
                )
            region = eval(_compiled(CONTEXTS[task.context]), names) if task.context else None
            with region or contextlib.nullcontext():
                for line in task.steps:
                    value = names[line.variable] = wait_for_collectives(
                        eval(_compiled(line.source), names)
                    )
                    if line.name == name:
                        break
        # The first run has already reported the collectives of the steps.
        self.take(run, name)
        full: torch.Tensor = value.full_tensor()
        return full

    def model(self, mesh: DeviceMesh) -> Mesh:
        """The axes and devices of a mesh."""
        if mesh not in self._models:
            self._models[mesh] = mesh_of(mesh)
        return self._models[mesh]

    def layout(self, value: DTensor, mesh: Mesh) -> Layout | Foreign:
        """The layout that a DTensor on ``mesh`` reports."""
        order = shard_order(value)
        key = (value.placements, order, mesh, value.ndim)
        if key not in self._layouts:
            self._layouts[key] = layout_of(*key)
        return self._layouts[key]

    def offset(self, name: str, value: DTensor, mesh: Mesh, run: TaskRun) -> tuple[int, ...] | None:
        """The offset of the local shard according to torch. None if torch raises.

        An error becomes a complaint, unless this release lacks the offsets of some shards.
        """
        key = (value.placements, mesh, value.shape)
        if key not in self._offsets:
            try:
                _, self._offsets[key] = compute_local_shape_and_global_offset(
                    value.shape, value.device_mesh, value.placements
                )
            # torch may raise any exception here.
            except Exception as error:
                if has("an offset of every shard"):
                    run.complaints.append(f"no offset of {name}: {type(error).__name__}: {error}")
                return None
        return self._offsets[key]

    def take(self, run: TaskRun, name: str = "") -> tuple[Collective, ...]:
        """The collectives since the last call, with axes of the mesh of ``name``."""
        home = run.homes.get(name)
        fired = self._recorder.take(self._axes_on(home, run) if home else run.axes)
        run.fired += fired
        return fired

    def _axes_on(self, home: TensorOnDerivedMesh, run: TaskRun) -> GroupAxes:
        """The mesh axes of groups on a derived mesh."""
        if home.variable not in self._view_axes:
            groups = _groups(run.names[home.variable])
            # Devices of other parts of a derived mesh lie along an axis without groups.
            outer = [""] * (len(home.mesh.axes) - len(groups))
            self._view_axes[home.variable] = GroupAxes(self._number, [(home.mesh, outer + groups)])
        return self._view_axes[home.variable]

    def at(self, run: TaskRun, *, last: bool = False) -> None:
        """Advance to the next place in the task and publish it."""
        run.place = -1 if last else run.place + 1
        self._place.at(run.place)

    def _next(self, run: TaskRun, place: str, what: Callable[[], Any]) -> Any:
        """Advance to the next place and evaluate it. None if it raises."""
        self.at(run)
        return self._attempt(run, place, what)

    def _attempt(self, run: TaskRun, place: str, what: Callable[[], Any]) -> Any:
        """The result of ``what``. If it raises, pass the error on and return None."""
        try:
            return what()
        # Any exception of torch is its answer.
        except Exception as error:
            run.failed = True
            halfway = bool(self.take(run))
            sentence = _missing_sentence(error)
            raised = Raised(
                type(error).__name__,
                sentence or error_line(error),
                place,
                bool(sentence),
                tuple(run.fired),
                halfway,
            )
            # The frames hold references to tensors and process groups.
            traceback.clear_frames(error.__traceback__)
        self._place.raised(raised)
        return None


def no_axes(group: str) -> tuple[tuple[str, ...], int]:
    """No axes and size 0, as long as no meshes are known."""
    return (), 0


def _groups(mesh: DeviceMesh) -> list[str]:
    """The names of this rank's groups, one for each mesh axis. Empty outside the mesh."""
    if mesh.get_coordinate() is None:
        return []
    return [process_group_name(group) for group in mesh_groups(mesh)]


def _missing_sentence(error: Exception) -> str:
    """A sentence that says which name of a line this release lacks. "" for other errors.

    Then the line itself or the ``__getattr__`` of a module raised the AttributeError. An error from
    inside a called function is not a missing name.
    """
    if isinstance(error, CannotAnswer):
        return str(error)
    if not isinstance(error, AttributeError):
        return ""
    frames = list(traceback.extract_tb(error.__traceback__))
    files = [frame.filename for frame in frames]
    if _LINE not in files:
        return ""
    if any(frame.name != "__getattr__" for frame in frames[files.index(_LINE) + 1 :]):
        return ""
    owner = error.obj if isinstance(error.obj, type | ModuleType) else type(error.obj)
    return format_missing(f"{owner.__name__}.{error.name}")
