"""Does each line of torch compute what the op means? Every sample runs on replicated operands."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from adapters.answer import Answer, Done, Refused, format_end
from adapters.reference.evaluate import evaluate
from cases.arrays import Array, pack, unpack
from cases.catalogue.samples import SAMPLES, Operand, Sample
from cases.catalogue.samples import operand_values as filled
from cases.model import Input, Layout, Question, Step, mesh
from cases.ops import OPS, tolerance
from tests.torch_worker import Live, layout

PAIR = mesh({"x": 2})
# DTensor has no rule for the kernel that torch takes here, even where nothing is split.
REFUSED = {"scaled_dot_product_attention.causal", "assign_slice.value"}
# torch 2.13.0 gives back the first operand of an operator as it is.
UNSHIFTED = {"left_shift", "right_shift", "left_shift.number", "right_shift.number"}
EACH = [sample for samples in SAMPLES.values() for sample in samples]
SLOPES = (
    "add.row", "divide.number-left", "power", "where", "clip", "sum.rows", "mean", "vector_norm",
    "logsumexp", "matmul.batched", "linear.bias", "conv1d.padded", "reshape.split", "pad", "tile",
    "take.columns", "scatter", "scatter_add", "scatter_rows", "dynamic_slice.clamped",
    "inplace_multiply", "sort.rows", "softmax", "layer_norm.affine", "huber_loss.mean",
    "cross_entropy.weighted-ignored", "inv",
)  # fmt: skip


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    worker = Live(tmp_path_factory.mktemp("torch") / "printed")
    yield worker
    worker.close()


def asked(sample: Sample, *, plain: bool = False, slopes: bool = False) -> Question:
    """The sample on replicated operands. ``plain``: on their local tensors instead."""
    inputs, steps = [], []
    args: list[str | float] = []
    for i, operand in enumerate(sample.operands):
        if not isinstance(operand, Operand):
            args.append(operand)
            continue
        value = filled(operand)
        inputs.append(_whole(f"x{i}", value))
        if plain:
            steps.append(Step(f"t{i}", "to_local", (f"x{i}",)))
        args.append(f"t{i}" if plain else f"x{i}")
    steps.append(Step("y", sample.op, tuple(args), sample.params))
    question = Question(sample.name, PAIR, tuple(inputs), tuple(steps), ("y",))
    if not slopes:
        return question
    made = evaluate(question)["y"]
    # Not all alike, or a permuted gradient would be the same.
    weights = (np.arange(made.size).reshape(made.shape) % 7 / 4 + 0.5).astype(made.dtype)
    inputs.append(_whole("c", weights))
    steps += [Step("p", "multiply", ("y", "c")), Step("l", "sum", ("p",))]
    by = [args[i] for i in OPS[sample.op].grads if i < len(args) and isinstance(args[i], str)]
    steps += [Step(f"g{name}", "grad", ("l", name)) for name in by]
    check = tuple(f"g{name}" for name in by)
    return Question(sample.name, PAIR, tuple(inputs), tuple(steps), check)


def _whole(name: str, value: np.ndarray) -> Input:
    text = layout("R", PAIR, value.ndim)
    return Input(name, value.shape, value.dtype.name, text, pack(value))


def near(got: Array | None, wanted: np.ndarray, op: str) -> bool:
    """Whether dtype and shape are the same, and every element is within the op's tolerance."""
    assert got is not None
    assert (got.dtype, got.shape) == (wanted.dtype.name, wanted.shape)
    allowed = tolerance(OPS[op], got.dtype)
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    found, right = unpack(got).astype(wide), wanted.astype(wide)
    size = max(1.0, float(np.max(np.abs(np.nan_to_num(right)), initial=0)))
    return np.allclose(found, right, allowed.rtol, allowed.atol * size, equal_nan=True)


@pytest.mark.parametrize("sample", EACH, ids=lambda sample: sample.name)
def test_a_row_gives_what_the_op_means(live: Live, sample: Sample) -> None:
    """Operands are replicated, or plain tensors where DTensor refuses replicated ones."""
    answer = live.ask(asked(sample))
    wanted = evaluate(asked(sample))["y"]
    if sample.name in REFUSED | UNSHIFTED:
        if sample.name in REFUSED:
            assert isinstance(answer.end, Refused)
        else:
            assert answer["y"].full[0] == pack(evaluate(asked(sample))["x0"])
        plain = live.ask(asked(sample, plain=True))["y"]
        assert plain.shards is not None
        assert all(near(one, wanted, sample.op) for one in plain.shards)
    else:
        assert format_end(answer.end) == "done"
        (full,) = answer["y"].full
        assert near(full, wanted, sample.op)
    assert not answer.complaints


@pytest.mark.parametrize("name", ["y", "slice", "_copy", "_new", "mesh", "_t"])
def test_an_input_may_be_called_what_a_line_calls_or_binds(live: Live, name: str) -> None:
    """The line assigns the input, whatever names the line itself binds."""
    inputs = (_whole("old", np.arange(8.0).reshape(4, 2)), _whole(name, np.full((2, 2), -1.0)))
    step = Step("c", "assign_slice", ("old", name), {"axis": 0, "start": 1, "stop": 3})
    question = Question("named", PAIR, inputs, (step,), ("c",))
    answer = live.ask(question)
    assert answer.end == Done()
    assert unpack(answer["c"].full[0]).tolist() == [[0, 1], [-1, -1], [-1, -1], [6, 7]]


@pytest.mark.parametrize("name", SLOPES)
def test_a_row_has_the_gradient_of_what_the_op_means(live: Live, name: str) -> None:
    """With respect to every operand that has a gradient, with a cotangent whose elements differ."""
    (sample,) = (one for one in EACH if one.name == name)
    question = asked(sample, slopes=True)
    answer = live.ask(question)
    assert format_end(answer.end) == "done"
    assert question.check
    wanted = evaluate(question)
    for slope in question.check:
        (full,) = answer[slope].full
        assert near(full, wanted[slope], "grad"), slope


def _made(live: Live, *steps: Step) -> Answer:
    answer = live.ask(Question("made", PAIR, (), steps, tuple(step.result for step in steps)))
    assert answer.end == Done()
    return answer


def test_what_is_made_has_the_layout_asked_for(live: Live) -> None:
    """Results of arange and full have the dtype and the layout asked for."""
    split = layout("S(0)", PAIR, 1)
    steps = (
        Step("a", "arange", (), {"n": 5}, split),
        Step("b", "full", (), {"shape": [3], "value": 7, "dtype": "int32"}, split),
    )
    answer = _made(live, *steps)
    for step in steps:
        seen, wanted = answer[step.result], OPS[step.op].meaning(**step.params)
        assert seen.layout == Layout((("x",),))
        assert near(seen.full[0], wanted, step.op)
    assert [one.kind for one in answer["a"].collectives or ()] == ["scatter"]
    assert answer["b"].collectives == ()


@pytest.mark.parametrize("name", ["random_uniform", "random_normal"])
def test_random_numbers_are_refused_without_an_accelerator(live: Live, name: str) -> None:
    """DTensor has a generator only on meshes of accelerators, and asserts that there is one."""
    step = Step("r", name, (), {"shape": [4], "seed": 0}, layout("S(0)", PAIR, 1))
    answer = live.ask(Question("random", PAIR, (), (step,), ("r",)))
    assert isinstance(answer.end, Refused)
    assert (answer.end.error, answer.end.step) == ("AssertionError", "r")
