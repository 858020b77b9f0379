"""Does the torch adapter tell what DTensor did? Real worlds of ranks, asked through a worker."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from adapters import protocol
from adapters.answer import (
    Answer,
    Collective,
    Crashed,
    Done,
    Hung,
    Observed,
    Refused,
    Unsupported,
    ending,
)
from adapters.torch_dtensor import merge
from adapters.torch_dtensor.ops import Unsayable, step_source, variable
from adapters.torch_dtensor.script import CHECKED, Unanswerable, task
from adapters.torch_dtensor.wire import Raised, Report, Seen, digest
from cases.arrays import Array, numpy_dtype, pack, unpack
from cases.layout import offset, ranges
from cases.model import (
    Foreign,
    Input,
    Layout,
    Mesh,
    MeshStep,
    Question,
    Recipe,
    Step,
    mesh,
)
from cases.notation import from_placements
from cases.ops import OPS

ROOT = Path(__file__).resolve().parent.parent
LINE = mesh({"x": 4})
SQUARE = mesh({"dp": 2, "tp": 2})


def layout(text: str, on: Mesh, ndim: int) -> Layout:
    return from_placements(text.split(), on, ndim)


def counting(shape: Sequence[int], dtype: str = "float32") -> np.ndarray:
    count = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    return (count % 2 if dtype == "bool" else count).astype(numpy_dtype(dtype))


def given(
    name: str, shape: Sequence[int], text: str, on: Mesh = LINE, dtype: str = "float32"
) -> Input:
    value = pack(counting(shape, dtype))
    return Input(name, tuple(shape), dtype, layout(text, on, len(shape)), value)


def addends(name: str, text: str, arrays: Sequence[Sequence[float]], on: Mesh = LINE) -> Input:
    packed = tuple(pack(np.array(array, "float32")) for array in arrays)
    shape = packed[0].shape
    return Input(name, shape, "float32", layout(text, on, len(shape)), per_device=packed)


def to(result: str, arg: str, text: str, on: Mesh = LINE, ndim: int = 1) -> Step:
    return Step(result, "redistribute", (arg,), to=layout(text, on, ndim))


def question(
    id: str, on: Mesh, inputs: Sequence[Input], steps: Sequence[Step] = (), **more: object
) -> Question:
    names = [one.name for one in inputs] + [one.result for one in steps]
    fields = {"check": tuple(names)} | more
    return Question(id, on, tuple(inputs), tuple(steps), **fields)  # type: ignore[arg-type]


SIMPLE = question("simple", LINE, [given("x", [8], "S(0)")], [to("y", "x", "R")])
# Rank 3 holds no row, where torch.max raises; the others go on to the next all-gather.
LOPSIDED = question("lopsided", LINE, [given("x", [5], "S(0)")], [Step("y", "max", ("x",))])
LONG = question(
    "long",
    LINE,
    [given("x0", [64, 64], "S(0)")],
    [Step(f"x{i + 1}", "multiply", (f"x{i}", 1)) for i in range(4000)],
    check=(),
)


class Live:
    """A worker process with the torch adapter, or with a module of the test's."""

    def __init__(self, printed: Path, module: str = "adapters.torch_dtensor.adapter"):
        asks, self._asks = os.pipe()
        self._answers, answers = os.pipe()
        path = os.pathsep.join([str(ROOT), str(printed.parent)])
        self.printed = printed
        with printed.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "adapters.worker", module, "8", str(asks), str(answers)],
                pass_fds=(asks, answers),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
            )
        os.close(asks)
        os.close(answers)
        self._writing = os.fdopen(self._asks, "wb")
        self._reading = os.fdopen(self._answers, "rb")
        self.hello = protocol.read_from_worker(self._reading)
        assert isinstance(self.hello, protocol.Hello), printed.read_text()

    def send(self, asked: Question, seconds: float = 30) -> None:
        protocol.write(self._writing, protocol.Ask(asked, ("torch",), seconds))

    def hear(self) -> Answer:
        answer = protocol.read_from_worker(self._reading)
        assert isinstance(answer, Answer), self.printed.read_text()
        return answer

    def ask(self, asked: Question, seconds: float = 30) -> Answer:
        self.send(asked, seconds)
        return self.hear()

    def ranks(self) -> list[int]:
        """Process ids of every rank of every world, each world's in rank order."""
        pid = self.process.pid
        return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def close(self) -> None:
        self._writing.close()
        self.process.wait(10)
        self._reading.close()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    worker = Live(tmp_path_factory.mktemp("torch") / "printed")
    yield worker
    worker.close()


