"""Does each line of JAX compute what NumPy does, with and without optional parameters?

Every question goes through a real worker process. Operands are replicated, because the catalogue
has the sharded cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from adapters.answer import Done, Observed, Unsupported
from cases.arrays import pack
from cases.catalogue.samples import SAMPLES, Operand, Sample, operand_values
from cases.model import Input, Layout, Question, Step, mesh
from cases.ops import OPS, tolerance
from cases.ops.op import widen
from tests.jax_client import (
    EXPLICIT,
    JIT,
    ROW,
    Client,
    assert_holds,
    count,
    kinds,
    layout,
    locals_,
    question,
    tensor,
    value,
)

PAIR = mesh({"x": 2})


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One worker for the module."""
    made = Client(tmp_path_factory.mktemp("worker"))
    yield made
    made.close()


def _whole(ndim: int) -> Layout:
    return Layout(((),) * ndim)


def _asked(samples: list[Sample]) -> Question:
    """One question, which has a step with its own inputs for each sample."""
    inputs: list[Input] = []
    steps = []
    for at, sample in enumerate(samples):
        args: list[str | int | float] = []
        for one in sample.operands:
            if isinstance(one, Operand):
                given = operand_values(one)
                inputs.append(tensor(f"i{len(inputs)}", given, _whole(given.ndim)))
                args.append(inputs[-1].name)
            else:
                args.append(one)
        steps.append(Step(f"r{at}", sample.op, tuple(args), sample.params))
    return question(PAIR, inputs, *steps)


def _right(sample: Sample) -> NDArray[Any]:
    given = [operand_values(one) if isinstance(one, Operand) else one for one in sample.operands]
    with np.errstate(all="ignore"):
        return np.asarray(OPS[sample.op].meaning(*given, **sample.params))


def _assert_means(sample: Sample, observed: Observed) -> None:
    row, right, got = OPS[sample.op], _right(sample), value(observed)
    assert (got.dtype, got.shape) == (right.dtype, right.shape), sample.name
    given = [widen(operand_values(one)) for one in sample.operands if isinstance(one, Operand)]
    counts = all(np.array_equal(one, np.round(one)) for one in given)
    if row.moves or right.dtype.kind in "biu" or (row.whole and counts):
        np.testing.assert_array_equal(got, right, sample.name)
        return
    allowed = tolerance(row, right.dtype.name)
    largest = max(1.0, float(np.abs(widen(right)).max(initial=0)))
    np.testing.assert_allclose(
        widen(got), widen(right), allowed.rtol, allowed.atol * largest, err_msg=sample.name
    )


@pytest.mark.parametrize("family", SAMPLES)
def test_every_sample_means_what_numpy_means_under_jit(client: Client, family: str) -> None:
    """Values, shapes and dtypes are right."""
    samples = list(SAMPLES[family])
    (answer,) = client.ask(_asked(samples), JIT)
    assert answer.end == Done()
    for sample, observed in zip(samples, answer.seen, strict=True):
        _assert_means(sample, observed)


@pytest.mark.parametrize("family", SAMPLES)
def test_a_sample_of_each_op_means_what_numpy_means_in_explicit(
    client: Client, family: str
) -> None:
    """Explicit meshes take each line too, as long as nothing is split."""
    samples = list({sample.op: sample for sample in SAMPLES[family]}.values())
    (answer,) = client.ask(_asked(samples), EXPLICIT)
    assert answer.end == Done()
    for sample, observed in zip(samples, answer.seen, strict=True):
        _assert_means(sample, observed)


def test_every_op_has_samples_or_a_test_here() -> None:
    """The ops that SAMPLES leaves out have tests below, or in the tests of gradients."""
    sampled = {sample.op for samples in SAMPLES.values() for sample in samples}
    assert set(OPS) - sampled == {
        "redistribute", "identity", "arange", "full", "random_uniform", "random_normal",
        "inplace_uniform", "inplace_normal", "dropout",
        "to_local", "from_local", "full_tensor", "distribute", "map_shards", "item", "grad",
    }  # fmt: skip


_X, _I = Operand((8, 4)), Operand((3,), "below 4", "int64")
_CUBE, _TIES = Operand((4, 3, 4)), Operand((8, 4), "few")
_IMAGE, _FILTER = Operand((2, 2, 6, 5), "whole"), Operand((3, 2, 2, 3), "few")
_LOSS = (Operand((8, 4), "whole"), Operand((8, 4), "other"))
_LOGITS = (Operand((8, 4)), Operand((8,), "below 4", "int64"))

