"""What the loader makes, apart from any file: arrays, addends, shapes and the words it accepts."""

from __future__ import annotations

import itertools
import re
from typing import Any, get_args

import numpy as np
import pytest

from adapters.reference.evaluate import join_shards
from cases.array_literals import parse_array, split_into_addends
from cases.arrays import DTYPES, numpy_dtype, pack, unpack
from cases.errors import BadInput, Where
from cases.expectations import COLLECTIVES
from cases.model import CollectiveKind, Layout, Step, mesh, slug
from cases.ops import OPS, Op
from cases.program import PARAMS, TensorType, infer_result, infer_type

HERE = Where("here")


def test_whole_numbers_are_exact_and_fractions_are_rounded() -> None:
    """2**24 + 1 is no float32 and 2**53 + 1 no float64, however written; 0.1 is the nearest."""
    assert parse_array(0.1, "float32", (), HERE) == np.float32(0.1)
    assert parse_array(2**24, "float32", (), HERE) == 2**24
    assert parse_array(1e30, "float32", (), HERE) == np.float32(1e30)
    assert parse_array(-(2**63), "int64", (), HERE) == -(2**63)
    for value, dtype in [
        (2**24 + 1, "float32"),
        (float(2**24 + 1), "float32"),
        (2**53 + 1, "float64"),
        (10**400, "float64"),
        (2**63, "int64"),
        (65520, "float16"),
        (257, "bfloat16"),
        (2**24 + 1, "complex64"),
    ]:
        with pytest.raises(BadInput):
            parse_array([value], dtype, (1,), HERE)


def test_a_result_has_a_dtype_that_both_frameworks_have() -> None:
    """An op whose meaning makes another dtype is refused where it is used."""
    row = Op("odd", "move", ("x",), lambda x: x.astype(np.uint64))
    step = Step("y", "odd", ("x",))
    with pytest.raises(BadInput, match="found a result of dtype uint64"):
        infer_result(step, row, {"x": TensorType((2,), "float32")}, HERE)


@pytest.mark.parametrize("size", [3, 16, 17, 18, 40])
def test_shapes_are_those_that_numpy_gives(size: int) -> None:
    """Renaming large sizes to small ones changes no shape, dtype or refusal."""
    held = refused = 0
    tensors = [
        TensorType(shape, dtype)
        for shape in [(), (1,), (size,), (17,), (size, 17), (17, size), (1, size), (2, size, 17)]
        for dtype in ("float32", "int32", "bfloat16")
    ]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("add", {}), ("divide", {}), ("matmul", {}), ("einsum", {"subscripts": "ij,jk->ki"}),
    ]  # fmt: skip
    axes: list[Any] = [None, 0, -1, [0, 1], 2]
    for (op, params), one, other in itertools.product(calls, tensors, tensors):
        arrays = [np.ones(t.shape, numpy_dtype(t.dtype)) for t in (one, other)]
        try:
            wanted = np.asarray(OPS[op].meaning(*arrays, **params))
        except (TypeError, ValueError) as error:
            with pytest.raises(ValueError, match=re.escape(str(error).splitlines()[0])):
                infer_type(OPS[op], (one, other), params)
            refused += 1
        else:
            got = infer_type(OPS[op], (one, other), params)
            assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype.name)
            held += 1
    for axis, one in itertools.product(axes, tensors):
        if one.dtype == "int32":
            continue  # whose mean is nobody's to say
        try:
            wanted = np.asarray(OPS["mean"].meaning(np.ones(one.shape), axis=axis, keepdims=True))
        except ValueError:
            refused += 1
        else:
            got = infer_type(OPS["mean"], (one,), {"axis": axis, "keepdims": True})
            assert got.shape == wanted.shape
            held += 1
    assert held > 300
    assert refused > 300


PENDING = (
    "a-sum", "a-avg", "a-max", "b-min", "a-product", "a-sum.b-sum", "a-sum.b-avg", "b-sum.a-max",
    "a-max.b-sum", "a-min.b-product", "b-sum.c-sum.a-sum", "c-max.b-sum.a-min",
)  # fmt: skip


def _reduces(dtype: str, pending: str) -> bool:
    # Integers have no averages, complex numbers no order, and bool no distinct addends.
    kind = numpy_dtype(dtype).kind
    lacking = {"i": ("avg",), "u": ("avg",), "c": ("max", "min"), "b": ("",)}.get(kind, ())
    return not any(op in pending for op in lacking)