def values(arrays: Sequence[Array | None] | None) -> list[object]:
    assert arrays is not None
    return [None if array is None else unpack(array).tolist() for array in arrays]


def counted(fired: tuple[Collective, ...] | None) -> list[tuple[str, tuple[str, ...], int]]:
    assert fired is not None
    return [(one.kind, one.axes, one.bytes) for one in fired]


def right(seen: Observed, on: Mesh, text: str, shape: Sequence[int], dtype: str) -> None:
    """Assert layout, shards, offsets and full tensor of what counts 0, 1, 2, …"""
    wanted = layout(text, on, len(shape))
    whole = counting(shape, dtype)
    held = ranges(on, wanted, tuple(shape))
    assert (seen.layout, seen.shape, seen.dtype) == (wanted, tuple(shape), dtype)
    slices = [pack(whole[tuple(slice(*one) for one in spans)]) for spans in held]
    assert seen.shards == tuple(slices)
    assert seen.offsets == tuple(map(offset, held))
    assert seen.full == (pack(whole),)
    assert seen.disagreements == ()


# What ranks hold.

HELD = [
    (LINE, "S(0)", [8], "float32"),
    (LINE, "S(0)", [5, 2], "float32"),
    (LINE, "S(1)", [3, 1], "float32"),
    (LINE, "S(0)", [0, 2], "float32"),
    (LINE, "R", [], "float32"),
    (LINE, "S(2)", [2, 2, 4, 1], "bfloat16"),
    (LINE, "S(0)", [6], "bool"),
    (LINE, "S(0)", [6], "int32"),
    (SQUARE, "S(0) S(1)", [4, 4], "float32"),
    (SQUARE, "S(0) S(0)", [8], "float32"),
    (SQUARE, "SS(0,2) S(0)", [8], "float32"),
    (SQUARE, "R S(0)", [5], "float32"),
    (mesh({"a": 1, "b": 4}), "S(1) S(0)", [4, 2], "float32"),
    (mesh({"a": 1}), "S(0)", [3], "float32"),
    (mesh({"a": 2, "b": 2, "c": 2}), "S(0) R S(1)", [4, 4], "float32"),
    (mesh({"a": 2, "b": 3}), "S(0) S(1)", [4, 6], "float32"),
]


@pytest.mark.parametrize(("on", "text", "shape", "dtype"), HELD)
def test_an_input_is_seen_as_its_layout_says(
    live: Live, on: Mesh, text: str, shape: list[int], dtype: str
) -> None:
    """Shards in mesh position order, offsets, layout and the full tensor of an input."""
    answer = live.ask(question("held", on, [given("x", shape, text, on, dtype)]))
    assert answer.end == Done()
    assert not answer.complaints
    right(answer["x"], on, text, shape, dtype)


def test_shards_stand_in_mesh_position_order(live: Live) -> None:
    """Position 0 of a mesh over devices 3, 2, 1, 0 is device 3, and slices by its coordinate."""
    on = mesh({"x": 4}, (3, 2, 1, 0))
    answer = live.ask(question("order", on, [given("x", [8], "R", on)], [to("y", "x", "S(0)", on)]))
    assert values(answer["y"].shards) == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_ranks_outside_the_mesh_are_not_seen(live: Live) -> None:
    """A mesh over devices 1 and 3 has two positions, in a world of four ranks."""
    on = mesh({"x": 2}, (1, 3))
    answer = live.ask(question("part", on, [given("x", [4], "S(0)", on)], [to("y", "x", "R", on)]))
    right(answer["x"], on, "S(0)", [4], "float32")
    right(answer["y"], on, "R", [4], "float32")


