"""What does each op give under each placement of its operands?

Every sample of `samples` with R, S(d) and P(sum) for each operand on an axis of 4, a covering set
on 2x2, and first dims of 7 (uneven shards) and 5 (also an empty shard). By default a selection
in which every op has every placement. Refuses to know layout rules.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from cases.array_literals import split_into_addends
from cases.arrays import pack
from cases.catalogue.build import covering_rows, layout_name, layout_of, make_case, mesh_name
from cases.catalogue.samples import SAMPLES, Operand, Sample, operand_values, resized
from cases.errors import Where
from cases.model import Case, Input, Mesh, Step, mesh
from cases.ops import OPS

FAMILY = "operators"

ONE = mesh({"x": 4})
TWO = mesh({"a": 2, "b": 2})

OperandPlacements = tuple[tuple[str, ...], ...]


def cases(exhaustive: bool) -> Iterator[Case]:
    """The family, in the order of the samples."""
    number = 0
    for kind, samples in SAMPLES.items():
        for sample in samples:
            number += 1
            for row in one_axis(sample, exhaustive):
                yield _case(kind, sample, ONE, row)
            if exhaustive or number % 4 == 1:
                for row in two_axes(sample, exhaustive, number):
                    yield _case(kind, sample, TWO, row)
            # 5 rows on 4 devices are uneven too, and 7 rows leave no shard empty.
            sizes = (7, 5) if exhaustive or number % 4 == 0 else (5,)
            for size in sizes if sample.resizes else ():
                for row in _shard_first_dim(sample, exhaustive):
                    yield _case(kind, resized(sample, size), ONE, row, f"-n{size}")


def tensors(sample: Sample) -> list[Operand]:
    """The operands that are tensors."""
    return [one for one in sample.operands if isinstance(one, Operand)]


def placements(operand: Operand) -> list[str]:
    """R, S(d) for each dim with more than one element, and P(sum) for dtypes with sums."""
    shards = [f"S({dim})" for dim, size in enumerate(operand.shape) if size > 1]
    summed = operand.dtype.startswith("float") or operand.dtype == "int32"
    return ["R", *shards, *(["P(sum)"] if summed and operand.kind != "holes" else [])]


def one_axis(sample: Sample, exhaustive: bool) -> list[OperandPlacements]:
    """Rows with one placement for each operand.

    By default all operands have the same placement. An operand that cannot have it is replicated.
    """
    choices = [placements(one) for one in tensors(sample)]
    if exhaustive:
        return [tuple((one,) for one in row) for row in itertools.product(*choices)]
    rows: dict[OperandPlacements, None] = {}
    for place in dict.fromkeys(itertools.chain(*choices)):
        if place != "R":
            rows[tuple((place if place in own else "R",) for own in choices)] = None
    rows.pop(tuple(("R",) for _ in choices), None)
    return list(rows)


def two_axes(sample: Sample, exhaustive: bool, number: int) -> list[OperandPlacements]:
    """Rows with two placements for each operand, which cover all pairs; by default one row."""
    own = [placements(one) for one in tensors(sample)]
    columns = [choices for choices in own for _ in range(2)]
    rows: list[OperandPlacements] = [
        tuple(zip(row[::2], row[1::2])) for row in covering_rows(*columns)
    ]
    if exhaustive:
        return rows
    split = [row for row in rows if any(place != "R" for pair in row for place in pair)]
    return split[number % len(split) :][:1] if split else []


def _shard_first_dim(sample: Sample, exhaustive: bool) -> list[OperandPlacements]:
    """Rows that shard the first dim, for operands whose first dim is resized."""
    first = [one.shape[:1] == (8,) for one in tensors(sample)]
    rows: list[OperandPlacements] = [tuple(("S(0)" if one else "R",) for one in first)]
    if exhaustive and sum(first) > 1:
        rows.append(tuple(("S(0)" if at == 0 else "R",) for at in range(len(first))))
    return rows if any(first) else []


def operands(sample: Sample, on: Mesh, row: OperandPlacements) -> tuple[Input, ...]:
    """The inputs of a sample in these placements, with the names of the op's arguments."""
    op = OPS[sample.op]
    names = [
        name for name, one in zip((*op.args, *op.more), sample.operands) if isinstance(one, Operand)
    ]
    made = []
    for name, one, places in zip(names, tensors(sample), row, strict=True):
        layout = layout_of(on, places, len(one.shape))
        whole = operand_values(one)
        if layout.partial:
            parts = split_into_addends(whole, on, layout, Where(sample.name))
            made.append(Input(name, one.shape, one.dtype, layout, per_device=parts))
        else:
            made.append(Input(name, one.shape, one.dtype, layout, value=pack(whole)))
    return tuple(made)


def arguments(sample: Sample) -> tuple[str | int | float | bool, ...]:
    """The arguments of the op's step: names of inputs, and numbers."""
    op = OPS[sample.op]
    return tuple(
        name if isinstance(one, Operand) else one
        for name, one in zip((*op.args, *op.more), sample.operands)
    )


def row_name(on: Mesh, inputs: Sequence[Input]) -> str:
    """``x4-s0-r``: the mesh and the layout of each input."""
    return "-".join([mesh_name(on), *(layout_name(on, one.layout) for one in inputs)])


def _case(kind: str, sample: Sample, on: Mesh, row: OperandPlacements, suffix: str = "") -> Case:
    inputs = operands(sample, on, row)
    step = Step("r", sample.op, arguments(sample), sample.params)
    tags = {kind, sample.op}
    if suffix:
        tags.add("uneven")
    if any(one.layout.partial for one in inputs):
        tags.add("partial-operand")
    return make_case(
        FAMILY, f"{sample.name}-{row_name(on, inputs)}{suffix}", on, inputs, (step,),
        check=("r",), tags=frozenset(tags),
    )  # fmt: skip
