"""Does the torch adapter run more than chains of ops? Gradients, shards, regions, state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from adapters.answer import Collective, Done, Refused
from adapters.torch_dtensor.rank_messages import progress_points
from adapters.torch_dtensor.task_lines import make_task
from adapters.unsupported import CannotAnswer
from cases.arrays import pack
from cases.model import Input, MeshStep, Question, Step, mesh
from tests.torch_worker import (
    LINE,
    SIMPLE,
    SQUARE,
    Live,
    addends,
    counted,
    given,
    layout,
    question,
    to,
    values,
)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    worker = Live(tmp_path_factory.mktemp("torch") / "printed")
    yield worker
    worker.close()


X, W = given("x", [4, 2], "S(0)"), given("w", [2, 4], "S(1)")


# Numbers and shards.


def test_an_item_is_each_rank_s_own(live: Live) -> None:
    """That of a sum still owed is one of the addends, another on each rank; so is what it gives."""
    steps = [Step("s", "sum", ("x",)), Step("v", "item", ("s",)), Step("d", "multiply", ("v", 2))]
    answer = live.ask(question("item", LINE, [X], steps))
    assert answer["v"].layout is None
    assert values(answer["v"].full) == [1, 5, 9, 13]
    assert values(answer["d"].full) == [2, 10, 18, 26]


def test_an_item_that_ranks_agree_on_is_one_value(live: Live) -> None:
    """In the dtype of what it was taken from."""
    steps = [
        Step("s", "sum", ("x",)),
        to("r", "s", "R", ndim=0),
        Step("v", "item", ("r",)),
    ]
    seen = live.ask(question("same", LINE, [X], steps))["v"]
    assert (seen.dtype, seen.shape, values(seen.full)) == ("float32", (), [28])
    assert values(seen.shards) == [28] * 4


def test_local_tensors_are_plain_between_leaving_and_coming_back(live: Live) -> None:
    """Each rank's own, with no full tensor; then a DTensor in the layout asked for."""
    steps = [
        Step("a", "to_local", ("x",)),
        Step("b", "multiply", ("a", 2)),
        Step("y", "from_local", ("b",), to=layout("S(0)", LINE, 2)),
    ]
    answer = live.ask(question("local", LINE, [X], steps))
    assert (answer["b"].layout, answer["b"].full) == (None, ())
    assert values(answer["b"].shards) == [[[0, 2]], [[4, 6]], [[8, 10]], [[12, 14]]]
    assert answer["y"].layout == layout("S(0)", LINE, 2)
    assert values(answer["y"].full) == [[[0, 2], [4, 6], [8, 10], [12, 14]]]


def test_what_comes_back_is_taken_for_even_shards(live: Live) -> None:
    """As a user writes it, without the global shape: 5 columns, split as 3 and 2, are 6 or 4."""
    on = mesh({"x": 2})
    steps = [
        Step("a", "to_local", ("w",)),
        Step("c", "from_local", ("a",), to=layout("S(1)", on, 2)),
        Step("y", "matmul", ("c", "v")),
    ]
    inputs = [given("w", [2, 5], "S(1)", on), given("v", [5, 3], "S(0)", on)]
    answer = live.ask(question("uneven", on, inputs, steps, check=("y",)))
    assert isinstance(answer.end, Refused)
    assert (answer.end.error, answer.end.step) == ("RuntimeError", "y")
    assert "[2, 6] X [5, 3]" in answer.end.line


def test_what_comes_back_lives_on_the_mesh_that_it_left(live: Live) -> None:
    """Not on the question's, where its operand had one of its own."""
    own = mesh({"z": 2}, (3, 2))
    x = msgspec.structs.replace(given("x", [4], "R", own), mesh=own)
    steps = [
        to("s", "x", "S(0)", own),
        Step("a", "to_local", ("s",)),
        Step("y", "from_local", ("a",), to=layout("S(0)", own, 1)),
    ]
    seen = live.ask(question("home", LINE, [x], steps))["y"]
    assert seen.mesh == own
    assert values(seen.shards) == [[0, 1], [2, 3]]


