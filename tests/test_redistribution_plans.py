"""The table of implied collectives, and the plans that the reference runs.

The tables here are written by hand from the placement algebra, not printed from the code.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import numpy as np
import pytest

from adapters.reference.cheapest_plan import all_layouts, cheapest_plan
from adapters.reference.evaluate import Value, cut_shards, join_shards
from adapters.reference.implied_plan import implied_plan
from adapters.reference.propagation import implied_by_op
from adapters.reference.redistribution_plan import (
    Move,
    RedistributionPlan,
    communicating_moves,
    cost,
    plan_bytes,
    reduce_addends,
)  # fmt: skip
from cases.arrays import numpy_dtype, unpack
from cases.catalogue.build import make_input
from cases.model import Layout, Mesh, Step, mesh
from cases.notation import from_placements
from tests.plan_execution import execute_plan

Planner = Callable[[Mesh, Layout, Layout, tuple[int, ...]], RedistributionPlan]

ONE = mesh({"x": 4})
TWO = mesh({"a": 2, "b": 2})
THREE = mesh({"a": 2, "b": 2, "c": 2})
SHORT = {
    "all-gather": "AG", "all-reduce": "AR", "reduce-scatter": "RS", "all-to-all": "AA",
    "collective-permute": "CP",
}  # fmt: skip

# One axis: rows are sources, columns targets R, S(0), S(1), P.
ONE_AXIS = """
R     -   -   -   -
S(0)  AG  -   AA  -
S(1)  AG  AA  -   -
P     AR  RS  RS  -
"""

# 2x2: sources, targets and the collectives in order, each with its axis.
TWO_AXES = """
S(0),R    to R,R        AGa
S(0),R    to S(1),R     AAa
S(0),R    to R,S(0)     AGa
S(0),R    to S(0),S(0)  -
S(0),S(0) to R,R        AGb AGa
S(0),S(0) to R,S(0)     AGb AGa
S(0),S(0) to S(0),R     AGb
S(0),S(0) to S(0),S(1)  AAb
S(0),S(0) to S(1),S(0)  AGb AAa
S(0),S(0) to S(1),S(1)  AGb AAa
S(0),S(0) to R,S(1)     AAb AGa
S(0),S(1) to R,R        AGa AGb
S(0),S(1) to S(0),S(0)  AAb
S(0),S(1) to S(1),S(1)  AGb AAa
S(0),S(1) to S(1),S(0)  AGb AAa
R,S(0)    to S(0),S(0)  AGb
R,S(0)    to S(0),R     AGb
R,S(0)    to S(0),S(1)  AAb
P,R       to R,R        ARa
P,R       to S(0),R     RSa
P,R       to S(0),S(0)  RSa
P,R       to R,S(0)     ARa
P,P       to R,R        ARa ARb
P,P       to S(0),S(0)  RSa RSb
P,P       to S(0),R     RSa ARb
P,P       to R,S(0)     ARa RSb
P,S(0)    to R,R        ARa AGb
P,S(0)    to S(0),S(0)  AGb RSa
P,S(0)    to S(1),S(0)  RSa
S(0),P    to S(0),S(0)  RSb
S(0),P    to S(1),S(0)  AAa RSb
S(0),P    to R,S(0)     AGa RSb
P,R       to P,S(0)     -
P,S(0)    to P,R        AGb
S(0),S(0) to S(0),P     -
S(0),S(0) to P,S(0)     AGb
S(0),S(1) to P,R        AGb
P,S(0)    to R,P        ARa
P,P       to P,R        ARb
P,P       to R,P        ARa
R,S(0)    to P,S(0)     -
"""

THREE_AXES = """
S(0),S(0),S(0) to R,R,R           AGc AGb AGa
S(0),S(0),S(0) to S(0),R,S(0)     AGc AGb
S(0),S(0),S(0) to S(0),S(0),R     AGc
S(0),S(0),S(0) to R,S(0),S(0)     AGc AGb AGa
S(0),S(0),S(0) to S(0),S(1),S(1)  AGc AAb
S(0),S(0),S(1) to S(0),S(1),S(1)  AGc AAb
S(0),S(1),R    to S(0),S(1),S(0)  -
S(0),R,S(0)    to S(0),S(0),S(0)  AGc
P,P,P          to S(0),S(0),S(0)  RSa RSb RSc
P,S(0),S(0)    to S(1),S(0),S(0)  RSa
P,S(0),S(0)    to S(0),S(0),S(0)  AGc AGb RSa
P,S(0),P       to R,S(0),S(0)     ARa RSc
"""


def _short(plan: RedistributionPlan, axes: bool = True) -> str:
    said = (SHORT[m.kind] + (",".join(m.axes) if axes else "") for m in communicating_moves(plan))
    return " ".join(said) or "-"


def _rows(table: str) -> list[tuple[str, str, str]]:
    rows = []
    for line in table.strip().splitlines():
        source, _, rest = line.partition(" to ")
        target, _, wanted = rest.partition(" ")
        rows.append((source.strip(), target, wanted.strip()))
    return rows


@pytest.mark.parametrize("line", ONE_AXIS.strip().splitlines())
def test_one_axis_implies_what_the_algebra_says(line: str) -> None:
    """On one axis a change implies one collective, named by its two placements."""
    source, *wanted = line.split()
    got = []
    for target in ("R", "S(0)", "S(1)", "P"):
        layouts = (from_placements([text], ONE, 2) for text in (source, target))
        got.append(_short(implied_plan(ONE, *layouts, (8, 8)), axes=False))
    assert got == wanted


@pytest.mark.parametrize(
    ("on", "row"),
    [(TWO, row) for row in _rows(TWO_AXES)] + [(THREE, row) for row in _rows(THREE_AXES)],
    ids=str,
)
def test_several_axes_imply_what_the_table_says(on: Mesh, row: tuple[str, str, str]) -> None:
    """On several axes nesting decides which axes change, and in which order."""
    source, target, wanted = row
    before, after = (from_placements(text.split(","), on, 2) for text in (source, target))
    assert _short(implied_plan(on, before, after, (8, 8))) == wanted


def _shards(on: Mesh, layout: Layout, shape: tuple[int, ...]) -> tuple[Value, list[Value]]:
    given = make_input("x", on, layout, shape, "float64")
    if given.per_device is not None:
        shards = [unpack(array) for array in given.per_device]
        return join_shards(on, layout, shards, shape), shards
    assert given.value is not None
    whole = unpack(given.value)
    return whole, cut_shards(on, layout, whole)


def _lands(
    on: Mesh, plan: RedistributionPlan, source: Layout, target: Layout, shape: tuple[int, ...]
) -> None:
    whole, shards = _shards(on, source, shape)
    got = execute_plan(on, plan, shards, shape)
    if target.partial:
        np.testing.assert_array_equal(join_shards(on, target, got, shape), whole)
        return
    for one, wanted in zip(got, cut_shards(on, target, whole), strict=True):
        np.testing.assert_array_equal(one, wanted)


def _pairs(on: Mesh, ops: tuple[str, ...], count: int | None) -> list[tuple[Layout, Layout]]:
    layouts = all_layouts(on, 2, ops)
    pairs = list(itertools.product(layouts, layouts))
    return pairs if count is None else random.Random(7).sample(pairs, count)


@pytest.mark.parametrize("shape", [(8, 8), (5, 3), (1, 8), (0, 4)], ids=str)
@pytest.mark.parametrize("planner", [implied_plan, cheapest_plan])
def test_every_plan_lands_on_its_target(planner: Planner, shape: tuple[int, ...]) -> None:
    """Executed on arrays, either plan ends with the target's shards: all of 1 axis and of 2x2."""
    for on in (ONE, TWO):
        for source, target in _pairs(on, ("sum",), None):
            _lands(on, planner(on, source, target, shape), source, target, shape)


