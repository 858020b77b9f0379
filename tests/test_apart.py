"""Is each framework held to its own where it documents it apart? Is a step within an error free?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from adapters.answer import Done
from adapters.reference.evaluate import UndefinedValue, evaluate
from adapters.registry import framework_of
from cases.arrays import numpy_dtype, pack, unpack
from cases.errors import BadInput, Where
from cases.load import read_case
from cases.model import Case, Input, Layout, Param, Question, Step, Tolerance, mesh
from cases.ops import OPS
from suites.array_difference import difference, format_array, tolerance_of_shard
from suites.judge import judge
from suites.truth import truth
from tests.jax_client import JIT, Client
from tests.mistakes import right_answer
from tests.torch_worker import Live

PAIR = mesh({"x": 2})
HALF = {"uint8": [1, 2, 3, 4], "bool": [True, False, True, True]}
SHORT, WIDE = ("bool", "int32", "int64", "bfloat16", "float32"), ("int64", "float16", "float64")

# An op, the dtypes of its operands ("0-" before one without dims), its numbers and parameters.
CALLS: list[tuple[str, tuple[str, ...], tuple[float, ...], dict[str, Param]]] = [
    *(("divide", (one, one), (), {}) for one in ("uint8", "int32", "int64", "float32")),
    *(("divide", (one,), (2,), {}) for one in SHORT),
    *(("add", (one,), (0.5,), {}) for one in SHORT),
    *(("maximum", (one,), (0.5,), {}) for one in ("int32", "int64", "float32")),
    *(("multiply", (one, other), (), {}) for one in SHORT for other in WIDE),
    *(("multiply", (one, f"0-{other}"), (), {}) for one in SHORT for other in WIDE),
    *((op, (one,), (), {}) for op in ("exp", "sqrt", "tanh") for one in ("bool", "int32", "int64")),
    *(("any", (one,), (), {}) for one in ("uint8", "float32", "int64")),
    *(("all", (one,), (), {"axis": 0}) for one in ("uint8", "bfloat16")),
    *(("square", (one,), (), {}) for one in ("bool", "int32")),
    *(("cumulative_prod", (one,), (), {"axis": 0}) for one in ("bool", "int32", "int64")),
    *(("clip", (one,), (), {"min": 1.5}) for one in ("int32", "int64", "float32")),
    *(("concat", (one, other), (), {"axis": 0}) for one, other in
      (("int64", "float32"), ("float16", "bfloat16"), ("complex64", "float64"))),
    ("vector_norm", ("complex64",), (), {}),
    ("outer", ("complex64", "complex64"), (), {}),
]  # fmt: skip


def asked(op: str, dtypes: tuple[str, ...], numbers: tuple[float, ...], params: Any) -> Question:
    """One call, on replicated operands."""
    inputs = []
    for i, name in enumerate(dtypes):
        dtype = name.removeprefix("0-")
        value = np.array(HALF.get(dtype, [1, 2, 3, 5])).astype(numpy_dtype(dtype))
        value = value[1] if name != dtype else value
        layout = Layout(((),) * value.ndim)
        inputs.append(Input(f"x{i}", value.shape, dtype, layout, pack(np.asarray(value))))
    args = (*(one.name for one in inputs), *numbers)
    return Question("one", PAIR, tuple(inputs), (Step("y", op, args, params),), ("y",))


@pytest.fixture(scope="module")
def torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    worker = Live(tmp_path_factory.mktemp("torch") / "printed")
    yield worker
    worker.close()


@pytest.fixture(scope="module")
def jax(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    made = Client(tmp_path_factory.mktemp("jax"))
    yield made
    made.close()


def _right(question: Question, framework: str) -> Case:
    """Compares what is wanted of a framework, by the tolerance of the op."""
    case = Case(question)
    assert truth(case, framework).values["y"] == pack(evaluate(question, framework)["y"])
    return case


def test_torch_makes_the_dtypes_that_are_wanted_of_it(torch: Live) -> None:
    """Of whole numbers in real functions, of several dtypes, of tensors without dims."""
    for call in CALLS:
        case = _right(asked(*call), "torch")
        answer, right = torch.ask(case.question), truth(case, "torch")
        assert answer.end == Done(), call
        off = difference(right.values["y"], answer["y"].full[0], right.allowed["y"])
        assert off is None, (call, off)


def test_jax_makes_the_dtypes_that_are_wanted_of_it(jax: Client) -> None:
    """The same calls."""
    for call in CALLS:
        case = _right(asked(*call), "jax")
        (answer,) = jax.ask(case.question, JIT)
        right = truth(case, "jax")
        assert answer.end == Done(), call
        off = difference(right.values["y"], answer["y"].full[0], right.allowed["y"])
        assert off is None, (call, off)


def _case(*program: str, **inputs: Any) -> Case:
    table = {"id": "a", "mesh": {"x": 2}, "program": list(program), "inputs": {
        name: {"shape": [4], "spec": "P('x')"} | given for name, given in inputs.items()
    }}  # fmt: skip
    return read_case(table, "f.toml", Where("f.toml"))


def test_neither_framework_is_accused_of_what_both_document_apart() -> None:
    """A float32 quotient of torch and a float64 one of JAX are both right, and what follows too."""
    case = _case("q = divide(x, 3)", "y = add(q, 1)", x={"dtype": "int64"})
    answers = {name: right_answer(case, truth(case, name.partition("/")[0]), name)
               for name in ("torch", "jax/jit")}  # fmt: skip
    assert [answers[name]["y"].dtype for name in answers] == ["float32", "float64"]
    verdicts = judge(case, answers, ()).verdicts
    assert not [one for one in verdicts if one.verdict == "divergence"]
    apart = [one for one in verdicts if one.verdict == "not comparable" and one.aspect == "shards"]
    assert [one.step for one in apart] == ["q", "y"]
    assert all("default dtype" in one.why and "https://" in one.why for one in apart)


def test_each_is_accused_of_the_other_s(tmp_path: Any) -> None:
    """Torch's dtype is wrong of JAX, and JAX's of torch."""
    case = _case("y = divide(x, 3)", x={"dtype": "int64"})
    torch, jax = (
        right_answer(case, truth(case, framework_of(one)), one) for one in ("torch", "jax/jit")
    )
    swapped = {
        "torch": msgspec.structs.replace(jax, subject="torch"),
        "jax/jit": msgspec.structs.replace(torch, subject="jax/jit"),
    }
    wrong = [one for one in judge(case, swapped, ()).verdicts if one.aspect == "global"]
    assert {one.subject for one in wrong if one.verdict == "divergence"} == {"torch", "jax/jit"}


def test_nothing_is_worked_out_twice_without_need() -> None:
    """A program that no framework defines apart has one truth, and shared arrays where some is."""
    case = _case("y = add(x, 1)", x={})
    assert truth(case, "torch") is truth(case) is truth(case, "jax")
    case = _case("z = add(x, 1)", "y = divide(x, 3)", x={"dtype": "int64"})
    base, own = evaluate(case.question), evaluate(case.question, "torch")
    assert own["z"] is base["z"]
    assert own["y"] is not base["y"]
    assert truth(case, "jax") is truth(case)


def test_whole_numbers_divided_by_0_have_no_value() -> None:
    """Nor do shifts by more places than there are, nor numbers that a dtype does not hold."""
    for step in ("floor_divide(x, z)", "remainder(1, z)", "left_shift(x, more)"):
        whole = {"dtype": "int64"}
        case = _case(f"y = {step}", x=whole, z=whole, more=whole | {"values": 64})
        with pytest.raises(UndefinedValue, match=r"divided by 0|shifts must be by 0 to 63 places"):
            evaluate(case.question)
    with pytest.raises(BadInput, match="shifts must be by 0 to 63 places"):
        _case("y = right_shift(x, -1)", x={"dtype": "int64"})
    with pytest.raises(UndefinedValue, match="uint8 must hold the numbers"):
        evaluate(_case("y = astype(x, dtype='uint8')", x={"values": [1, 2, 300, 4]}).question)


FREE = [
    # gelu(-9) is 0 or -1e-18, which is false or true; what counts them is free from there on.
    (("g = gelu(x)", "b = astype(g, dtype='bool')", "y = cumulative_sum(b, axis=0)"),
     [3, -9, 1, 2], "b", [False, True, False, False]),
    (("g = gelu(x)", "b = astype(g, dtype='bool')", "y = cumulative_sum(b, axis=0)"),
     [3, -9, 1, 2], "y", [False, True, True, True]),
    # The logarithm of e to the fourth is 4, or a rounding less.
    (("g = log(exp(x))", "y = floor(g)"), [4, 1.5, -2, 0.5], "y", [True, False, True, False]),
    (("g = log(exp(x))", "y = greater(g, 1.5)"), [4, 1.5, -2, 0.5], "y",
     [False, True, False, False]),
    (("g = exp(x)", "h = exp(x)", "y = equal(g, h)"), [4, 1.5, -2, 0.5], "y", [True] * 4),
    (("g = log(exp(x))", "y = round(g)"), [4, 1.5, -2, 0.25], "y", [False, True, False, False]),
    (("g = exp(x)", "y = argmax(g)"), [4, 4, 1, 0], "y", True),
]  # fmt: skip


@pytest.mark.parametrize(("program", "x", "name", "wanted"), FREE, ids=lambda one: str(one)[:40])
def test_a_step_within_an_error_accuses_nobody(
    program: tuple[str, ...], x: list[float], name: str, wanted: Any
) -> None:
    """Just the elements that it may change, and it is said how many they are."""
    allowed = truth(_case(*program, x={"values": x})).allowed[name]
    assert allowed.free is not None
    assert unpack(allowed.free).tolist() == wanted
    assert "are left out: a step or a comparison falls within the error" in allowed.why


@pytest.mark.parametrize(
    "program",
    [
        ("y = floor(x)",), ("y = greater(x, 1.5)",), ("g = add(x, 1)", "y = floor(g)"),
        ("g = relu(x)", "y = argmin(g)"), ("g = log(exp(x))", "y = ceil(add(g, 0.25))"),
        ("g = exp(x)", "y = argmax(g)"), ("g = exp(x)", "y = remainder(g, 100)"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_determined_is_held_to(program: tuple[str, ...]) -> None:
    """Exact operands at a step, and inexact ones away from any, leave nothing out."""
    right = truth(_case(*program, x={"values": [1, 2, -3, 4]}))
    assert all(one.free is None for one in right.allowed.values())


def test_free_elements_do_not_count_and_others_do() -> None:
    """In the whole and, of those that it holds, in a shard."""
    free = pack(np.array([True, False, False, False]))
    allowed = Tolerance(free=free)
    one, other, third = (pack(np.array(x)) for x in ([1, 2, 3, 4], [9, 2, 3, 4], [9, 2, 3, 5]))
    assert difference(one, other, allowed) is None
    assert "1 of 4 elements differ, first at [3]" in (difference(one, third, allowed) or "")
    low, high = tolerance_of_shard(allowed, ((0, 2),)), tolerance_of_shard(allowed, ((2, 4),))
    assert difference(pack(np.array([1, 2])), pack(np.array([9, 2])), low) is None
    assert difference(pack(np.array([3, 4])), pack(np.array([9, 4])), high) is not None


def test_a_narrower_result_on_the_way_widens_what_is_allowed() -> None:
    """What is rounded to float32 and widened again is as far off as float32 is."""
    case = _case("g = exp(x)", "y = astype(g, dtype='float64')", x={"values": [1, 2, 3, 4]})
    assert truth(case).allowed["y"].rtol > 2.0**-20
    assert format_array(truth(case).values["y"])


def test_a_result_of_another_shape_is_wrong_and_no_more_is_said() -> None:
    """As torch 2.13.0 reports the product of a vector and a matrix that are split along k."""
    case = _case("y = matmul(x, w)", x={}, w={"shape": [4, 3], "spec": "P('x')"})
    right = truth(case, "torch")
    answer = right_answer(case, right)
    full = unpack(answer["y"].full[0]).reshape(1, 3)
    layout = Layout(((), ()), (("x", "sum"),))
    wrong = msgspec.structs.replace(
        answer["y"], shape=(1, 3), layout=layout, shards=(pack(full), pack(0 * full)),
        offsets=((0, 0), (0, 0)), full=(pack(full),), collectives=(),
    )  # fmt: skip
    seen = tuple(wrong if one.name == "y" else one for one in answer.seen)
    answers = {"torch": msgspec.structs.replace(answer, seen=seen)}
    verdicts = judge(case, answers, ()).verdicts
    (found,) = [one for one in verdicts if one.verdict == "divergence"]
    assert (found.step, found.aspect) == ("y", "global")


def test_every_meaning_apart_says_why_and_where() -> None:
    """With a link to the framework's own words."""
    for op in OPS.values():
        for framework, own in op.apart.items():
            assert framework in ("torch", "jax")
            assert own.why
            assert own.link.startswith("https://docs."), op.name