def test_an_input_may_have_a_mesh_of_its_own(live: Live) -> None:
    """Its shards, and those of what is made from it, stand in the order of its own mesh."""
    own = mesh({"z": 2}, (3, 2))
    inputs = [given("x", [4], "S(0)"), msgspec.structs.replace(given("w", [4], "R", own), mesh=own)]
    answer = live.ask(question("own", LINE, inputs, [to("y", "w", "S(0)", own)]))
    assert answer.end == Done()
    right(answer["x"], LINE, "S(0)", [4], "float32")
    assert answer["y"].mesh == own
    assert values(answer["y"].shards) == [[0, 1], [2, 3]]


def test_meshes_are_derived_in_a_world_of_their_own(live: Live) -> None:
    """Slices and flattened meshes hold tensors, and each rank tells the grid it sees."""
    on = mesh({"a": 2, "b": 2, "c": 2})
    flat = mesh({"f": 4})
    steps = (MeshStep("f", "mesh_flatten", ("b", "c")), MeshStep("v", "mesh_slice", ("b",)))
    tensor = msgspec.structs.replace(given("x", [8], "S(0)", flat), view="f")
    asked = question(
        "derived", on, [tensor], [to("y", "x", "R", flat)],
        mesh_steps=steps, check=("f", "v", "x", "y"),
    )  # fmt: skip
    live.ask(SIMPLE)
    before = live.ranks()
    answer = live.ask(asked)
    assert answer.end == Done()
    assert values(answer["f"].shards) == [[0, 1, 2, 3]] * 4 + [[4, 5, 6, 7]] * 4
    assert values(answer["v"].shards) == [[0, 2], [1, 3]] * 2 + [[4, 6], [5, 7]] * 2
    assert values(answer["x"].shards) == [[0, 1], [2, 3], [4, 5], [6, 7]] * 2
    assert counted(answer["y"].collectives) == [("all-gather", ("b", "c"), 8)]
    assert live.ranks() == before


@pytest.mark.parametrize(
    ("reduction", "wanted"),
    [("sum", [16, 21]), ("avg", [4, 5.25]), ("max", [7, 9]), ("min", [1, 2]),
     ("product", [105, 432])],
)  # fmt: skip
def test_a_partial_input_is_its_addends(live: Live, reduction: str, wanted: list[float]) -> None:
    """Each device holds its addend, and an all-reduce by the reduction owed makes it whole."""
    arrays = [[1, 2], [3, 4], [5, 6], [7, 9]]
    answer = live.ask(question("owed", LINE, [addends("x", f"P({reduction})", arrays)]))
    assert answer["x"].layout == Layout(((),), (("x", reduction),))
    assert values(answer["x"].shards) == arrays
    assert values(answer["x"].full) == [wanted]
    assert counted(answer["x"].full_collectives) == [("all-reduce", ("x",), 8)]


# What they do.


def test_collectives_are_those_of_the_lesson(live: Live) -> None:
    """Gathering costs, slicing does not, and a product over split terms is owed until asked for."""
    steps = [
        to("r", "x", "R", ndim=2),
        to("s", "r", "S(0)", ndim=2),
        to("t", "s", "S(1)", ndim=2),
        Step("y", "matmul", ("t", "w")),
        to("z", "y", "S(0)", ndim=2),
        Step("u", "matmul", ("r", "v")),
    ]
    inputs = [given("x", [4, 4], "S(0)"), given("w", [4, 4], "S(0)"), given("v", [4, 4], "S(1)")]
    answer = live.ask(question("lesson", LINE, inputs, steps))
    fired = {name: counted(answer[name].collectives) for name in "xrstyzu"}
    assert fired == {
        "x": [("scatter", ("x",), 16)],
        "r": [("all-gather", ("x",), 16)],
        "s": [],
        # A CPU mesh has no all-to-all, so torch gathers and slices.
        "t": [("all-gather", ("x",), 16)],
        "y": [],
        "z": [("reduce-scatter", ("x",), 64)],
        "u": [],
    }
    assert answer["y"].layout == layout("P(sum)", LINE, 2)
    assert answer["u"].layout == layout("S(1)", LINE, 2)
    assert counted(answer["y"].full_collectives) == [("all-reduce", ("x",), 64)]
    assert values(answer["u"].full) == [(counting([4, 4]) @ counting([4, 4])).tolist()]


