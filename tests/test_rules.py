"""Are the layout rules true? Every device works on its own shards, and the parts make the whole."""

from __future__ import annotations

import numpy as np
import pytest

from adapters.reference.rules import propagate
from adapters.reference.values import evaluate, join, meaning
from cases.arrays import unpack
from cases.catalogue.operators import ONE, cases
from cases.catalogue.samples import SAMPLES
from cases.layout import ranges
from cases.model import Case
from cases.ops import OPS

CASES = [case for case in cases(True) if case.question.mesh == ONE]


def _held(case: Case, position: int) -> dict[str, np.ndarray]:
    found = {}
    for given in case.question.inputs:
        if given.per_device is not None:
            found[given.name] = unpack(given.per_device[position])
        else:
            assert given.value is not None
            held = ranges(ONE, given.layout, given.shape)[position]
            found[given.name] = unpack(given.value)[tuple(slice(*span) for span in held)]
    return found


@pytest.mark.parametrize("kind", SAMPLES)
def test_what_a_rule_says_is_what_shards_make(kind: str) -> None:
    """An op on each device's shards alone gives shards, or addends, of the right result."""
    held = 0
    for case in CASES:
        step = case.question.steps[0]
        # A shape that is asked for is the whole's, which no shard can have.
        if kind not in case.tags or "shape" in step.params:
            continue
        value = evaluate(case.question)["r"]
        shapes = tuple(given.shape for given in case.question.inputs)
        layouts = tuple(given.layout for given in case.question.inputs)
        layout = propagate(ONE, step, shapes, layouts)
        if layout is None:
            continue
        parts = [meaning(step, _held(case, position)) for position in range(ONE.size)]
        made = join(ONE, layout, parts, value.shape)
        np.testing.assert_allclose(
            made.astype(np.complex128), value.astype(np.complex128), rtol=1e-5, atol=1e-5,
            err_msg=case.id,
        )  # fmt: skip
        held += 1
    assert held > 15


def test_a_wrong_rule_shows() -> None:
    """A running sum is no running sum of shards: with the rule of a copy it would be found out."""
    (case,) = (case for case in CASES if case.id == "cumulative_sum-x4-s1")
    (given,) = case.question.inputs
    value = evaluate(case.question)["r"]
    parts = [meaning(case.question.steps[0], _held(case, position)) for position in range(4)]
    assert not np.array_equal(join(ONE, given.layout, parts, value.shape), value)
    assert propagate(ONE, case.question.steps[0], (given.shape,), (given.layout,)) is None


def test_every_rule_is_about_the_operands_and_the_result_there_are() -> None:
    """As many labels as dims, in every sample."""
    ruled = 0
    for case in CASES:
        step = case.question.steps[0]
        rule = OPS[step.op].labels
        shapes = tuple(given.shape for given in case.question.inputs)
        named = None if rule is None else rule(shapes, step.params)
        if named is not None:
            operands, result = named
            assert [len(one) for one in operands] == [len(shape) for shape in shapes], case.id
            assert len(result) == evaluate(case.question)["r"].ndim, case.id
            ruled += 1
    assert ruled > 1000