@pytest.mark.parametrize("planner", [implied_plan, cheapest_plan])
@pytest.mark.parametrize(
    ("on", "shape"),
    [
        (THREE, (8, 8)),
        (THREE, (5, 7)),
        (mesh({"a": 2, "b": 3}), (6, 7)),
        (mesh({"a": 1, "b": 4}), (8, 8)),
    ],
    ids=str,
)  # fmt: skip
def test_a_sample_of_plans_on_larger_meshes_lands(
    planner: Planner, on: Mesh, shape: tuple[int, ...]
) -> None:
    """So do plans on three axes, uneven sizes, and axes of size 1."""
    pairs = _pairs(on, ("sum",), None)
    for source, target in random.Random(3).sample(pairs, min(300, len(pairs))):
        _lands(on, planner(on, source, target, shape), source, target, shape)


@pytest.mark.parametrize("op", ["avg", "max", "min", "product"])
@pytest.mark.parametrize("planner", [implied_plan, cheapest_plan])
def test_other_reductions_land_too(planner: Planner, op: str) -> None:
    """Pending averages, extremes and products are paid as such."""
    for source, target in _pairs(TWO, (op,), None):
        _lands(TWO, planner(TWO, source, target, (4, 4)), source, target, (4, 4))


@pytest.mark.parametrize("planner", [implied_plan, cheapest_plan])
def test_reductions_that_do_not_commute_are_paid_in_order(planner: Planner) -> None:
    """A sum due before a maximum is paid before it, whichever is asked for."""
    for first, second in itertools.permutations(("sum", "max", "min"), 2):
        for axes in (("a", "b"), ("b", "a")):
            source = Layout(((), ()), ((axes[0], first), (axes[1], second)))
            for target in (
                Layout(((), ())),
                Layout((("a",), ("b",))),
                Layout(((), ()), ((axes[1], second),)),
                Layout(((), ()), ((axes[0], first),)),
            ):
                _lands(TWO, planner(TWO, source, target, (4, 4)), source, target, (4, 4))