def test_what_an_op_relays_out_is_counted_to_its_step(live: Live) -> None:
    """A matmul that must first gather an operand has that all-gather among its collectives."""
    inputs = [given("x", [4, 4], "S(0) R", SQUARE), given("w", [4, 4], "S(0) R", SQUARE)]
    answer = live.ask(question("relay", SQUARE, inputs, [Step("y", "matmul", ("x", "w"))]))
    assert [one[:2] for one in counted(answer["y"].collectives)] == [("all-gather", ("dp",))]


def test_each_axis_of_an_input_costs_a_scatter_or_a_broadcast(live: Live) -> None:
    """distribute_tensor goes axis by axis from the first rank of each group."""
    answer = live.ask(question("axes", SQUARE, [given("x", [4, 4], "S(0) R", SQUARE)]))
    assert counted(answer["x"].collectives) == [
        ("scatter", ("dp",), 32),
        ("broadcast", ("tp",), 32),
    ]


@pytest.mark.parametrize(
    ("op", "args", "params", "wanted"),
    [
        ("subtract", (10, "x"), {}, 10 - counting([4, 2])),
        ("add", ("x", 0.5), {}, counting([4, 2]) + np.float32(0.5)),
        ("maximum", ("x", 3), {}, np.maximum(counting([4, 2]), 3)),
        ("minimum", (3, "x"), {}, np.minimum(counting([4, 2]), 3)),
        ("sum", ("x",), {"axis": [0, 1], "keepdims": True}, [[28.0]]),
        ("sum", ("x",), {"keepdims": True}, [[28.0]]),
        ("mean", ("x",), {"axis": 0}, [3.0, 4.0]),
        ("max", ("x",), {"axis": [0]}, [6.0, 7.0]),
        ("min", ("x",), {}, 0.0),
        ("prod", ("x",), {"axis": [-1], "keepdims": True}, [[0], [6], [20], [42]]),
        ("einsum", ("x", "x"), {"subscripts": "ij,ij->i"}, [1, 13, 41, 85]),
    ],
)
def test_an_op_is_spelled_as_torch_spells_it(
    live: Live, op: str, args: tuple[str | float, ...], params: dict[str, object], wanted: object
) -> None:
    """Numbers on either side, lists of dims, kept dims: the full tensor is NumPy's."""
    step = Step("y", op, args, params)  # type: ignore[arg-type]
    answer = live.ask(question("op", LINE, [given("x", [4, 2], "S(0)")], [step]))
    assert ending(answer.end) == "done"
    assert values(answer["y"].full) == [np.array(wanted, "float32").tolist()]


def test_a_number_is_seen_as_each_rank_has_it(live: Live) -> None:
    """What is no DTensor has no layout and no full tensor, and one value per position."""
    answer = live.ask(question("number", LINE, [], [Step("y", "add", (2, 3))]))
    assert answer["y"].layout is None
    assert answer["y"].full == ()
    assert values(answer["y"].shards) == [5] * 4


def test_names_that_python_needs_can_be_used(live: Live) -> None:
    """A tensor may be called mesh, torch or lambda."""
    inputs = [given("mesh", [4], "S(0)"), given("torch", [4], "S(0)")]
    answer = live.ask(question("names", LINE, inputs, [Step("lambda", "add", ("mesh", "torch"))]))
    assert values(answer["lambda"].full) == [[0, 2, 4, 6]]


# How it ends.


def test_what_all_ranks_refuse_is_refused_and_the_world_goes_on(live: Live) -> None:
    """The type, first line and step of the exception; what came before it is still seen."""
    asked = question(
        "refused", LINE, [given("x", [4], "S(0)")], [to("y", "x", "R"), to("z", "y", "P(sum)")]
    )
    live.ask(SIMPLE)
    before = live.ranks()
    answer = live.ask(asked)
    assert isinstance(answer.end, Refused)
    assert (answer.end.error, answer.end.step) == ("RuntimeError", "z")
    assert answer.end.line.startswith("Can not redistribute from R to P(sum)")
    assert [one.name for one in answer.seen] == ["x", "y"]
    right(answer["y"], LINE, "R", [4], "float32")
    right(live.ask(SIMPLE)["y"], LINE, "R", [8], "float32")
    assert live.ranks() == before


