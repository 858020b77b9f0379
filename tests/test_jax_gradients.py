"""Does JAX's gradient come out right, with the backward's collectives apart, and what of regions?

Every question goes through a real worker process.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from adapters.answer import Answer, Collective, Done, Refused, Unsupported
from adapters.reference.evaluate import evaluate
from cases.model import Layout, MeshStep, Question, Step
from tests.jax_client import (
    EXPLICIT,
    JIT,
    ROW,
    SQUARE,
    Client,
    assert_holds,
    count,
    layout,
    move,
    owed,
    question,
    tensor,
    value,
)

WHOLE = Layout(())


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One worker for the module."""
    made = Client(tmp_path_factory.mktemp("worker"))
    yield made
    made.close()


def _fired(answer: Answer) -> list[tuple[str, str]]:
    """Pass and kind of each collective: of the program, or step by step."""
    found = answer.program or tuple(
        one for observed in answer.seen for one in observed.collectives or ()
    )
    return [(one.pass_, one.kind) for one in found]


def _layer(to: Layout | None) -> Question:
    """The gradient by w, split by rows, of the sum of squares of x @ w; x split by rows."""
    steps = (
        Step("y", "matmul", ("x", "w"), to=layout(ROW, "S(0)")),
        Step("s", "multiply", ("y", "y")),
        Step("l", "sum", ("s",)),
        Step("g", "grad", ("l", "w"), to=to),
    )
    x = tensor("x", count(8, 4) / 8, layout(ROW, "S(0)"))
    w = tensor("w", count(4, 4, start=3) / 8, layout(ROW, "S(0)"))
    return question(ROW, [x, w], *steps)


@pytest.mark.parametrize("route", [JIT, EXPLICIT])
def test_a_gradient_is_that_of_the_numpy_meaning(client: Client, route: str) -> None:
    """Value, layout and offsets, where a layout is asked for and where none is."""
    for to in (layout(ROW, "S(1)"), layout(ROW, "R"), None):
        asked = _layer(to)
        (answer,) = client.ask(asked, route)
        assert answer.end == Done()
        assert answer.complaints == ()
        np.testing.assert_allclose(value(answer["g"]), evaluate(asked)["g"], rtol=1e-6)
        if to is not None:
            assert_holds(answer["g"], ROW, value(answer["g"]), to)


def test_the_backwards_collectives_are_apart_from_the_forwards(client: Client) -> None:
    """In one program by pass; step by step the gradient's are its own, a reshard after it too."""
    jit, explicit = client.ask(_layer(layout(ROW, "S(1)")), JIT, EXPLICIT)
    forward = [("forward", "all-gather"), ("forward", "all-reduce")]
    assert _fired(jit) == [*forward, ("backward", "all-reduce")]
    assert _fired(explicit) == [*forward, ("backward", "all-reduce"), ("forward", "all-to-all")]
    assert explicit["g"].collectives == (
        Collective("all-reduce", ("x",), 4, 4 * 4 * 4, "backward"),
        Collective("all-to-all", ("x",), 4, 4 * 4, "forward"),
    )


@pytest.mark.parametrize("route", [JIT, EXPLICIT])
def test_a_gradient_takes_from_the_program_what_does_not_depend_on_the_input(
    client: Client, route: str
) -> None:
    """Gradients of one number by two inputs, past steps that hang on either, both or neither."""
    steps = (
        Step("c", "exp", ("w",)),
        Step("jnp", "multiply", ("x", "c")),
        Step("unused", "square", ("x",)),
        Step("l", "sum", ("jnp",)),
        Step("by_x", "grad", ("l", "x")),
        Step("by_w", "grad", ("l", "w")),
        Step("z", "add", ("by_x", "by_w")),
    )
    x = tensor("x", count(8, 4) / 8, layout(ROW, "S(0)"))
    w = tensor("w", count(8, 4, start=3)[::-1] / 32, layout(ROW, "S(0)"))
    asked = question(ROW, [x, w], *steps, check="by_x by_w z")
    (answer,) = client.ask(asked, route)
    assert answer.end == Done()
    right = evaluate(asked)
    for name in ("by_x", "by_w", "z"):
        np.testing.assert_allclose(value(answer[name]), right[name], rtol=1e-5, atol=1e-6)
    assert not np.allclose(right["by_x"], right["by_w"])