def test_a_function_is_mapped_over_shards(live: Live) -> None:
    """In and out in the layout asked for; an operand in another is refused, not moved."""
    step = Step("y", "map_shards", ("x",), {"scale": 3}, layout("S(0)", LINE, 2))
    answer = live.ask(question("map", LINE, [X], [step]))
    assert values(answer["y"].shards) == [[[0, 3]], [[6, 9]], [[12, 15]], [[18, 21]]]
    answer = live.ask(question("map", LINE, [given("x", [4, 2], "R")], [step]))
    assert isinstance(answer.end, Refused)
    assert (answer.end.error, answer.end.step) == ("ValueError", "y")


# Gradients.

SLOPES = [
    to("u", "w", "R", ndim=2),
    Step("y", "matmul", ("x", "u")),
    Step("l", "sum", ("y",)),
    Step("gw", "grad", ("l", "w")),
    Step("gx", "grad", ("l", "x")),
]


def passes(fired: Sequence[Collective] | None) -> list[tuple[str, str]]:
    assert fired is not None
    return [(one.kind, one.pass_) for one in fired]


def test_a_gradient_s_collectives_are_of_the_backward_pass(live: Live) -> None:
    """Those of its step; all others are forward, and CommDebugMode counts as many."""
    asks = (question(f"slopes-{i}", LINE, [X, W], SLOPES) for i in range(100))
    answer = live.ask(next(one for one in asks if make_task(one).checked))
    assert answer.end == Done()
    assert not answer.complaints
    assert passes(answer["u"].collectives) == [("all-gather", "forward")]
    assert passes(answer["gw"].collectives) == [("reduce-scatter", "backward")]
    assert answer["gw"].layout == layout("S(1)", LINE, 2)
    assert values(answer["gw"].full) == [[[12] * 4, [16] * 4]]
    assert values(answer["gx"].full) == [[[6, 22]] * 4]


def test_only_what_a_gradient_is_asked_of_keeps_a_graph() -> None:
    """Another input's line is what it is without gradients."""
    lines = [
        data.line.source for data in make_task(question("g", LINE, [X, W], SLOPES[:-1])).inputs
    ]
    assert lines == [
        "distribute_tensor(x, mesh, [Shard(0)])",
        "distribute_tensor(w, mesh, [Shard(1)]).requires_grad_()",
    ]


def test_looking_at_results_changes_no_gradient(live: Live) -> None:
    """With nothing checked but the gradient it is what it is with everything checked."""
    everything = live.ask(question("all", LINE, [X, W], SLOPES))
    alone = live.ask(question("one", LINE, [X, W], SLOPES, check=("gw",)))
    assert alone["gw"] == everything["gw"]


def test_a_gradient_that_ranks_keep_to_themselves_is_told(live: Live) -> None:
    """A replicated weight that is used as a local tensor has another gradient on each rank."""
    x, w = given("x", [4], "S(0)"), Input(
        "w", (1,), "float32", layout("R", LINE, 1), pack(np.array([1], "float32"))
    )  # fmt: skip
    steps = [
        Step("a", "to_local", ("x",)),
        Step("b", "to_local", ("w",)),
        Step("c", "multiply", ("a", "b")),
        Step("y", "from_local", ("c",), to=layout("S(0)", LINE, 1)),
        Step("l", "sum", ("y",)),
        Step("g", "grad", ("l", "w")),
    ]
    seen = live.ask(question("kept", LINE, [x, w], steps, check=("g",)))["g"]
    assert seen.layout == layout("R", LINE, 1)
    assert values(seen.full) == [[0], [1], [2], [3]]


# Regions.


def test_a_region_holds_for_the_steps(live: Live) -> None:
    """A loss split over classes then costs three all-reduces, forward, and no gather."""
    x = given("x", [4, 8], "S(1)")
    classes = pack(np.array([0, 3, 7, 2]))
    t = Input("t", (4,), "int64", layout("R", LINE, 1), classes)
    steps = [Step("l", "cross_entropy", ("x", "t")), Step("g", "grad", ("l", "x"))]
    inside = live.ask(question("in", LINE, [x, t], steps, context="loss_parallel"))
    outside = live.ask(question("out", LINE, [x, t], steps))
    assert passes(inside["l"].collectives) == [("all-reduce", "forward")] * 3
    assert passes(inside["g"].collectives) == []
    assert inside["g"].layout == layout("S(1)", LINE, 2)
    assert passes(outside["l"].collectives) == [("all-gather", "forward")]
    assert np.allclose(values(inside["g"].full), values(outside["g"].full), atol=1e-6)  # type: ignore[arg-type]