def test_a_refused_input_ends_the_answer(live: Live) -> None:
    """Nothing is put in its place."""
    arrays = [[1, 2], [3, 4], [5, 6], [7, 9]]
    inputs = [addends("x", "P(sum) P(max)", arrays, SQUARE)]
    answer = live.ask(question("mixed", SQUARE, inputs, [to("y", "x", "R R", SQUARE)]))
    assert isinstance(answer.end, Refused)
    assert (answer.end.error, answer.end.step) == ("ValueError", "x")
    assert answer.seen == ()


def test_what_the_adapter_has_no_line_for_is_unsupported(live: Live) -> None:
    """An op of a later vocabulary, more devices than there are, and dims that torch.prod lacks."""
    x = given("x", [4, 4], "S(0)")
    ends = [
        live.ask(question("op", LINE, [x], [Step("y", "frobnicate", ("x",))])).end,
        live.ask(question("devices", mesh({"x": 9}), [])).end,
        live.ask(question("dims", LINE, [x], [Step("y", "prod", ("x",), {"axis": [0, 1]})])).end,
        live.ask(question("region", LINE, [x], context="loss_parallel")).end,
    ]
    assert all(isinstance(end, Unsupported) for end in ends)
    assert [end.step for end in ends if isinstance(end, Unsupported)] == ["y", "", "y", ""]


def test_a_rank_that_raises_while_others_wait_is_told_within_two_seconds(live: Live) -> None:
    """What it raised and where, a stack for each of the others, and then a new world."""
    live.ask(SIMPLE)
    before = set(live.ranks())
    start = time.monotonic()
    answer = live.ask(LOPSIDED)
    assert time.monotonic() - start < 2
    assert isinstance(answer.end, Hung)
    assert answer.end.step == "y"
    assert answer.end.raised.startswith("rank 3: RuntimeError: max(): Expected reduction dim")
    assert answer.end.stacks[3] == ""
    for stack in answer.end.stacks[:3]:
        assert "full_tensor" in stack
    right(live.ask(SIMPLE)["y"], LINE, "R", [8], "float32")
    assert len(before - set(live.ranks())) == 4


def test_a_rank_killed_in_the_middle_of_a_question_is_told(live: Live) -> None:
    """Signal and rank; the next question has a new world."""
    fresh = msgspec.structs.replace(LONG, fresh=True)
    before = set(live.ranks())
    live.send(fresh)
    ranks = _new(live, before, 4)
    time.sleep(0.4)
    os.kill(ranks[2], signal.SIGKILL)
    answer = live.hear()
    assert answer.end == Crashed("rank 2 died: SIGKILL", 2)
    assert answer.seen == ()
    assert set(live.ranks()) == before
    right(live.ask(SIMPLE)["y"], LINE, "R", [8], "float32")


def test_a_deadline_shows_where_each_rank_is(live: Live) -> None:
    """A rank that is stopped keeps the others waiting; their stacks say in what."""
    before = set(live.ranks())
    live.send(msgspec.structs.replace(LONG, fresh=True, check=("x4000",)), 3)
    ranks = _new(live, before, 4)
    time.sleep(0.3)
    os.kill(ranks[1], signal.SIGSTOP)
    start = time.monotonic()
    answer = live.hear()
    assert time.monotonic() - start < 4
    assert isinstance(answer.end, Hung)
    assert answer.end.why == "no answer in time"
    assert answer.end.raised == ""
    assert len(answer.end.stacks) == 4
    assert "no stack" in answer.end.stacks[1]
    assert "File" in answer.end.stacks[0]
    assert set(live.ranks()) == before
    right(live.ask(SIMPLE)["y"], LINE, "R", [8], "float32")


