"""What is the gradient through each op, under each placement of its operands?

For each sample and each operand with a derivative: l = sum(r * c) with a cotangent c of distinct
elements, and g = grad(l, operand). Refuses to know the right gradients.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cases.arrays import pack
from cases.catalogue.build import make_case
from cases.catalogue.operators import (
    ONE,
    TWO,
    OperandPlacements,
    arguments,
    one_axis,
    operands,
    placements,
    row_name,
    tensors,
    two_axes,
)
from cases.catalogue.samples import SAMPLES, Operand, Sample, operand_values
from cases.layout import canonical
from cases.model import Case, Input, Layout, Mesh, Step
from cases.ops import OPS
from cases.program import TensorType, infer_type

FAMILY = "gradients"


def cases(exhaustive: bool) -> Iterator[Case]:
    """The family, in the order of the samples."""
    before = 0
    for kind, samples in SAMPLES.items():
        for sample in samples:
            made = sample_type(sample)
            # Finite differences do not show the gradient of a narrowing cast or a padding row.
            if not made.dtype.startswith("float") or "padding_row" in sample.params:
                continue
            names = _differentiable_operands(sample)
            few = len(sample.operands) < 3
            # By default each sample has one operand, and the operand changes between samples.
            first = before % len(names) if names and not exhaustive else 0
            for turn in (*range(first, len(names)), *range(first)):
                number, by = before + turn + 1, names[turn]
                rows = one_axis(sample, exhaustive and few)
                if few:
                    # Operands take turns, so that any two placements occur with one of them.
                    rows = [row for row in rows if _index(sample, row) % len(names) == turn]
                if not exhaustive:
                    rows = rows[number % max(len(rows), 1) :][:1]
                for row in rows:
                    yield _case(kind, sample, by, made, ONE, row)
                if exhaustive or number % 5 == 0:
                    for row in two_axes(sample, False, number):
                        yield _case(kind, sample, by, made, TWO, row)
                if rows and not exhaustive:
                    break
            before += len(names)


def sample_type(sample: Sample) -> TensorType:
    """The shape and dtype of a sample's result."""
    args = tuple(
        TensorType(one.shape, one.dtype) if isinstance(one, Operand) else one
        for one in sample.operands
    )
    return infer_type(OPS[sample.op], args, sample.params)


def _index(sample: Sample, row: OperandPlacements) -> int:
    """The sum of the indices of a row's placements among those of each operand."""
    return sum(
        placements(one).index(place) for one, (place, *_) in zip(tensors(sample), row, strict=True)
    )


def _differentiable_operands(sample: Sample) -> list[str]:
    """The names of the operands with a derivative."""
    op = OPS[sample.op]
    names = zip((*op.args, *op.more), sample.operands)
    return [
        name
        for at, (name, one) in enumerate(names)
        if at in op.grads and isinstance(one, Operand) and one.dtype.startswith("float")
    ]


def _case(
    kind: str, sample: Sample, by: str, made: TensorType, on: Mesh, row: OperandPlacements
) -> Case:
    inputs = operands(sample, on, row)
    steps = [Step("r", sample.op, arguments(sample), sample.params)]
    if made.shape:
        like = Operand(made.shape, "ordinal")
        cotangent = (operand_values(like) % 7 / 4 + operand_values(like) / 64).astype(np.float32)
        plain = Layout(((),) * len(made.shape))
        inputs += (Input("cot", made.shape, made.dtype, plain, value=pack(cotangent)),)
        steps += [Step("scaled", "multiply", ("r", "cot")), Step("l", "sum", ("scaled",))]
    else:
        steps.append(Step("l", "multiply", ("r", 1.5)))
    steps.append(Step("g", "grad", ("l", by)))
    tags = {kind, sample.op, "gradient"}
    if any(canonical(on, one.layout).partial for one in inputs):
        tags.add("partial-operand")
    operand_inputs = [one for one in inputs if one.name != "cot"]
    id = f"{sample.name}-by-{by}-{row_name(on, operand_inputs)}"
    return make_case(FAMILY, id, on, inputs, tuple(steps), check=("r", "g"), tags=frozenset(tags))