@pytest.mark.parametrize("route", [JIT, EXPLICIT])
def test_a_refused_gradient_is_refused_at_its_step(client: Client, route: str) -> None:
    """The forward is traced again inside; what is raised there is the gradient's."""
    steps = (
        Step("y", "astype", ("x",), {"dtype": "int32"}),
        Step("l", "sum", ("y",)),
        Step("g", "grad", ("l", "x")),
    )
    given = tensor("x", count(4, 4), layout(ROW, "S(0)"))
    (answer,) = client.ask(question(ROW, [given], *steps), route)
    assert isinstance(answer.end, Refused)
    assert (answer.end.error, answer.end.step) == ("TypeError", "g")


def test_the_gradient_by_a_partial_input_is_that_by_the_array_it_stands_for(
    client: Client,
) -> None:
    """Under jit the addends are reduced first, and the gradient has the shape of their sum."""
    steps = (
        Step("y", "multiply", ("x", "x")),
        Step("l", "sum", ("y",)),
        Step("g", "grad", ("l", "x")),
    )
    given = owed("x", ROW, count(4, 8, 4), layout(ROW, "P(sum)"))
    asked = question(ROW, [given], *steps, check="g")
    (answer,) = client.ask(asked, JIT)
    assert answer.end == Done()
    np.testing.assert_allclose(value(answer["g"]), 2 * count(4, 8, 4).sum(0))
    assert answer["g"].shape == (8, 4)


def _nearest(client: Client, **change: object) -> list[Answer]:
    asked = move(SQUARE, tensor("s", count(4, 4), layout(SQUARE, "S(0)", "S(1)")),
                 layout(SQUARE, "R", "S(0)"))  # fmt: skip
    return client.ask(msgspec.structs.replace(asked, **change), JIT, EXPLICIT)


def test_a_region_that_jax_does_without_changes_nothing(client: Client) -> None:
    """loss_parallel keeps a class dim split in torch; any other region there is none for."""
    plain = _nearest(client)
    assert [answer.end for answer in plain] == [Done(), Done()]
    assert _nearest(client, context="loss_parallel") == plain
    for answer in _nearest(client, context="implicit_replication_of_all"):
        assert isinstance(answer.end, Unsupported)


def test_a_loss_of_split_classes_runs_in_a_region_of_loss_parallel(client: Client) -> None:
    """A class dim split over the mesh gives the loss and gradient of NumPy's meaning."""
    logits = tensor("x", count(8, 4)[:, ::-1] / 8, layout(ROW, "S(1)"))
    classes = tensor("t", np.arange(8) % 4, layout(ROW, "R", ndim=1))
    steps = (
        Step("l", "cross_entropy", ("x", "t")),
        Step("g", "grad", ("l", "x")),
    )
    asked = msgspec.structs.replace(
        question(ROW, [logits, classes], *steps), context="loss_parallel"
    )
    right = evaluate(asked)
    for answer in client.ask(asked, JIT, EXPLICIT):
        assert answer.end == Done()
        np.testing.assert_allclose(value(answer["l"]), right["l"], rtol=1e-5)
        np.testing.assert_allclose(value(answer["g"]), right["g"], rtol=1e-5, atol=1e-6)


def test_a_derived_mesh_that_nothing_lies_on_changes_nothing(client: Client) -> None:
    """Meshes are values in JAX, so that making one before or after a tensor is all the same."""
    plain = _nearest(client)
    assert [answer.end for answer in plain] == [Done(), Done()]
    for after in ("", "s"):
        flat = MeshStep("flat", "mesh_flatten", ("a", "b"), after=after)
        assert _nearest(client, mesh_steps=(flat,)) == plain