def test_a_refusal_inside_a_region_ends_the_region(live: Live) -> None:
    """The next question is asked outside."""
    bad = [to("y", "x", "R"), to("z", "y", "P(sum)")]
    asked = question("bad", LINE, [given("x", [4], "S(0)")], bad, context="loss_parallel")
    assert isinstance(live.ask(asked).end, Refused)
    x = given("x", [4, 8], "S(1)")
    t = Input("t", (4,), "int64", layout("R", LINE, 1), pack(np.array([0, 3, 7, 2])))
    answer = live.ask(question("out", LINE, [x, t], [Step("l", "cross_entropy", ("x", "t"))]))
    assert passes(answer["l"].collectives) == [("all-gather", "forward")]


# State.

OWED = addends("p", "P(sum) P(sum)", [[1], [2], [3], [4]], SQUARE)
TWICE = [to("q", "p", "R R", SQUARE), to("r", "p", "R R", SQUARE)]
AXIS_BY_AXIS = [("all-reduce", ("dp",), 4), ("all-reduce", ("tp",), 4)]
AT_ONCE = [("all-reduce", ("dp", "tp"), 4)]


def flattened(after: str) -> Question:
    steps = (MeshStep("f", "mesh_flatten", ("dp", "tp"), {}, after),)
    return question(f"after-{after}", SQUARE, [OWED], TWICE, mesh_steps=steps)


@pytest.mark.parametrize(
    ("after", "first", "second"),
    [("", AT_ONCE, AT_ONCE), ("p", AT_ONCE, AT_ONCE), ("q", AXIS_BY_AXIS, AT_ONCE),
     ("r", AXIS_BY_AXIS, AXIS_BY_AXIS)],
)  # fmt: skip
def test_a_mesh_is_flattened_when_the_question_says(
    live: Live, after: str, first: list[object], second: list[object]
) -> None:
    """What comes after reduces a tensor made before it over both axes at once."""
    answer = live.ask(flattened(after))
    assert answer.end == Done()
    assert counted(answer["q"].collectives) == first
    assert counted(answer["r"].collectives) == second


def test_a_mesh_that_was_flattened_does_not_leak(live: Live, tmp_path: Path) -> None:
    """The same question without it, asked next, is answered as by an adapter just started."""
    plain = question("plain", SQUARE, [OWED], TWICE)
    before = live.ask(SIMPLE)
    live.ask(flattened("p"))
    other = Live(tmp_path / "printed")
    new = other.ask(plain)
    other.close()
    assert live.ask(plain) == new
    assert counted(new["r"].collectives) == AXIS_BY_AXIS
    assert live.ask(SIMPLE) == before


def test_places_stand_in_the_order_that_ranks_come_by_them() -> None:
    """A late mesh stands behind what it comes after, so that a hang is told where it is."""
    assert progress_points(make_task(flattened("q")))[:5] == ("mesh", "p", "q", "f", "r")


def test_the_mesh_of_a_question_is_never_late() -> None:
    """Inputs live on it."""
    late = MeshStep(
        "m", "mesh_unflatten", ("w",), {"axes": {"dp": 2, "tp": 2}, "from": {"w": 4}}, "p"
    )
    with pytest.raises(CannotAnswer, match="before everything"):
        make_task(question("late", SQUARE, [OWED], mesh_steps=(late,)))


def test_an_input_lives_on_no_mesh_that_is_still_to_come() -> None:
    """A late mesh holds inputs that stand behind what it comes after, and no others."""
    x = msgspec.structs.replace(given("x", [4], "S(0)", mesh({"f": 4})), view="f")
    late = (MeshStep("f", "mesh_flatten", ("dp", "tp"), {}, "p"),)
    assert make_task(question("behind", SQUARE, [OWED, x], mesh_steps=late))
    with pytest.raises(CannotAnswer, match="not there yet"):
        make_task(question("before", SQUARE, [x, OWED], mesh_steps=late))
