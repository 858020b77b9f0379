"""Does the JAX adapter tell what JAX did, by every route, whatever JAX did?

Every question goes through a real worker process over its pipes.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest

from adapters.answer import Collective, Crashed, Done, Refused, Unsupported
from adapters.worker_client import WorkerClient
from cases.arrays import pack
from cases.model import Input, Layout, Question, Step, mesh
from tests.jax_client import (
    CHEAPEST,
    EXPLICIT,
    IMPLIED,
    JIT,
    ROUTES,
    ROW,
    SQUARE,
    Client,
    assert_holds,
    count,
    fired,
    kinds,
    layout,
    locals_,
    move,
    owed,
    question,
    tensor,
    value,
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One worker for the module."""
    made = Client(tmp_path_factory.mktemp("worker"))
    yield made
    made.close()


def test_the_worker_says_what_it_is(client: Client) -> None:
    """Hello names the framework, its release and the devices it has."""
    assert client.hello.framework == "jax"
    assert client.hello.release.count(".") == 2
    assert "8 host devices" in client.hello.facts


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("target", ["R", "S(0)", "S(1)"])
@pytest.mark.parametrize("source", ["R", "S(0)", "S(1)", "P(sum)"])
def test_every_change_of_one_axis_arrives(
    client: Client, route: str, source: str, target: str
) -> None:
    """By every route the wanted layout is there, with right values, shards and offsets."""
    addends = count(4, 8, 4, start=3)
    right = addends.sum(0) if source == "P(sum)" else addends[0]
    at = layout(ROW, source)
    given = owed("s", ROW, addends, at) if at.partial else tensor("s", right, at)
    (answer,) = client.ask(move(ROW, given, layout(ROW, target)), route)
    assert answer.end == Done()
    assert answer.complaints == ()
    assert_holds(answer["y"], ROW, right, layout(ROW, target))


@pytest.mark.parametrize(
    ("source", "target", "wanted"),
    [
        ("S(0)", "R", [("all-gather", ("x",))]),
        ("R", "S(0)", []),
        ("S(0)", "S(1)", [("all-to-all", ("x",))]),
        ("P(sum)", "R", [("all-reduce", ("x",))]),
        ("P(sum)", "S(0)", [("reduce-scatter", ("x",))]),
    ],
)
def test_the_implied_plan_fires_what_it_says(
    client: Client, source: str, target: str, wanted: list[tuple[str, tuple[str, ...]]]
) -> None:
    """Executed move by move, each change on one axis is the one collective that it implies."""
    at = layout(ROW, source)
    addends = count(4, 8, 4)
    given = owed("s", ROW, addends, at) if at.partial else tensor("s", addends[0], at)
    (answer,) = client.ask(move(ROW, given, layout(ROW, target)), IMPLIED)
    assert kinds(fired(answer)) == wanted


def test_jit_reduces_and_slices_where_a_reduce_scatter_would_do(client: Client) -> None:
    """On CPU, P to S under jit is an all-reduce of the whole tensor."""
    given = owed("s", ROW, count(4, 8, 4), layout(ROW, "P(sum)"))
    (answer,) = client.ask(move(ROW, given, layout(ROW, "S(0)")), JIT)
    assert answer.program == (Collective("all-reduce", ("x",), 4, 8 * 4 * 4),)


def test_a_gather_over_two_axes_of_one_dim_is_one_collective(client: Client) -> None:
    """XLA gathers a dim split by two axes at once; the operand is the local shard."""
    given = tensor("s", count(8, 4), layout(SQUARE, "S(0)", "S(0)"))
    jit, explicit = client.ask(move(SQUARE, given, layout(SQUARE, "R", "R")), JIT, EXPLICIT)
    wanted = (Collective("all-gather", ("a", "b"), 4, 2 * 4 * 4),)
    assert jit.program == explicit["y"].collectives == wanted