_ALSO = [
    ("conv2d", (_IMAGE, _FILTER), {"stride": [2, 1], "padding": [0, 2]}),
    ("slice", (_CUBE,), {"axis": -2, "start": 1}),
    ("index", (_CUBE,), {"axis": -2, "index": 2}),
    ("chunk", (Operand((7, 4)),), {"chunks": 3, "part": 2, "axis": 0}),
    ("chunk", (_CUBE,), {"chunks": 2, "part": 1, "axis": -2}),
    ("take", (_CUBE, _I), {"axis": -1}),
    ("flatten", (_CUBE,), {"end": 1}),
    ("flatten", (_CUBE,), {"end": -2}),
    ("squeeze", (Operand((4, 1, 1)),), {"axis": [1, 2]}),
    ("flip", (_CUBE,), {"axis": [0, -1]}),
    ("pad", (_CUBE,), {"axis": -2, "before": 1, "after": 0}),
    ("tril", (_CUBE,), {"diagonal": -1}),
    ("scatter", (_X, Operand((8, 1), "below 4", "int64"), Operand((8, 1))), {"axis": -1}),
    ("scatter_add", (_CUBE, Operand((2, 3, 2), "below 4", "int64"), Operand((2, 3, 2), "other")),
     {"axis": -1}),
    ("scatter_rows", (_X, Operand((2,), "distinct 4", "int64"), Operand((8, 2))), {"axis": 1}),
    ("scatter_add_rows", (_CUBE, _I, Operand((4, 3, 3))), {"axis": -1}),
    ("set_slice", (_CUBE, Operand((4, 2, 4), "other")), {"axis": -2, "start": 1}),
    ("set_slice", (_CUBE,), {"axis": 2, "stop": 2, "value": 2}),
    ("masked_fill", (Operand((8, 4), "whole", "int32"), Operand((8, 4), "mask", "bool")),
     {"value": 2.7}),
    ("dynamic_slice", (_X, Operand((), "start -3", "int64")), {"axis": 0, "size": 4}),
    ("dynamic_update_slice", (_X, Operand((2, 4)), Operand((), "start -3", "int64")),
     {"axis": -2}),
    ("inplace_add", (Operand((8, 4), "whole", "int32"), 2), {}),
    ("inplace_multiply", (Operand((8, 4), "whole", "bfloat16"), Operand((4,), "few")), {}),
    ("sort", (_TIES,), {"descending": True}),
    ("argsort", (_TIES,), {"descending": True, "axis": 0}),
    ("argsort", (_TIES,), {"axis": 0}),
    ("topk_indices", (_TIES,), {"k": 3, "axis": -2}),
    ("cumulative_sum", (Operand((8, 4), "whole", "int32"),), {}),
    ("cumulative_sum", (Operand((8, 4), "mask", "bool"),), {"axis": 0}),
    ("argmax", (_TIES,), {"axis": 1}),
    ("count_nonzero", (Operand((8, 4), "sparse", "bool"),), {"axis": [0, 1]}),
    ("vector_norm", (_X,), {"ord": 3, "axis": [0, 1], "keepdims": True}),
    ("huber_loss", _LOSS, {"delta": 2.0}),
    ("smooth_l1_loss", _LOSS, {"beta": 0.5}),
    ("nll_loss", _LOGITS, {"ignore": 2}),
    ("cross_entropy", (*_LOGITS, Operand((4,), "positive")), {"ignore": 2, "reduction": "none"}),
    ("layer_norm", (_X, Operand((4,), "positive")), {"eps": 0.5}),
    ("rms_norm", (_X,), {"eps": 0.5}),
    ("where", (Operand((8, 4), "mask", "bool"), 2.5, _X), {}),
    ("astype", (_X,), {"dtype": "float16"}),
    ("power", (2, _X), {}),
]  # fmt: skip


def test_parameters_that_no_sample_gives_are_taken_too(client: Client) -> None:
    """Negative dims, lists, ties, narrow dtypes and starts out of range."""
    samples = [Sample(op, op, operands, params) for op, operands, params in _ALSO]  # type: ignore[arg-type]
    (answer,) = client.ask(_asked(samples), JIT)
    assert answer.end == Done()
    for sample, observed in zip(samples, answer.seen, strict=True):
        _assert_means(sample, observed)


def test_halves_are_rounded_to_even(client: Client) -> None:
    """NumPy does the same; other libraries round away from zero."""
    given = tensor("x", np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32), _whole(1))
    (answer,) = client.ask(question(PAIR, [given], Step("y", "round", ("x",))), JIT)
    np.testing.assert_array_equal(value(answer["y"]), [0, 2, 2, 0, -2])


