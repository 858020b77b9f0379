"""Are the layout rules true? Every device works on its own shards, and the parts make the whole."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest

from adapters.reference import propagation
from adapters.reference.cheapest_plan import all_layouts
from adapters.reference.evaluate import Value, cut_shards, global_array, join_shards, meaning
from adapters.reference.implied_plan import implied_plan, implied_plan_by_size
from adapters.reference.propagation import implied_by_op, possible_layouts, propagate
from adapters.reference.redistribution_plan import plan_bytes
from cases.catalogue.operators import ONE, cases
from cases.catalogue.samples import SAMPLES
from cases.layout import are_equivalent, axes_of_layout, coordinates, index_ranges, local_shape
from cases.model import REDUCTIONS, Layout, Mesh, Step
from cases.ops import OPS, labels
from cases.ops.op import SUM_AVG, Labels, Op, Params, single_dim
from tests.plan_execution import execute_plan

TWO = Mesh((("a", 2), ("b", 2)), (0, 1, 2, 3))
MESHES = {"x4": ONE, "a2.b2": TWO}
# Draws of layouts that a rule holds for, of each sample.
DRAWS, TRIES = 10, 150

Shape = tuple[int, ...]
Sample = tuple[Step, tuple[Value, ...]]


def _wide(value: Value) -> Value:
    """In 64 bits, so that nothing but a wrong rule is seen to differ."""
    return value.astype({"f": np.float64, "V": np.float64, "c": np.complex128}.get(
        value.dtype.kind, value.dtype))  # fmt: skip


@cache
def _samples() -> dict[str, list[Sample]]:
    found: dict[str, dict[object, Sample]] = {kind: {} for kind in SAMPLES}
    for case in cases(True):
        step, inputs = case.question.steps[0], case.question.inputs
        shapes = tuple((one.shape, one.dtype[:3]) for one in inputs)
        key = (step.op, step.args, str(step.params), shapes)
        for kind in found.keys() & case.tags:
            if key not in found[kind]:
                values = tuple(_wide(global_array(one, case.question.mesh)) for one in inputs)
                found[kind][key] = step, values
    return {kind: list(some.values()) for kind, some in found.items()}


def samples(kind: str) -> list[Sample]:
    """Every op of a kind with the parameters, shapes and values of its cases, once."""
    return _samples()[kind]


def addends(mesh: Mesh, layout: Layout, value: Value) -> list[Value]:
    """Shards in a layout: the value's own, and others of its elements where a reduction is owed."""
    owing = [axis for axis, _ in layout.partial]
    shards = []
    for where, held in zip(coordinates(mesh), index_ranges(mesh, layout, value.shape), strict=True):
        turned = value
        for count, axis in enumerate(owing):
            turned = np.roll(turned.reshape(-1), where[axis] * (count + 1)).reshape(value.shape)
        shards.append(turned[tuple(slice(*span) for span in held)])
    return shards


def layouts(mesh: Mesh, value: Value) -> list[Layout]:
    """All that a tensor can be in; integers are not averaged, nor booleans added up."""
    kind = value.dtype.kind
    ops = () if kind == "b" else tuple(op for op in REDUCTIONS if op != "avg" or kind in "fc")
    if kind == "c":
        ops = ("sum", "avg", "product")
    return list(all_layouts(mesh, value.ndim, ops))


def local(
    mesh: Mesh, step: Step, taken: tuple[Layout, ...], shards: list[list[Value]],
    wholes: tuple[Value, ...], made: Layout, shape: Shape,
) -> list[Value]:  # fmt: skip
    """The op done by every device on what it has, and nothing else."""
    names = step.operands
    parts = []
    for p, held in enumerate(index_ranges(mesh, made, shape)):
        params = dict(step.params)
        if "shape" in params:
            params["shape"] = list(local_shape(held))
        own = {name: shards[index][p] for index, name in enumerate(names)}
        if step.op in ("take", "embedding"):
            # Rows that a device does not have are zeros to it.
            table = names[0] if step.op == "take" else names[1]
            index = names.index(table)
            dim = single_dim(params.get("axis", 0), wholes[index].ndim)
            start, stop = index_ranges(mesh, taken[index], wholes[index].shape)[p][dim]
            width = [(0, 0)] * wholes[index].ndim
            width[dim] = (start, wholes[index].shape[dim] - stop)
            own[table] = np.pad(own[table], width)
        part = meaning(msgspec.structs.replace(step, params=params), own)
        assert part.shape == local_shape(held), "a shard of another shape"
        parts.append(part)
    return parts