@pytest.mark.parametrize("route", ROUTES)
def test_the_order_of_axes_in_a_dim_is_kept(client: Client, route: str) -> None:
    """Split by b then a is not split by a then b: both ways round, and one to the other."""
    ab, ba = Layout((("a", "b"), ())), Layout((("b", "a"), ()))
    right = count(8, 2)
    there = Step("y", "redistribute", ("s",), to=ba)
    back = Step("z", "redistribute", ("y",), to=ab)
    (answer,) = client.ask(
        question(SQUARE, [tensor("s", right, ab)], there, back, check="s y z"), route
    )
    assert_holds(answer["s"], SQUARE, right, ab)
    assert_holds(answer["z"], SQUARE, right, ab)
    if route != JIT:
        assert_holds(answer["y"], SQUARE, right, ba)


@pytest.mark.parametrize("route", [IMPLIED, CHEAPEST])
def test_plans_of_several_axes_arrive(client: Client, route: str) -> None:
    """All-to-alls that change an axis order, permutes, and moves over merged axes land right."""
    right = count(8, 8)
    for source, target in itertools.product(
        [Layout((("b", "a"), ())), Layout((("a",), ("b",))), Layout(((), ("a", "b")))],
        [Layout(((), ("a", "b"))), Layout((("b",), ("a",))), Layout((("b", "a"), ()))],
    ):
        (answer,) = client.ask(move(SQUARE, tensor("s", right, source), target), route)
        assert answer.end == Done()
        assert_holds(answer["y"], SQUARE, right, target)


def test_shards_come_in_mesh_order_whatever_the_devices(client: Client) -> None:
    """Position i of a mesh over devices 3, 2, 1, 0 holds the i-th shard."""
    on = mesh({"x": 4}, (3, 2, 1, 0))
    right = count(8, 4)
    given = tensor("s", right, layout(on, "S(0)"))
    asked = move(on, given, layout(on, "S(1)"))
    for answer in client.ask(msgspec.structs.replace(asked, check=("s", "y")), *ROUTES):
        assert_holds(answer["s"], on, right, layout(on, "S(0)"))
        assert_holds(answer["y"], on, right, layout(on, "S(1)"))
        assert kinds(fired(answer)) == [("all-to-all", ("x",))]


def test_five_rows_on_four_devices_are_refused_at_the_input(client: Client) -> None:
    """Uneven inputs end the answer by every route: nothing is put in their place."""
    given = tensor("s", count(5, 2), layout(ROW, "S(0)"))
    for answer in client.ask(move(ROW, given, layout(ROW, "R")), *ROUTES):
        assert isinstance(answer.end, Refused)
        assert answer.end.step == "s"
        assert "5" in answer.end.line
        assert answer.seen == ()


def test_an_uneven_result_is_told_as_each_route_has_it(client: Client) -> None:
    """Asked for 5 rows on 4 devices: jit replicates, explicit refuses, plans have no form."""
    given = tensor("s", count(5, 2), layout(ROW, "R"))
    jit, explicit, implied = client.ask(
        move(ROW, given, layout(ROW, "S(0)")), JIT, EXPLICIT, IMPLIED
    )
    assert_holds(jit["y"], ROW, count(5, 2), layout(ROW, "R"))
    assert isinstance(explicit.end, Refused)
    assert explicit.end.step == "y"
    assert isinstance(implied.end, Unsupported)


def matmul(to: Layout | None) -> Question:
    """x, split by columns, times w, split by rows."""
    x = tensor("x", count(4, 8), layout(ROW, "S(1)"))
    w = tensor("w", count(8, 4, start=5), layout(ROW, "S(0)"))
    return question(ROW, [x, w], Step("y", "matmul", ("x", "w"), to=to))


def test_explicit_says_that_a_contraction_is_ambiguous(client: Client) -> None:
    """With nothing asked of a split contraction, JAX's own refusal is the answer."""
    (answer,) = client.ask(matmul(None), EXPLICIT)
    assert isinstance(answer.end, Refused)
    assert (answer.end.error, answer.end.step) == ("ShardingTypeError", "y")