def _new(live: Live, before: set[int], count: int) -> list[int]:
    """The ranks of a world that is being made, once all are there."""
    for _ in range(500):
        found = [pid for pid in live.ranks() if pid not in before]
        if len(found) == count:
            return found
        time.sleep(0.01)
    raise AssertionError(f"no {count} new ranks")


def test_a_world_that_died_between_questions_is_replaced(live: Live) -> None:
    """The next question has its right answer, not the death."""
    on = mesh({"x": 3})
    asked = question("three", on, [given("x", [6], "S(0)", on)])
    before = set(live.ranks())
    live.ask(asked)
    ranks = [pid for pid in live.ranks() if pid not in before]
    assert len(ranks) == 3
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)
    while not all(Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z" for pid in ranks):
        time.sleep(0.01)
    right(live.ask(asked)["x"], on, "S(0)", [6], "float32")


def test_order_does_not_matter(live: Live) -> None:
    """The same questions in another order, in the same worlds, have the same answers."""
    texts = ["R R", "S(0) S(1)", "S(1) R", "S(0) S(0)"]
    asked = [
        question(
            f"{a}-{b}", SQUARE, [given("x", [4, 6], a, SQUARE)], [to("y", "x", b, SQUARE, ndim=2)]
        )
        for a in texts
        for b in texts
    ]
    asked += [
        LOPSIDED,
        question("again", LINE, [given("x", [5], "S(0)")], [to("y", "x", "P(sum)")]),
    ]
    once = {one.id: live.ask(one) for one in asked}
    random.Random(0).shuffle(asked)
    again = {one.id: live.ask(one) for one in asked}
    assert _without_stacks(once) == _without_stacks(again)
    assert not [one for one in once.values() if one.complaints]
    assert len([one for one in asked if task(one).checked]) >= len(asked) // CHECKED // 2


def _without_stacks(answers: dict[str, Answer]) -> dict[str, Answer]:
    ends = {
        id: msgspec.structs.replace(one.end, stacks=()) if isinstance(one.end, Hung) else one.end
        for id, one in answers.items()
    }
    return {id: msgspec.structs.replace(one, end=ends[id]) for id, one in answers.items()}


# Worlds that are made to misbehave.

CHATTY = """
from adapters.torch_dtensor import adapter, ops, recorder, world

ops._ROWS["exp"] = ops._form("torch.no_such_thing({0})")
ops._ROWS["abs"] = ops._form("torch.linalg.vector_norm({0})")
world.FD_LIMIT = 40
recorder._KINDS.pop("c10d::broadcast_")
note = recorder.Recorder._note


def deaf(self, name, args):
    if name != "_c10d_functional::all_reduce":
        note(self, name, args)


recorder.Recorder._note = deaf


def connect(devices):
    real = adapter.connect(devices)
    serve = real._serve

    def noisy(*args):
        print('{"type": "Answer"}' * 10_000, flush=True)
        serve(*args)

    real._serve = noisy
    return real
"""


@pytest.fixture(scope="module")
def chatty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("chatty")
    (folder / "chatty.py").write_text(CHATTY)
    worker = Live(folder / "printed", "chatty")
    yield worker
    worker.close()


def test_what_ranks_print_damages_nothing(chatty: Live) -> None:
    """Frames on stdout stay there, and answers are whole."""
    right(chatty.ask(SIMPLE)["y"], LINE, "R", [8], "float32")
    assert '{"type": "Answer"}{"type"' in chatty.printed.read_text()


def test_a_name_that_torch_lacks_is_unsupported(chatty: Live) -> None:
    """A missing function is not the framework's refusal."""
    answer = chatty.ask(
        question("gone", LINE, [given("x", [4], "S(0)")], [Step("y", "exp", ("x",))])
    )
    assert isinstance(answer.end, Unsupported)
    assert answer.end.step == "y"
    assert "no_such_thing" in answer.end.why
    assert [one.name for one in answer.seen] == ["x"]


def test_a_layout_that_only_torch_has_is_told_in_its_words(chatty: Live) -> None:
    """The partial of a norm is no reduction of the model; it has shards and a full tensor."""
    asked = question("norm", LINE, [given("x", [4], "S(0)")], [Step("y", "abs", ("x",))])
    seen = chatty.ask(asked)["y"]
    assert isinstance(seen.layout, Foreign)
    assert "Norm" in seen.layout.text
    assert values(seen.shards) == [0, 1, 2, 3]
    assert values(seen.full) == [pytest.approx(14**0.5)]


def checked(inputs: Sequence[Input]) -> Question:
    """A question whose collectives CommDebugMode counts too."""
    asked = (question(f"checked-{i}", LINE, inputs, [to("y", "x", "R")]) for i in range(100))
    return next(one for one in asked if task(one).checked)


def test_a_recorder_that_misses_a_collective_is_noticed(chatty: Live) -> None:
    """CommDebugMode counts it."""
    answer = chatty.ask(checked([addends("x", "P(sum)", [[1.0]] * 4)]))
    assert answer.complaints == ("rank 0: the recorder counts 0 all-reduce, CommDebugMode 2",)


def test_a_collective_without_a_kind_is_noticed(chatty: Live) -> None:
    """By every rank, and by CommDebugMode."""
    answer = chatty.ask(checked([given("x", [4], "R")]))
    assert answer.complaints == (
        "rank 0: an op without a kind: c10d::broadcast_",
        "rank 0: CommDebugMode counts c10d.broadcast_, which has no kind",
        "rank 1: an op without a kind: c10d::broadcast_",
        "rank 2: an op without a kind: c10d::broadcast_",
        "rank 3: an op without a kind: c10d::broadcast_",
    )


def test_a_world_with_too_many_descriptors_is_renewed(chatty: Live) -> None:
    """Each mesh keeps some open; past the limit the next question gets a new world."""
    chatty.ask(SIMPLE)
    before = chatty.ranks()
    for order in ((0, 1, 2, 3), (1, 0, 2, 3), (2, 1, 0, 3), (3, 1, 2, 0), (0, 2, 1, 3)):
        on = mesh({"a": 2, "b": 2}, order)
        answer = chatty.ask(question("many", on, [given("x", [4], "R R", on)]))
        right(answer["x"], on, "R R", [4], "float32")
    chatty.ask(SIMPLE)
    assert not set(before) & set(chatty.ranks())


def test_ranks_die_with_their_worker(chatty: Live) -> None:
    """Even when it is killed, and in the middle of a question."""
    chatty.send(LONG)
    time.sleep(0.3)
    ranks = chatty.ranks()
    assert len(ranks) == 4
    chatty.process.kill()
    chatty.process.wait()
    assert _gone(ranks)


def test_a_closed_worker_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process, and no file."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    worker = Live(tmp_path / "printed")
    worker.ask(SIMPLE)
    ranks = worker.ranks()
    assert len(ranks) == 4
    worker.close()
    assert worker.process.returncode == 0
    assert _gone(ranks)
    # Torch makes a folder for compiled code when it is imported.
    made = {path.name for path in tmp_path.iterdir()} - {"printed"}
    assert not [name for name in made if not name.startswith("torchinductor")]


def _gone(pids: list[int]) -> bool:
    for _ in range(200):
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.01)
    return False