def test_the_cheapest_plan_is_never_dearer_than_the_implied_one() -> None:
    """Neither in bytes nor, at equal bytes, in collectives."""
    for on, count in ((TWO, None), (THREE, 400)):
        for source, target in _pairs(on, ("sum",), count):
            plans = (
                planner(on, source, target, (8, 8)) for planner in (cheapest_plan, implied_plan)
            )
            best, known = (
                (sum(cost(on, move, (8, 8)) for move in plan), len(communicating_moves(plan)))
                for plan in plans
            )
            assert best <= known


@pytest.mark.parametrize(
    ("placements", "targets", "wanted"),
    [
        (("S(0)", "S(0)"), ("R", "R"), "AGa,b"),
        (("S(0)", "S(1)"), ("S(1)", "S(0)"), "CPa,b"),
        (("P", "P"), ("R", "R"), "ARa,b"),
        (("S(0)", "S(0)"), ("S(1)", "S(1)"), "AAa,b"),
        (("P", "R"), ("S(0)", "S(1)"), "RSa"),
    ],
)
def test_cheapest_plans_that_are_known(
    placements: tuple[str, ...], targets: tuple[str, ...], wanted: str
) -> None:
    """One gather over both axes; a permute where two axes exchange their dims; and so on."""
    source, target = (from_placements(row, TWO, 2) for row in (placements, targets))
    assert _short(cheapest_plan(TWO, source, target, (8, 8))) == wanted


@pytest.mark.parametrize(
    ("kind", "source", "target", "wanted"),
    [
        ("all-gather", "S(0)", "R", 3 * 64),
        ("all-to-all", "S(0)", "S(1)", 48),
        ("reduce-scatter", "P", "S(0)", 192),
        ("all-reduce", "P", "R", 384),
    ],
)
def test_bytes_follow_from_kind_and_sizes(kind: str, source: str, target: str, wanted: int) -> None:
    """On x=4 with 8x8 float32: 256 bytes in all, 64 in a shard."""
    before, after = (from_placements([text], ONE, 2) for text in (source, target))
    plan = implied_plan(ONE, before, after, (8, 8))
    assert [move.kind for move in plan] == [kind]
    assert plan_bytes(ONE, plan, (8, 8), 4) == wanted