def test_a_refusal_without_text_names_the_function_of_jax_that_raised(client: Client) -> None:
    """JAX would hide its own frames; without them, a bare error says nothing."""
    matrix = owed("s", ROW, count(4, 8, 4), layout(ROW, "P(sum)"))
    row = owed("t", ROW, count(4, 4), layout(ROW, "P(sum)", ndim=1))
    (answer,) = client.ask(question(ROW, [matrix, row], Step("y", "add", ("s", "t"))), EXPLICIT)
    assert isinstance(answer.end, Refused)
    assert answer.end.line == "(no text; raised in multi_broadcast_in_dim)"


def test_explicit_shows_what_is_owed(client: Client) -> None:
    """An unreduced result has addends and no offsets, costs nothing, and an all-reduce to see."""
    right = count(4, 8) @ count(8, 4, start=5)
    (answer,) = client.ask(matmul(layout(ROW, "P(sum)")), EXPLICIT)
    y = answer["y"]
    assert y.layout == layout(ROW, "P(sum)")
    assert y.collectives == ()
    assert kinds(y.full_collectives) == [("all-reduce", ("x",))]
    assert y.offsets == (None,) * 4
    np.testing.assert_array_equal(value(y), right)
    addends = locals_(y)
    assert not np.array_equal(addends[0], right)
    np.testing.assert_array_equal(np.sum(addends, axis=0), right)


def test_explicit_asks_the_op_itself_for_a_layout(client: Client) -> None:
    """A contraction asked for S(0) is one program: a reduction, and no reshard after it."""
    right = count(4, 8) @ count(8, 4, start=5)
    (answer,) = client.ask(matmul(layout(ROW, "S(0)")), EXPLICIT)
    assert_holds(answer["y"], ROW, right, layout(ROW, "S(0)"))
    assert kinds(answer["y"].collectives) == [("all-reduce", ("x",))]


def test_jit_answers_for_the_program(client: Client) -> None:
    """Intermediate results have values and no layout; collectives are those of all steps."""
    x = tensor("x", count(4, 8), layout(ROW, "S(1)"))
    w = tensor("w", count(8, 4), layout(ROW, "S(0)"))
    steps = (
        Step("y", "matmul", ("x", "w")),
        Step("z", "redistribute", ("y",), to=layout(ROW, "S(0)")),
    )
    (answer,) = client.ask(question(ROW, [x, w], *steps), JIT)
    right = count(4, 8) @ count(8, 4)
    assert answer["y"].layout is None
    assert answer["y"].collectives is None
    np.testing.assert_array_equal(value(answer["y"]), right)
    assert_holds(answer["z"], ROW, right, layout(ROW, "S(0)"))
    assert kinds(answer.program) == [("all-reduce", ("x",))]


@pytest.mark.parametrize("op", ["avg", "max", "min", "product"])
def test_jit_reduces_every_kind_of_addends(client: Client, op: str) -> None:
    """Addends stacked on leading dims are reduced inside the program, whatever the reduction."""
    reduce = {"avg": np.mean, "max": np.max, "min": np.min, "product": np.prod}[op]
    addends = np.array([[1, 8, 2], [4, 4, 6], [2, 16, 4], [1, 4, 8]], np.float32)
    given = owed("s", ROW, addends, layout(ROW, f"P({op})", ndim=1))
    (answer,) = client.ask(move(ROW, given, layout(ROW, "R", ndim=1)), JIT)
    right = np.asarray(reduce(addends, axis=0), np.float32)
    assert_holds(answer["y"], ROW, right, layout(ROW, "R", ndim=1))
    assert kinds(answer.program) == [("all-reduce", ("x",))]