# Without a framework.


def test_every_op_of_the_vocabulary_has_a_row() -> None:
    """A question of known ops is never unsupported for want of one."""
    for op in OPS.values():
        step = Step("z", op.name, op.args, dict.fromkeys(op.required, "ij,jk->ik"))
        assert step_source(step, LINE)


@pytest.mark.parametrize(
    ("step", "wanted"),
    [
        (Step("z", "subtract", (2, "x")), "2 - x"),
        (Step("z", "multiply", ("x", float("inf"))), "x * float('inf')"),
        (to("z", "x", "SS(0,2) S(0)", SQUARE),
         "x.redistribute(placements=[_StridedShard(0, split_factor=2), Shard(0)])"),
        (Step("z", "add", ("x", 1), to=layout("R R", SQUARE, 1)),
         "(x + 1).redistribute(placements=[Replicate(), Replicate()])"),
        (Step("z", "sum", ("mesh",), {"axis": [1, 0]}), "torch.sum(mesh_, dim=(1, 0))"),
    ],
)  # fmt: skip
def test_a_line_is_python_that_runs_and_prints(step: Step, wanted: str) -> None:
    """Exactly this is evaluated by a rank, and printed in a script."""
    assert step_source(step, SQUARE) == wanted


def test_torch_takes_no_dims_for_all_dims() -> None:
    """So a reduction over no dim has no line, rather than a wrong one."""
    with pytest.raises(Unsayable, match="no dims for all dims"):
        step_source(Step("y", "sum", ("x",), {"axis": []}), LINE)


