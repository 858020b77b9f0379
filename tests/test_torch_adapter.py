"""Does the torch adapter tell what DTensor did? Real worlds of ranks, asked through a worker."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from adapters.answer import (
    Answer,
    Done,
    Hung,
    format_end,
)
from adapters.torch_dtensor.task_lines import CHECK_INTERVAL, make_task
from cases.model import (
    STACKED_AXIS,
    Foreign,
    Layout,
    Mesh,
    MeshStep,
    Step,
    mesh,
)
from tests.torch_worker import (
    LINE,
    LOPSIDED,
    SIMPLE,
    SQUARE,
    Live,
    addends,
    counted,
    counting,
    given,
    layout,
    question,
    right,
    to,
    values,
)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    worker = Live(tmp_path_factory.mktemp("torch") / "printed")
    yield worker
    worker.close()


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
    """Slices and flattened meshes hold tensors, and each rank tells what it sees of them."""
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
    assert answer["v"].offsets == ((0,), (0,), (1,), (1,)) * 2
    assert values(answer["v/b"].shards) == values(answer["v"].shards)
    assert counted(answer["y"].collectives) == [("all-gather", ("f",), 8)]
    assert answer["y"].mesh == mesh({STACKED_AXIS: 2, "f": 4})
    assert live.ranks() == before


def test_a_tensor_that_stays_on_another_mesh_is_told(live: Live) -> None:
    """A redistribute to another mesh by equal placements leaves it where it was."""
    steps = (
        MeshStep("u", "mesh_unflatten", ("x",), {"axes": {"a": 2, "b": 2}}),
        MeshStep("v", "mesh_unflatten", ("x",), {"axes": {"c": 1, "d": 4}}),
    )
    source, target = mesh({"a": 2, "b": 2}), mesh({"c": 1, "d": 4})
    tensor = msgspec.structs.replace(given("x", [8], "R S(0)", source), view="u")
    move = msgspec.structs.replace(to("y", "x", "R S(0)", target), params={"view": "v"})
    answer = live.ask(question("stays", LINE, [tensor], [move], mesh_steps=steps, check=("y",)))
    assert answer["y"].layout == Foreign("[R, S(0)] on the mesh a=2, b=2 of devices [0, 1, 2, 3]")


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
    assert format_end(answer.end) == "done"
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
    assert (
        len([one for one in asked if make_task(one).checked]) >= len(asked) // CHECK_INTERVAL // 2
    )


def _without_stacks(answers: dict[str, Answer]) -> dict[str, Answer]:
    ends = {
        id: msgspec.structs.replace(one.end, stacks=()) if isinstance(one.end, Hung) else one.end
        for id, one in answers.items()
    }
    return {id: msgspec.structs.replace(one, end=ends[id]) for id, one in answers.items()}