def hold(mesh: Mesh, step: Step, values: tuple[Value, ...], taken: tuple[Layout, ...]) -> int:
    """That what the rule says of operands laid out like this is true; how often it says a thing."""
    names = step.operands
    shapes = tuple(value.shape for value in values)
    shards = [addends(mesh, layout, value) for layout, value in zip(taken, values, strict=True)]
    wholes = tuple(
        join_shards(mesh, layout, own, value.shape)
        for layout, own, value in zip(taken, shards, values, strict=True)
    )
    right = meaning(step, dict(zip(names, wholes, strict=True)))
    held = 0
    for made in possible_layouts(mesh, step, shapes, taken):
        assert made.ndim == right.ndim, "a layout of another rank"
        parts = local(mesh, step, taken, shards, wholes, made, right.shape)
        for replica in range(mesh.size):
            np.testing.assert_allclose(
                join_shards(mesh, made, parts, right.shape, replica).astype(np.complex128),
                right.astype(np.complex128), rtol=1e-9, atol=1e-9,
                err_msg=f"{step.op} {step.params} {shapes} {taken} -> {made}",
            )  # fmt: skip
        held += 1
    return held


def draw(mesh: Mesh, step: Step, values: tuple[Value, ...], seed: str) -> list[tuple[Layout, ...]]:
    """Layouts of the operands that the rule says something of, some of them in any order."""
    rng = random.Random(seed)
    shapes = tuple(value.shape for value in values)
    choices = [layouts(mesh, value) for value in values]
    found: dict[tuple[Layout, ...], None] = {}
    for _ in range(TRIES):
        taken = [rng.choice(some) for some in choices]
        for index, some in enumerate(choices[1:], 1):
            # Operands that are laid out alike are what a rule is often about.
            if taken[0] in some and rng.random() < 0.6:
                taken[index] = taken[0]
        one = tuple(taken)
        if (
            any(map(axes_of_layout, one))
            and one not in found
            and propagate(mesh, step, shapes, one)
        ):
            found[one] = None
        if len(found) == DRAWS:
            break
    return list(found)


def hold_all(kind: str, mesh: Mesh, op: str = "") -> int:
    """As `hold`, for draws of every sample of a kind, or of one op."""
    held = 0
    for step, values in samples(kind):
        if OPS[step.op].own or op not in ("", step.op):
            continue
        for taken in draw(mesh, step, values, str(step)):
            held += hold(mesh, step, values, taken)
    return held


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("kind", SAMPLES)
def test_what_a_rule_says_is_what_shards_make(kind: str, mesh: str) -> None:
    """An op on each device's shards alone gives shards, or addends, of the right result."""
    assert hold_all(kind, MESHES[mesh]) >= 30


RESHAPES = (
    ((8, 4), (32,)), ((8, 4), (4, 8)), ((2, 12), (2, 4, 3)), ((7, 2), (14,)),
    ((3, 4, 8), (2, 6, 8)),
    ((6, 4), (4, 6)), ((8,), (4, 2)), ((8,), (2, 2, 2)), ((4, 1, 2), (8,)), ((5, 4), (20,)),
    ((12,), (3, 4)), ((2, 8), (4, 4)), ((1, 8), (8, 1)), ((16,), (4, 4)), ((10, 2), (5, 4)),
)  # fmt: skip


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize(("shape", "target"), RESHAPES)
def test_a_reshape_needs_nothing_where_devices_keep_their_elements(
    shape: Shape, target: Shape, mesh: str
) -> None:
    """The rule for factors says just what following each element says, where shards are even."""
    on, value = MESHES[mesh], np.arange(np.prod(shape)).reshape(shape)
    step = Step("r", "reshape", ("x",), {"shape": list(target)})
    for before in all_layouts(on, len(shape)):
        hold(on, step, (value,), (before,))
        parts = cut_shards(on, before, value)
        even = len({part.shape for part in parts}) == 1 and parts[0].size
        found = propagate(on, step, (shape,), (before,))
        kept = [
            after
            for after in all_layouts(on, len(target))
            if sorted(axes_of_layout(after)) == sorted(axes_of_layout(before))
            and all(
                np.array_equal(old.reshape(-1), new.reshape(-1))
                for old, new in zip(
                    parts, cut_shards(on, after, value.reshape(target)), strict=True
                )
            )
        ]
        if even and kept:
            assert found is not None, before
            assert found in kept, before


def _as(op: str, **about: Any) -> Op:
    return msgspec.structs.replace(OPS[op], **about)


def _whole_table(shapes: tuple[Shape, ...], params: Params) -> Labels:
    (x, i), result = labels.take(shapes, params)
    return (tuple(reversed(x)), i), result


# A rule that is not true, of one op each.
WRONG = {
    "a copy of what accumulates": _as("cumulative_sum", labels=labels.same_dims),
    "a tile in place of a repeat": _as("tile", labels=labels.repeat),
    "a roll of each part": _as("roll", labels=labels.same_dims),
    "addends of a largest": _as("max", reduces="sum"),
    "the largest addend of a sum": _as("sum", linear=frozenset({"max"})),
    "any of all": _as("all", reduces=("sum",)),
    "a bias for each addend": _as("addmm", addend=None),
    "a table by its columns": _as("take", labels=_whole_table),
    "a mean of rows taken": _as("take", reduces="avg"),
    "a square of addends": _as("square", linear=SUM_AVG),
    "a maximum of sums": _as("maximum", linear=SUM_AVG),
    "a difference from the largest": _as("subtract", each=(0, 1)),
    "ones between addends": _as("pad", linear=SUM_AVG),
    "a norm of each part": _as("vector_norm", labels=labels.reduce, reduces="sum"),
    "a softmax of each part": _as("softmax", labels=labels.same_dims),
    "a join of parts": _as("concat", labels=labels.broadcast),
}