@pytest.mark.parametrize("route", [JIT, EXPLICIT])
def test_an_array_from_nothing_lies_as_it_is_asked_to(client: Client, route: str) -> None:
    """The layout asked for decides where the array is, without a collective."""
    split = layout(ROW, "S(0)", ndim=1)
    for step, right in (
        (Step("y", "arange", (), {"n": 8}, split), np.arange(8, dtype=np.float32)),
        (Step("y", "arange", (), {"n": 8, "dtype": "int32"}, split), np.arange(8, dtype=np.int32)),
        (Step("y", "full", (), {"shape": [4], "value": 2.5}, split), np.full(4, 2.5, np.float32)),
    ):
        (answer,) = client.ask(question(ROW, [], step), route)
        assert answer.end == Done()
        assert_holds(answer["y"], ROW, right, split)
        assert kinds(answer.program if route == JIT else answer["y"].collectives) == []


@pytest.mark.parametrize("route", [JIT, EXPLICIT])
def test_an_array_from_nothing_is_on_every_device_if_no_layout_is_asked_for(
    client: Client, route: str
) -> None:
    """It is on the devices of the question's mesh, not on the first devices of JAX."""
    on = mesh({"x": 4}, (7, 6, 5, 4))
    (answer,) = client.ask(question(on, [], Step("y", "arange", (), {"n": 8})), route)
    assert answer.end == Done()
    assert_holds(answer["y"], on, np.arange(8, dtype=np.float32), layout(on, "R", ndim=1))


@pytest.mark.parametrize("op", ["random_uniform", "random_normal"])
def test_random_numbers_are_those_of_the_seed_however_they_are_split(
    client: Client, op: str
) -> None:
    """One seed gives the same numbers on both routes, split or not. Another seed gives others."""

    def drawn(seed: int, to: Layout, route: str) -> NDArray[Any]:
        step = Step("y", op, (), {"shape": [8, 4], "seed": seed}, to)
        (answer,) = client.ask(question(ROW, [], step), route)
        assert answer.end == Done()
        assert_holds(answer["y"], ROW, value(answer["y"]), to)
        return value(answer["y"])

    first = drawn(3, layout(ROW, "R"), JIT)
    assert (first.dtype.name, len(np.unique(first))) == ("float32", 32)
    for to, route in ((layout(ROW, "S(0)"), JIT), (layout(ROW, "S(1)"), EXPLICIT)):
        np.testing.assert_array_equal(drawn(3, to, route), first)
    assert not np.array_equal(drawn(4, layout(ROW, "R"), JIT), first)


@pytest.mark.parametrize("route", [JIT, EXPLICIT])
def test_a_function_is_mapped_over_shards(client: Client, route: str) -> None:
    """Each device scales its own shard without a collective. Without a layout it is unsupported."""
    split = layout(ROW, "S(0)")
    given = tensor("x", count(8, 4), split)
    step = Step("y", "map_shards", ("x",), {"scale": 3}, split)
    (answer,) = client.ask(question(ROW, [given], step), route)
    assert answer.end == Done()
    assert_holds(answer["y"], ROW, count(8, 4) * 3, split)
    assert kinds(answer.program if route == JIT else answer["y"].collectives) == []
    free = msgspec.structs.replace(step, to=None)
    (answer,) = client.ask(question(ROW, [given], free), route)
    assert isinstance(answer.end, Unsupported)


@pytest.mark.parametrize("route", [JIT, EXPLICIT])
def test_leaving_the_global_view_and_coming_back_is_the_array_itself(
    client: Client, route: str
) -> None:
    """A traced array has no local view. The result of from_local has the layout asked for."""
    split = layout(ROW, "S(0)")
    steps = (
        Step("a", "to_local", ("x",)),
        Step("b", "add", ("a", 1)),
        Step("y", "from_local", ("b",), {}, split),
    )
    asked = question(ROW, [tensor("x", count(8, 4), split)], *steps)
    (answer,) = client.ask(asked, route)
    assert answer.end == Done()
    assert_holds(answer["y"], ROW, count(8, 4, start=1), split)
    assert [part[0, 0] for part in locals_(answer["y"])] == [1, 9, 17, 25]


@pytest.mark.parametrize("route", [JIT, EXPLICIT])
def test_an_item_is_an_array_without_dims(client: Client, route: str) -> None:
    """An array of one element becomes a scalar, whatever its dims."""
    given = tensor("x", count(1, 1, start=7), layout(ROW, "R"))
    (answer,) = client.ask(question(ROW, [given], Step("y", "item", ("x",))), route)
    assert answer.end == Done()
    assert_holds(answer["y"], ROW, np.array(7, np.float32), _whole(0))
    assert answer["y"].full == (pack(np.array(7, np.float32)),)
