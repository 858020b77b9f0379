"""Does every op either mean something or get refused at once? Whatever it is called with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from cases.arrays import DTYPES
from cases.errors import BadInput, Where
from cases.facts import facts
from cases.load import read_case
from cases.ops import OPS
from cases.program import infer_types
from suites.truth import check_defined, truth

Shape = tuple[int, ...]
Tensor = tuple[Shape, str]

SHAPES: tuple[Shape, ...] = ((), (3,), (2, 3), (3, 3), (2, 3, 4), (1, 1, 2, 2), (0,), (2, 0))
FEW = ("bool", "int64", "float32", "complex64")
PAIRS = (
    *((one, one) for one in FEW), ("float32", "int64"), ("int64", "float32"), ("bool", "float32"),
    ("uint8", "int8"), ("float16", "bfloat16"),
)  # fmt: skip
THREE = (
    ("float32", "int64", "float32"), ("float32", "float32", "float32"), ("bool",) * 3,
    ("bool", "float32", "float32"), ("float32", "int64", "int64"),
)  # fmt: skip

# Indices that every dim has; other dtypes count from 0.
VALUES: dict[str, dict[str, Any]] = {"bool": {"values": True}, "int64": {"values": 0}}
# Two arrays of indices beside two of numbers; a matrix that is definite; a scalar index last.
WANT_MORE = ("index_put", "cholesky", "dynamic_update_slice")

# What is tried for a parameter; 1 where nothing is said.
TRIED: dict[str, tuple[Any, ...]] = {
    "axis": (0, -1, 1, [0, 1], None), "keepdims": (True,), "shape": ([-1], [2, 3], []),
    "axes": ([0], [1, 0], [0, 1, 2]), "dtype": ("bool", "int32", "float32"), "distinct": (["x"],),
    "subscripts": ("ij,jk->ik", "i,i->"), "min": (0, None), "value": (1, 0.5), "index": (0,),
    "part": (0,), "after": (0,), "repeats": (2,), "classes": (4,), "p": (0.5,), "causal": (True,),
    "reduction": ("none", "sum"), "descending": (True,), "whole": (True,), "start": (0,),
    "seeding": ("process",), "impl": ("rbg",), "ord": (1, "inf", 0),
}  # fmt: skip


def _params(op: str) -> Iterator[dict[str, Any]]:
    """What is required in every way, and one more in every way."""
    row = OPS[op]
    for values in itertools.product(*(TRIED.get(name, (1,)) for name in row.required)):
        required = dict(zip(row.required, values, strict=True))
        yield required
        for name in row.optional:
            if name != "view":
                yield from (required | {name: value} for value in TRIED.get(name, (1,)))


def _tensors(count: int) -> Iterator[tuple[Tensor, ...]]:
    if count == 0:
        yield ()
    elif count == 1:
        yield from (((shape, dtype),) for shape in SHAPES for dtype in FEW)
        yield from ((((2, 3), dtype),) for dtype in DTYPES)
    elif count == 2:
        for one, other in itertools.product(SHAPES, SHAPES):
            yield ((one, "float32"), (other, "float32"))
            yield ((one, "float32"), (other, "int64"))
        yield from ((((2, 3), one), ((2, 3), other)) for one, other in PAIRS)
    else:
        for one, other in itertools.product(SHAPES[:5], SHAPES[:5]):
            for dtypes in THREE:
                given = (one, *(other,) * (count - 2), one)
                yield tuple(zip(given, itertools.cycle(dtypes)))


def _calls(op: str) -> Iterator[tuple[tuple[Tensor, ...], list[str | float], dict[str, Any]]]:
    """Every way of calling an op that is tried: its tensors, arguments and parameters."""
    row = OPS[op]
    for count in range(len(row.args), len(row.args) + len(row.more) + 1):
        names: list[str | float] = [f"x{i}" for i in range(count)]
        for tensors in _tensors(count):
            yield from ((tensors, names, params) for params in _params(op))
    if row.numbers:
        for dtype, number in itertools.product(DTYPES, (2, -2, 0, 0.5, True)):
            one = ((2, 3), dtype)
            yield (one,) * (len(row.args) - 1), [*names[:-1], number], {}
            yield (one,) * (len(row.args) - 1), [number, *names[:-1]], {}


@pytest.mark.parametrize("op", OPS)
def test_an_op_means_something_or_is_refused(op: str) -> None:
    """No call of it gets past the loader and then fails; what shapes promise, values keep."""
    means = 0
    for tensors, args, params in _calls(op):
        split = any(dtype in ("int64", "complex64") for _, dtype in tensors)
        inputs = {
            f"x{i}": {"shape": shape, "dtype": dtype, **VALUES.get(dtype, {}),
                      "spec": "P('x')" if shape and split else "P()"}
            for i, (shape, dtype) in enumerate(tensors)
        }  # fmt: skip
        placed = {"spec": "P()"} if OPS[op].places else {}
        step: list[Any] = ["y", op, args, params | placed]
        program = [step] if op != "grad" else [["z", "sum", ["x0"]], ["y", op, ["z", "x0"]]]
        table = {"id": "a", "mesh": {"x": 2}, "inputs": _lists(inputs), "program": program}
        try:
            case = read_case(table, "f.toml", Where("f.toml"))
            check_defined(case)
        except BadInput:
            continue
        right = truth(case)
        facts(case)
        assert right.typed == infer_types(case.question)
        for framework in OPS[op].apart if right.apart else ():
            assert truth(case, framework).typed == infer_types(case.question, framework)
        means += 1
    assert means or op in WANT_MORE


def _lists(inputs: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: one | {"shape": list(one["shape"])} for name, one in inputs.items()}


def test_signs_and_other_names_stand_for_ops() -> None:
    """Each for the row that a sentence in the docs promises."""
    program = [
        "a = x << 2", "b = x >> 1", "c = x & y", "d = x | y", "e = x ^ y", "f = ~x",
        "g = bitwise_invert(x)", ["h", "invert", ["x"]], "i = -x + y * y - x @ y",
    ]  # fmt: skip
    given = {"shape": [2, 2], "dtype": "int32", "spec": "P()"}
    table = {"id": "a", "mesh": {"x": 2}, "inputs": {"x": given, "y": given}, "program": program}
    ops = [step.op for step in read_case(table, "f.toml", Where("f.toml")).question.steps]
    assert ops == [
        "left_shift", "right_shift", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not",
        "bitwise_not", "bitwise_not", "negative", "multiply", "add", "matmul", "subtract",
    ]  # fmt: skip