def test_mixed_reductions_are_done_in_the_order_due(client: Client) -> None:
    """A maximum of sums is not a sum of maxima."""
    addends = np.array([[[1, 9], [5, 2]], [[8, 1], [3, 3]]], np.float32)
    for partial in ((("a", "sum"), ("b", "max")), (("b", "max"), ("a", "sum"))):
        at = Layout(((),), partial)
        order = addends if partial[0][0] == "a" else addends.swapaxes(0, 1)
        first, then = [np.sum if op == "sum" else np.max for _, op in partial]
        right = np.asarray(then(first(order, axis=0), axis=0), np.float32)
        given = owed("s", SQUARE, order, at)
        for answer in client.ask(move(SQUARE, given, Layout(((),))), JIT, IMPLIED):
            assert_holds(answer["y"], SQUARE, right, Layout(((),)))


def test_what_a_route_has_no_form_for_is_unsupported(client: Client) -> None:
    """A partial result of jit, an average in explicit, a product or an op in shard_map."""
    split, whole = layout(ROW, "S(0)"), layout(ROW, "R")
    given = tensor("s", count(8, 4), split)
    averaged = owed("s", ROW, count(4, 8, 4), layout(ROW, "P(avg)"))
    product = owed("s", ROW, count(4, 8, 4), layout(ROW, "P(product)"))
    greatest = owed("s", ROW, count(4, 8, 4), layout(ROW, "P(max)"))
    for asked, route, why, step in [
        (move(ROW, given, layout(ROW, "P(sum)")), JIT, "a partial result asked of jit", "y"),
        (move(ROW, averaged, whole), EXPLICIT, "pending avg", "s"),
        (move(ROW, given, layout(ROW, "P(max)")), EXPLICIT, "pending max", "y"),
        (move(ROW, product, whole), IMPLIED, "no collective product", "y"),
        (move(ROW, greatest, split), IMPLIED, "no reduce-scatter by max", "y"),
        (question(ROW, [given], Step("y", "add", ("s", 1))), CHEAPEST, "layout alone", "y"),
    ]:
        (answer,) = client.ask(asked, route)
        assert isinstance(answer.end, Unsupported)
        assert why in answer.end.why
        assert answer.end.step == step


@pytest.mark.parametrize("route", [IMPLIED, CHEAPEST])
@pytest.mark.parametrize("op", ["sum", "avg", "max"])
def test_plans_make_and_keep_what_is_owed(client: Client, route: str, op: str) -> None:
    """R to P leaves addends that reduce to the value, and P moved to another axis still does."""
    reduce = {"sum": np.sum, "avg": np.mean, "max": np.max}[op]
    right = count(4, 4, start=1)
    over_a = Layout(((), ()), (("a", op),))
    over_b = Layout(((), ()), (("b", op),))
    (made,) = client.ask(move(SQUARE, tensor("s", right, layout(SQUARE, "R", "R")), over_a), route)
    (moved,) = client.ask(
        move(SQUARE, owed("s", SQUARE, np.stack([right, right - 1]), over_a), over_b), route
    )
    summed = np.asarray(reduce(np.stack([right, right - 1]), axis=0), np.float32)
    for answer, wanted, pairs in ((made, right, [(0, 2), (1, 3)]), (moved, summed, [(0, 1)])):
        assert answer.end == Done()
        shards = locals_(answer["y"])
        for pair in pairs:
            np.testing.assert_array_equal(reduce([shards[at] for at in pair], axis=0), wanted)
    assert made["y"].layout == over_a
    assert made["y"].full == ()


@pytest.mark.parametrize("dtype", ["int32", "bool", "bfloat16"])
def test_sums_keep_their_dtype(client: Client, dtype: str) -> None:
    """A change of layout changes no dtype, though lax.psum counts bools in 32 bits."""
    name = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    addends = np.array([[0, 1], [0, 1], [0, 0], [0, 1]]).astype(name)
    given = owed("s", ROW, addends, layout(ROW, "P(sum)", ndim=1))
    for answer in client.ask(move(ROW, given, layout(ROW, "R", ndim=1)), *ROUTES):
        right = np.array([0, 1 if dtype == "bool" else 3]).astype(name)
        assert_holds(answer["y"], ROW, right, layout(ROW, "R", ndim=1))


