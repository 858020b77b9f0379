"""What would DTensor do on devices that do not exist? A dry run has one rank and no data.

This module evaluates the lines of mode real on fake tensors in `adapters.torch_dtensor.fake_world`.
It reports layouts, shapes, collectives and peak bytes, but no values. If torch reads values, the
answer is `Unsupported`. It needs a process of its own.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from adapters.answer import Answer, Done, End, Observed, Refused, Unsupported
from adapters.protocol import Hello
from adapters.torch_dtensor import merge_ranks, mesh_views
from adapters.torch_dtensor.compat import DeviceMesh, DTensor, clear_layout_caches
from adapters.torch_dtensor.evaluate import Evaluation, TaskRun
from adapters.torch_dtensor.fake_world import FakeRecorder, fake_world
from adapters.torch_dtensor.rank_messages import InputData, Raised, Task
from adapters.torch_dtensor.task_lines import make_task
from adapters.unsupported import CannotAnswer
from cases.layout import Ranges, index_ranges, local_shape
from cases.mesh_derivation import meshes_of_tensors
from cases.model import Input, Mesh, Question
from cases.recipes import ModelTensor

# The errors of fake tensors when torch reads their values. Some functions raise another error,
# whose text starts with the name of the op.
_LOOKS = ("DataDependentOutputException", "DynamicOutputShapeException")
_LOOKING = ("aten._local_scalar_dense", "aten.nonzero")
# Some releases keep a grid of devices or an index as a real tensor and mix it with fake ones.
_MIXED = "Please convert all Tensors to FakeTensors first"
_NOT_FAKED = ("UnsupportedFakeTensorException", "UnsupportedOperatorException")


class DryRunAdapter:
    """Answers dry runs in this process until `close`. See `adapters.protocol.Adapter`.

    It keeps a fake world and its meshes as long as the questions need the same size.
    """

    def __init__(self, hello: Hello) -> None:
        self._hello = hello
        self._world = contextlib.ExitStack()
        self._key: tuple[int, int] | None = None
        self._recorder = FakeRecorder()
        self._view: _View | None = None

    def hello(self) -> Hello:
        """The release of torch and its facts."""
        return self._hello

    def observe(self, question: Question, subject: str, seconds: float) -> Answer:
        """What one rank would do. The caller must kill this process after ``seconds``."""
        try:
            if any(given.irregular for given in question.inputs):
                raise CannotAnswer(
                    "a dry run has no data, from which irregular shards take their shapes"
                )
            lines = make_task(question)
        except CannotAnswer as error:
            return Answer(question.id, subject, Unsupported(error.why, error.place))
        # The first rank has the largest local shard.
        number = question.mesh.devices[0]
        view = self._enter(lines.world_size, number, question.fresh or bool(question.mesh_steps))
        return view.answer(question, lines, subject)

    def close(self) -> None:
        """Leave the world."""
        self._world.close()

    def _enter(self, size: int, number: int, fresh: bool) -> _View:
        if self._view is None or fresh or self._key != (size, number):
            self._world.close()
            self._world.enter_context(fake_world(size, number))
            self._view = _View(number, self._recorder)
            # A world with derived meshes is not used again.
            self._key = None if fresh else (size, number)
        return self._view


class _View:
    """One rank of a fake world, and the `RankEnvironment` of its lines."""

    def __init__(self, number: int, recorder: FakeRecorder):
        self._number = number
        self._recorder = recorder
        self._evaluation = Evaluation(number, recorder, self)
        self._inputs: dict[str, tuple[Input, Mesh]] = {}
        self._end: End = Done()

    def at(self, place: int) -> None:
        """Do nothing: no worker follows the progress of this rank."""

    def given(self, data: InputData, position: int) -> torch.Tensor:
        """A tensor with the dtype and the shape of the input or of its local shard."""
        given, mesh = self._inputs[data.line.name]
        shape = given.shape
        if data.per_device:
            shape = local_shape(index_ranges(mesh, given.layout, given.shape)[position])
        return torch.empty(shape, dtype=getattr(torch, given.dtype))

    def drawn(
        self, tensor: ModelTensor, sizes: dict[str, int], dtype: str, ranges: Ranges
    ) -> torch.Tensor:
        """A tensor with the shape of ``ranges``."""
        name = dtype if tensor.values == "real" else "int64"
        return torch.empty(local_shape(ranges), dtype=getattr(torch, name))

    def kept(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same storage: a fake tensor has no values, and a copy would count as memory."""
        return tensor.detach()

    def bare(self) -> contextlib.AbstractContextManager[object]:
        """A context without a FakeTensorMode, because grids of meshes are real tensors."""
        context: contextlib.AbstractContextManager[object] = unset_fake_temporarily()
        return context

    def raised(self, raised: Raised) -> None:
        """Keep the first error and continue, because every rank would raise the same."""
        if isinstance(self._end, Done):
            self._end = _end(raised)

    def answer(self, question: Question, lines: Task, subject: str) -> Answer:
        """Evaluate the lines of a question."""
        run, evaluation, recorder = TaskRun(), self._evaluation, self._recorder
        self._end = Done()
        on = meshes_of_tensors(question)
        self._inputs = {given.name: (given, on[given.name]) for given in question.inputs}
        clear_layout_caches()
        recorder.begin()
        evaluation.make_meshes(lines, run)
        peak = None
        with FakeTensorMode(), recorder:
            evaluation.place(lines, run)
            if not run.failed:
                recorder.begin(one for one in run.values.values() if isinstance(one, torch.Tensor))
            evaluation.evaluate(lines, run)
            if not run.failed:
                peak = recorder.peak
            if lines.recipe is None:
                with torch.no_grad():
                    evaluation.materialise(lines, run)
        program = None if run.step is None or run.failed else tuple(run.program)
        seen: list[Observed] = []
        for name in lines.check:
            if name in run.values and _is_here(run.values[name]):
                seen += self._see(name, run.values[name], lines, run)
        complaints = (
            *run.complaints,
            *(f"an op without a kind: {one}" for one in recorder.strange),
        )
        recorder.strange.clear()
        return Answer(
            question.id, subject, self._end, tuple(seen), program, complaints, peak=peak
        )  # fmt: skip

    def _see(self, name: str, value: Any, lines: Task, run: TaskRun) -> list[Observed]:
        fired = run.collectives.get(name)
        if isinstance(value, DeviceMesh | bool):
            # Only this rank reports its view of a mesh. It is stored at the first position.
            rest = (None,) * (lines.mesh.size - 1)
            return [
                Observed(
                    one.name, one.dtype, one.shape, shards=(one.shard, *rest),
                    offsets=None if one.offset is None else (one.offset, *rest),
                )
                for one in mesh_views.observe_mesh(name, value)
            ]  # fmt: skip
        if not isinstance(value, DTensor):
            plain = value if isinstance(value, torch.Tensor) else torch.as_tensor(value)
            shape = tuple(plain.shape)
            return [Observed(name, _dtype(plain), shape, collectives=fired, local=shape)]
        mesh, home = self._evaluation.model(value.device_mesh), lines.home(name)
        on = home.mesh if home else mesh
        layout = self._evaluation.layout(value, mesh)
        if home:
            layout = (
                merge_ranks.find_layout_on_other_mesh(layout, mesh, home.mesh, self._number)
                or layout
            )
        seen = Observed(
            name, _dtype(value), tuple(value.shape), layout,
            collectives=fired, full_collectives=run.full_collectives.get(name),
            note=run.step.note if run.step is not None and name == "out" else "",
            mesh=None if on == lines.mesh else on, local=tuple(value._local_tensor.shape),
        )  # fmt: skip
        return [seen]


def _is_here(value: Any) -> bool:
    on = value.device_mesh if isinstance(value, DTensor) else value
    return not isinstance(on, DeviceMesh) or on.get_coordinate() is not None


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _end(raised: Raised) -> End:
    if raised.missing:
        return Unsupported(raised.line, raised.place)
    if raised.error in _LOOKS or raised.line.startswith(_LOOKING):
        return Unsupported("a dry run has no values, and torch reads some", raised.place)
    if raised.error in _NOT_FAKED:
        return Unsupported("torch has no fake of an op", raised.place)
    if raised.line.startswith(_MIXED):
        return Unsupported("torch mixes a real tensor of its own with fake ones", raised.place)
    return Refused(raised.error, raised.line, raised.place)