@pytest.mark.parametrize("row", WRONG.values(), ids=WRONG)
def test_a_wrong_rule_shows(row: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is found out by what the shards make."""
    monkeypatch.setitem(OPS, row.name, row)
    kind = next(kind for kind in SAMPLES for step, _ in samples(kind) if step.op == row.name)
    with pytest.raises(AssertionError):
        hold_all(kind, ONE, row.name)


def test_every_rule_is_about_the_operands_and_the_result_there_are() -> None:
    """As many labels as dims, in every sample."""
    ruled = 0
    for kind in SAMPLES:
        for step, values in samples(kind):
            named = propagation.dim_labels(step, tuple(value.shape for value in values))
            names = step.operands
            if named is not None:
                operands, result = named
                assert [len(one) for one in operands] == [value.ndim for value in values], step
                assert len(result) == meaning(step, dict(zip(names, values, strict=True))).ndim
                ruled += 1
    assert ruled > 400


def _implied(
    step: Step, shapes: tuple[Shape, ...], taken: tuple[Layout, ...], shape: Shape, made: Layout
) -> list[str] | None:
    plans = implied_by_op(ONE, step, shapes, taken, (shape, made), (4,) * (len(shapes) + 1))
    if plans is None:
        return None
    return [move.kind for plan, _, _ in plans for move in plan if move.kind != "local"]


def test_the_order_that_slices_first_is_a_plan() -> None:
    """Executed, it ends in the target's shards; some take fewer bytes than in mesh order."""
    value = np.arange(32.0).reshape(8, 4)
    every = all_layouts(TWO, 2, ("sum",))
    fewer = 0
    for source in every:
        shards = addends(TWO, source, value)
        right = join_shards(TWO, source, shards, value.shape)
        for target in every:
            plan = implied_plan_by_size(TWO, source, target, value.shape)
            made = execute_plan(TWO, plan, list(shards), value.shape)
            assert [one.shape for one in made] == [
                local_shape(held) for held in index_ranges(TWO, target, value.shape)
            ]
            for replica in range(TWO.size):
                joined = join_shards(TWO, target, made, value.shape, replica)
                np.testing.assert_array_equal(joined, right)
            plain = plan_bytes(TWO, implied_plan(TWO, source, target, value.shape), value.shape, 4)
            fewer += plan_bytes(TWO, plan, value.shape, 4) < plain
    assert fewer > 10


ROWS, COLUMNS, WHOLE = Layout((("x",), ())), Layout(((), ("x",))), Layout(((), ()))
OWING = Layout(((), ()), (("x", "sum"),))


def test_nothing_is_implied_where_no_rule_says_which_way_is_due() -> None:
    """Along a split dim a softmax or a slice can do with less than the whole: no collectives."""
    for step in (
        Step("r", "softmax", ("x",), {"axis": 0}),
        Step("r", "roll", ("x",), {"axis": 0, "shift": 1}),
    ):
        assert _implied(step, ((8, 4),), (ROWS,), (8, 4), ROWS) is None
        assert _implied(step, ((8, 4),), (COLUMNS,), (8, 4), COLUMNS) == []
        assert _implied(step, ((8, 4),), (WHOLE,), (8, 4), ROWS) == []
    assert _implied(Step("r", "astype", ("x",), {"dtype": "int32"}), ((8, 4),), (OWING,),
                    (8, 4), WHOLE) is None  # fmt: skip


def test_an_operand_is_sliced_before_it_is_gathered_and_moved_once() -> None:
    """A relayout on an op's way takes the cheaper order; x with x moves x once."""
    split, other = Layout(((), ("a",))), Layout((("b",), ()))
    plans = implied_by_op(
        TWO, Step("r", "sort", ("x",)), ((8, 4),), (other,), ((8, 4), split), (4, 4)
    )
    assert plans is not None
    assert [move.kind for move in plans[1][0]] == ["local", "all-gather"]
    step = Step("r", "multiply", ("x", "x"))
    assert _implied(step, ((8, 4), (8, 4)), (ROWS, ROWS), (8, 4), WHOLE) == ["all-gather"]


def test_what_is_added_owes_what_the_rest_owes() -> None:
    """A bias beside split channels comes to owe a sum, which is free; two layouts are one."""
    step = Step("r", "linear", ("x", "w", "b"))
    bias = Layout(((),))
    shapes = ((8, 4), (4, 4), (4,))
    assert propagate(ONE, step, shapes, (COLUMNS, COLUMNS, bias)) is None
    assert _implied(step, shapes, (COLUMNS, COLUMNS, bias), (8, 4), OWING) == []
    found = propagate(ONE, step, shapes, (COLUMNS, COLUMNS, Layout(((),), (("x", "sum"),))))
    assert found is not None
    assert are_equivalent(ONE, found, OWING, (8, 4))