@pytest.mark.parametrize(
    ("dtype", "pending"),
    [pair for pair in itertools.product(DTYPES, PENDING) if _reduces(*pair)],
)
def test_addends_reduce_to_the_value_exactly(dtype: str, pending: str) -> None:
    """Whatever is pending, in whatever order, the reductions give back every bit of the value."""
    on = mesh({"a": 4, "b": 2, "c": 2})
    partial = [(axis, op) for axis, op in (one.split("-") for one in pending.split("."))]
    value = (np.arange(10) % 7).reshape(5, 2).astype(numpy_dtype(dtype))
    if "u" not in dtype:
        value[3, 1] = -3
    if dtype != "int8":
        value[1, 0] = 41
    free = [axis for axis in on.names if axis not in dict(partial)]
    layout = Layout((tuple(free), ()), tuple(partial))
    made = [unpack(one) for one in split_into_addends(value, on, layout, HERE)]
    back = join_shards(on, layout, made, value.shape)
    assert pack(back.astype(value.dtype)) == pack(value)
    assert {one.dtype for one in made} == {value.dtype}


@pytest.mark.parametrize("op", ["sum", "avg", "max", "min"])
@pytest.mark.parametrize("axes", [("a",), ("a", "b"), ("a", "b", "c")], ids=".".join)
def test_addends_of_an_element_are_distinct(axes: tuple[str, ...], op: str) -> None:
    """No two positions that are reduced together hold the same of any element."""
    on = mesh({"a": 2, "b": 2, "c": 2})
    value = np.arange(-6, 18, dtype=np.float32)
    layout = Layout(((),), tuple((axis, op) for axis in axes))
    made = np.stack([unpack(one) for one in split_into_addends(value, on, layout, HERE)])
    for element in made.T:
        assert len(set(element.tolist())) == 2 ** len(axes)


def test_the_carrier_of_a_value_moves_with_the_element() -> None:
    """No position holds the value of every element, nor a constant beside it."""
    value = np.arange(8, dtype=np.float32)
    layout = Layout(((),), (("a", "sum"),))
    made = [unpack(one).tolist() for one in split_into_addends(value, mesh({"a": 4}), layout, HERE)]
    assert made[0] == [6, -1, -2, -3, 10, -1, -2, -3]
    assert made[1] == [-1, -2, -3, 9, -1, -2, -3, 13]


def test_addends_that_would_be_rounded_or_overflow_are_refused() -> None:
    """Where a partial sum would not be exact in some order, per_device is asked for."""
    on = mesh({"a": 4})
    for value, dtype, op in [
        (0.1, "float32", "sum"),
        (2.0**24, "float32", "sum"),
        (2.0**22 * 3, "float32", "avg"),
        (251, "bfloat16", "sum"),
        (65504, "float16", "sum"),
        (122, "int8", "sum"),
        (np.inf, "float32", "sum"),
        (np.nan, "float32", "avg"),
    ]:
        given = np.full((3,), value).astype(numpy_dtype(dtype))
        with pytest.raises(BadInput, match=f"whose addends would not {op} exactly"):
            split_into_addends(given, on, Layout(((),), (("a", op),)), HERE)
    for value, dtype, op in [
        (0.25, "float32", "sum"),
        (250, "bfloat16", "sum"),
        (121, "int8", "sum"),
        (255, "uint8", "sum"),
        (2.0**22 - 4, "float32", "avg"),
    ]:
        given = np.full((3,), value).astype(numpy_dtype(dtype))
        assert split_into_addends(given, on, Layout(((),), (("a", op),)), HERE)


def test_ids_read_as_slugs() -> None:
    """A slug has only what test ids and ``-k`` can select."""
    assert slug("public/dtensor/T41") == "public-dtensor-t41"
    assert slug("a2.b2_S(0)") == "a2.b2_s-0-"


def test_every_kind_of_collective_can_be_stated() -> None:
    """The kinds that a case may count are those that an answer can have."""
    assert set(COLLECTIVES) == set(get_args(CollectiveKind))


def test_every_parameter_of_the_vocabulary_has_a_type() -> None:
    """No parameter of any op is let through unchecked."""
    assert {name for op in OPS.values() for name in op.required + op.optional} <= PARAMS.keys()