def test_uneven_shards_count_with_their_actual_sizes() -> None:
    """5 rows on 4 devices are 2, 2, 1 and 0: the one without any receives all 5."""
    before, after = Layout((("x",), ())), Layout(((), ()))
    assert plan_bytes(ONE, implied_plan(ONE, before, after, (5, 3)), (5, 3), 4) == 5 * 3 * 4


def test_an_axis_of_size_one_implies_nothing() -> None:
    """Splitting, gathering and reducing over one device is free."""
    on = mesh({"a": 1, "b": 4})
    for source, target in itertools.product(("R", "S(0)", "S(1)", "P"), repeat=2):
        layouts = (from_placements([text, "R"], on, 2) for text in (source, target))
        assert communicating_moves(implied_plan(on, *layouts, (8, 8))) == ()


def test_a_wrong_move_does_not_land() -> None:
    """The executor trusts no plan: gathered in the wrong order, rows are in the wrong order."""
    source, target = Layout((("a", "b"), ())), Layout(((), ()))
    wrong = (Move("all-gather", ("b", "a"), Layout((("b", "a"), ())), target),)
    with pytest.raises(AssertionError):
        _lands(TWO, wrong, source, target, (8, 8))


@pytest.mark.parametrize("planner", [implied_plan, cheapest_plan])
@pytest.mark.parametrize(
    "kinds", list(itertools.permutations(("sum", "avg", "max", "min", "product"), 2))
)
def test_mixed_reductions_can_be_owed_anew(planner: Planner, kinds: tuple[str, str]) -> None:
    """From every layout of one pending reduction to every pair of them, and back to none."""
    one, other = kinds
    for source in (
        Layout(((), ())), Layout(((), ()), (("a", "sum"),)), Layout(((), ()), (("b", "sum"),)),
        Layout(((), ()), (("a", one),)), Layout(((), ()), (("b", other),)),
        Layout((("a",), ()), (("b", "sum"),)),
    ):  # fmt: skip
        for target in (
            Layout(((), ()), (("a", one), ("b", other))),
            Layout(((), ()), (("b", one), ("a", other))),
            Layout(((), ("a",)), (("b", other),)),
        ):
            _lands(TWO, planner(TWO, source, target, (4, 4)), source, target, (4, 4))


def test_half_width_floats_are_summed_in_64_bits() -> None:
    """199 + 198 - 200 - 196 is 1, though no partial sum of it is a bfloat16."""
    addends = [np.array([x], numpy_dtype("bfloat16")) for x in (199, 198, -200, -196)]
    assert reduce_addends(addends, "sum").astype(float).tolist() == [1.0]


def test_an_operand_may_come_to_owe_what_the_other_owes() -> None:
    """P(sum) + R is P(sum) for nothing: a replicated operand is an addend and zeros."""
    owed, whole = Layout(((), ()), (("x", "sum"),)), Layout(((), ()))
    by = implied_by_op(
        ONE,
        Step("y", "add", ("p", "r")),
        ((4, 4), (4, 4)),
        (owed, whole),
        ((4, 4), owed),
        (4, 4, 4),
    )
    assert by is not None
    assert [m for plan, _, _ in by for m in communicating_moves(plan)] == []


def test_an_operand_may_pay_a_part_of_what_it_owes() -> None:
    """Of two pending sums one is paid, where the other can pass through the product."""
    x, w = Layout(((), ()), (("a", "sum"), ("b", "sum"))), Layout(((), ("b",)))
    y = Layout(((), ("b",)), (("a", "sum"),))
    by = implied_by_op(
        TWO, Step("y", "matmul", ("x", "w")), ((2, 2), (2, 64)), (x, w), ((2, 64), y), (4, 4, 4)
    )
    assert by is not None
    assert [_short(plan) for plan, _, _ in by] == ["ARb", "-", "-"]