@pytest.mark.parametrize("shape", [(), (0, 4), (4, 0)])
def test_scalars_and_empty_tensors_are_answered(client: Client, shape: tuple[int, ...]) -> None:
    """0-d tensors and empty dims are summed like any other."""
    at = Layout(((),) * len(shape), (("x", "sum"),))
    given = owed("s", ROW, count(4, *shape, start=1), at)
    whole = Layout(((),) * len(shape))
    right = np.asarray(count(4, *shape, start=1).sum(0))
    for answer in client.ask(move(ROW, given, whole), *ROUTES):
        assert_holds(answer["y"], ROW, right, whole)


def test_axes_of_size_one_and_single_devices_cost_nothing(client: Client) -> None:
    """Where an axis has one device, every change of layout over it is free."""
    for on in (mesh({"one": 1}), mesh({"one": 1}, (5,)), mesh({"one": 1, "x": 4})):
        source, target = Layout((("one",), ())), Layout(((), ("one",)))
        right = count(4, 4)
        for answer in client.ask(move(on, tensor("s", right, source), target), *ROUTES):
            assert_holds(answer["y"], on, right, target)
            assert fired(answer) == ()


def test_an_input_on_a_mesh_of_its_own_stays_there(client: Client) -> None:
    """A result lies on its operand's mesh, and says so; two device orders do not mix in JAX."""
    other = mesh({"x": 4}, (3, 2, 1, 0))
    split, whole = layout(ROW, "S(0)"), layout(ROW, "R")
    away = msgspec.structs.replace(tensor("s", count(8, 4), split), mesh=other)
    here = tensor("t", count(8, 4), split)
    for answer in client.ask(move(ROW, away, whole), JIT, EXPLICIT):
        assert_holds(answer["y"], other, count(8, 4), whole)
        assert answer["y"].mesh == other
        assert kinds(fired(answer)) == [("all-gather", ("x",))]
    added = question(ROW, [away, here], Step("y", "add", ("s", "t")))
    for answer in client.ask(added, JIT, EXPLICIT):
        assert isinstance(answer.end, Refused)
        assert "incompatible devices" in answer.end.line


def test_shards_given_one_by_one_are_taken_as_they_are(client: Client) -> None:
    """Local arrays that fit make the input; those that break the chunk rule JAX refuses."""
    at = layout(ROW, "S(0)")
    parts = tuple(pack(part) for part in np.split(count(8, 2), 4))
    given = Input("s", (8, 2), "float32", at, per_device=parts)
    odd = msgspec.structs.replace(given, per_device=(*parts[:3], pack(count(1, 2))), irregular=True)
    for answer in client.ask(move(ROW, given, layout(ROW, "R")), *ROUTES):
        assert_holds(answer["y"], ROW, count(8, 2), layout(ROW, "R"))
    for answer in client.ask(move(ROW, odd, layout(ROW, "R")), *ROUTES):
        assert isinstance(answer.end, Refused)
        assert answer.end.step == "s"


def test_a_refusal_names_its_step_and_keeps_what_was_reached(client: Client) -> None:
    """The step at fault is told even in the middle of one jitted program."""
    steps = (
        Step("y", "add", ("s", 1)),
        Step("bad", "matmul", ("y", 2)),
        Step("z", "add", ("bad", 1)),
    )
    given = tensor("s", count(4, 4), layout(ROW, "S(0)"))
    asked = question(ROW, [given], *steps, check="s y bad z")
    jit, explicit = client.ask(asked, JIT, EXPLICIT)
    for answer, reached in ((jit, ["s"]), (explicit, ["s", "y"])):
        assert isinstance(answer.end, Refused)
        assert (answer.end.error, answer.end.step) == ("ValueError", "bad")
        assert [one.name for one in answer.seen] == reached


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"mesh": mesh({"x": 16})}, "16 devices asked for, this worker has 8"),
        ({"mesh": mesh({"x": 2}, (0, 8))}, "9 devices asked for, this worker has 8"),
        ({"context": "elsewhere"}, "elsewhere"),
    ],
)
def test_what_no_route_runs_is_unsupported(
    client: Client, change: dict[str, Any], why: str
) -> None:
    """Too many devices are told with both numbers; regions by name."""
    asked = move(ROW, tensor("s", count(16, 4), layout(ROW, "S(0)")), layout(ROW, "R"))
    for answer in client.ask(msgspec.structs.replace(asked, **change), *ROUTES):
        assert isinstance(answer.end, Unsupported)
        assert why in answer.end.why