def test_no_two_names_share_a_variable() -> None:
    """A name that is moved aside does not land on another."""
    names = ["mesh", "mesh_", "mesh__", "in", "in_", "x", "x_"]
    assert len({variable(name) for name in names}) == len(names)


def test_what_runs_on_no_data_has_no_lines() -> None:
    """Plan mode and recipes are refused with the reason."""
    for one in (
        question("plan", LINE, [], mode="plan"),
        question("recipe", LINE, [], recipe=Recipe("mlp")),
    ):
        with pytest.raises(Unanswerable):
            task(one)


def _seen(rank: int, **more: object) -> Seen:
    full = pack(np.array([1.0, 2.0], "float32"))
    fields: dict[str, object] = {
        "name": "y",
        "dtype": "float32",
        "shape": (2,),
        "layout": layout("R", LINE, 1),
        "mesh": None,
        "shard": pack(np.array([rank])),
        "offset": (0,),
        "full": full if rank == 3 else digest(full),
        "collectives": (Collective("all-gather", ("x",), 4, 10 + rank),),
        "full_collectives": (),
    }
    return Seen(**(fields | more))  # type: ignore[arg-type]


BACKWARDS = mesh({"x": 4}, (3, 2, 1, 0))


def test_ranks_that_report_alike_are_one_observation() -> None:
    """In mesh position order, with the bytes of the rank where the operand is largest."""
    reports = {rank: Report((_seen(rank),)) for rank in range(4)}
    assert merge.differing(reports) == ()
    (seen,) = merge.observed(BACKWARDS, ("y",), reports, {})
    assert values(seen.shards) == [[3], [2], [1], [0]]
    assert values(seen.full) == [[1.0, 2.0]]
    assert counted(seen.collectives) == [("all-gather", ("x",), 13)]
    assert seen.disagreements == ()


def test_a_rank_that_reports_otherwise_is_a_disagreement() -> None:
    """Layout and collectives each give a sentence that names the rank."""
    other = _seen(1, layout=layout("S(0)", LINE, 1), collectives=())
    reports = {rank: Report((_seen(rank) if rank != 1 else other,)) for rank in range(4)}
    (seen,) = merge.observed(BACKWARDS, ("y",), reports, {})
    assert [text.split(" reports")[0] for text in seen.disagreements] == [
        "layout: rank 1",
        "collectives: rank 1",
    ]


def test_differing_full_tensors_are_all_told() -> None:
    """One for each mesh position, in order."""
    whole = {rank: pack(np.array([rank], "float32")) for rank in range(4)}
    reports = {
        rank: Report((_seen(rank, full=whole[3] if rank == 3 else digest(whole[rank])),))
        for rank in range(4)
    }
    assert merge.differing(reports) == ("y",)
    fulls = {rank: {"y": whole[rank]} for rank in range(4)}
    (seen,) = merge.observed(BACKWARDS, ("y",), reports, fulls)
    assert values(seen.full) == [[3], [2], [1], [0]]


def test_ranks_are_in_step_only_after_the_same_collectives() -> None:
    """Else one of them may wait for what the others never join."""
    fired = (Collective("all-gather", ("x",), 4, 8),)
    one = Raised("ValueError", "no", "y", False, fired)
    assert merge.in_step([one, msgspec.structs.replace(one, line="nor I")])
    assert not merge.in_step([one, msgspec.structs.replace(one, fired=())])
    assert not merge.in_step([one, msgspec.structs.replace(one, place="z")])
    assert merge.differently({0: one, 2: msgspec.structs.replace(one, line="nor I")}) == (
        "rank 2 raised ValueError at y: nor I",
    )