def test_integers_are_summed_in_64_bits(client: Client) -> None:
    """64-bit types are on, as in NumPy and torch: a sum of int32 is an int64."""
    given = tensor("s", count(8, 2, dtype="int32"), layout(ROW, "S(0)"))
    (answer,) = client.ask(question(ROW, [given], Step("y", "sum", ("s",))), JIT)
    assert answer["y"].dtype == "int64"
    assert [one.bytes for one in answer.program or ()] == [8]


def test_answers_do_not_depend_on_what_was_asked_before(client: Client) -> None:
    """The same questions the other way round give the same answers."""
    asked = [
        move(on, tensor("s", count(8, 8), source), target)
        for on in (SQUARE, mesh({"a": 2, "b": 2}, (3, 1, 2, 0)))
        for source, target in itertools.permutations(
            [layout(on, "S(0)", "R"), layout(on, "R", "S(1)"), layout(on, "S(1)", "S(0)")], 2
        )
    ]
    once = [client.ask(one, EXPLICIT) for one in asked]
    again = [client.ask(one, EXPLICIT) for one in reversed(asked)]
    assert once == again[::-1]


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """The directory that XLA writes into is gone when the worker is."""
    client = Client(tmp_path)
    client.ask(move(ROW, tensor("s", count(8, 4), layout(ROW, "S(0)")), layout(ROW, "R")), JIT)
    assert [one.name[:16] for one in tmp_path.iterdir()] == ["shard-parity-hlo"]
    assert [list(one.iterdir()) for one in tmp_path.iterdir()] == [[]]
    assert client.close() == 0
    assert list(tmp_path.iterdir()) == []


def test_an_abort_of_xla_is_that_answer_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where XLA ends the process, the next question is answered, and no file stays behind."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    over_a, over_b = (Layout(((), ()), ((axis, "sum"),)) for axis in "ab")
    fatal = move(SQUARE, owed("s", SQUARE, count(2, 4, 4), over_a), over_b)
    given = tensor("s", count(4, 4), layout(SQUARE, "S(0)", "R"))
    harmless = msgspec.structs.replace(move(SQUARE, given, layout(SQUARE, "R", "R")), id="next")
    worker = WorkerClient("jax", "adapters.jax_xla.adapter", (EXPLICIT,))
    try:
        ((aborted,), (answered,)) = worker.answer(fatal), worker.answer(harmless)
    finally:
        worker.close()
    assert isinstance(aborted.end, Crashed)
    assert "SIGABRT" in aborted.end.how
    assert "unreduced axes" in aborted.end.output
    assert answered.end == Done()
    assert list(tmp_path.iterdir()) == []


def test_a_compilation_cache_in_the_environment_hides_nothing(tmp_path: Path) -> None:
    """A program that JAX would take from a cache on disk is compiled, and its collectives seen."""
    cache = tmp_path / "cache"
    variables = {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    asked = move(ROW, tensor("s", count(8, 4), layout(ROW, "S(0)")), layout(ROW, "R"))
    for _ in range(2):
        client = Client(tmp_path, **variables)
        (answer,) = client.ask(asked, JIT)
        assert client.close() == 0
        assert answer.complaints == ()
        assert kinds(answer.program) == [("all-gather", ("x",))]
    assert not cache.exists()


# Looks at parts that only a process with jax can reach.
