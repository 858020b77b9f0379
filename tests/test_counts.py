"""Do counts come out as they should: equal, explained by a rule, or another plan with its name?"""

from __future__ import annotations

import itertools
from typing import get_args

import pytest

from adapters.answer import Collective, received_bytes
from adapters.reference.evaluate import cut_shards
from adapters.reference.implied_plan import implied_plan
from adapters.reference.redistribution_plan import as_collectives
from adapters.registry import ALL_REDUCE_FOR_REDUCE_SCATTER, GATHER_FOR_ALL_TO_ALL, lowerings_of
from cases.arrays import unpack
from cases.catalogue.build import make_input
from cases.model import CollectiveKind, mesh
from cases.notation import from_placements
from suites import effects
from suites.collectives import (
    MERGED_AXES,
    ONE_AXIS_AT_A_TIME,
    ImpliedCollectives,
    LoweringResult,
    compare_collectives,
    explain_by_lowerings,
    plan_kind,
)  # fmt: skip
from suites.observation import RedistributionPlanKind
from tests.plan_execution import execute_plan

TWO = mesh({"a": 2, "b": 2})
ONE = mesh({"x": 4})
KINDS: dict[str, CollectiveKind] = {
    "AG": "all-gather", "AR": "all-reduce", "RS": "reduce-scatter", "AA": "all-to-all",
    "CP": "collective-permute",
}  # fmt: skip


def fired(text: str) -> tuple[Collective, ...]:
    """Collectives in short: ``AGa ARab`` gathers over a and reduces over a and b."""
    return tuple(
        Collective(KINDS[word[:2]], tuple(word[2:]), 2 ** len(word[2:]), 64)
        for word in text.split()
    )


@pytest.mark.parametrize(
    ("subject", "counted", "wanted", "explained"),
    [
        ("torch", "AGa", "AGa", LoweringResult()),
        ("torch", "AGa AGb", "AGb AGa", LoweringResult()),
        ("torch", "AGa", "AAa", LoweringResult(rules=(GATHER_FOR_ALL_TO_ALL,))),
        ("torch", "AGa AGb", "AAa AGb", LoweringResult(rules=(GATHER_FOR_ALL_TO_ALL,))),
        ("torch", "AGa AGa", "AAa", LoweringResult(plan="gathers")),
        ("torch", "AGa AGa", "AGa", LoweringResult(plan="more")),
        ("torch", "AGa ARa", "AGa", LoweringResult(plan="more")),
        ("torch", "AGb", "AAa", LoweringResult(plan="gathers")),
        ("torch", "ARa", "RSa", LoweringResult(plan="reduces")),
        ("jax/jit", "ARa", "RSa", LoweringResult(rules=(ALL_REDUCE_FOR_REDUCE_SCATTER,))),
        ("jax/jit", "ARa ARb", "RSa RSb", LoweringResult(rules=(ALL_REDUCE_FOR_REDUCE_SCATTER,))),
        ("jax/jit", "ARab", "ARa ARb", LoweringResult(rules=(MERGED_AXES,))),
        (
            "jax/jit",
            "ARab",
            "RSa ARb",
            LoweringResult(rules=(ALL_REDUCE_FOR_REDUCE_SCATTER, MERGED_AXES)),
        ),
        ("jax/jit", "AGa", "AAa", LoweringResult(plan="gathers")),
        ("jax/jit", "CPab", "AGb", LoweringResult(plan="permutes")),
        ("jax/jit", "AAab", "AGb AAa", LoweringResult(plan="exchanges")),
        ("jax/jit", "", "AGa", LoweringResult(plan="fires nothing")),
        ("jax/jit", "AGa", "", LoweringResult(plan="fires where nothing is implied")),
        ("jax/jit", "AGa", "AGa AGb", LoweringResult(plan="fewer")),
        ("jax/jit", "ARa AGb", "RSa AAb", LoweringResult(plan="gathers, exchanges and reduces")),
        ("jax/jit", "AA", "AAa", LoweringResult(plan="over groups that are no axes")),
    ],
)
def test_counts_are_explained_or_named(
    subject: str, counted: str, wanted: str, explained: LoweringResult
) -> None:
    """Each as a person would say it who sees both lists."""
    assert (
        explain_by_lowerings(TWO, fired(counted), fired(wanted), lowerings_of(subject)) == explained
    )


def test_a_rule_never_hides_a_collective() -> None:
    """Whatever is fired beside what a rule explains makes it another plan."""
    for extra in KINDS:
        counted, wanted = fired(f"AGa {extra}b"), fired("AAa")
        assert explain_by_lowerings(TWO, counted, wanted, lowerings_of("torch")).plan


def test_every_plan_has_a_name_that_the_ledger_knows() -> None:
    """Over all pairs of lists of up to two collectives."""
    words = [kind + axes for kind in KINDS for axes in ("a", "b", "ab", "")]
    lists = ["", *words, *(" ".join(pair) for pair in itertools.combinations(words[:8], 2))]
    for counted, wanted in itertools.product(lists, lists):
        assert plan_kind(TWO, fired(counted), fired(wanted)) in get_args(RedistributionPlanKind)


def test_one_axis_after_another_is_said() -> None:
    """Equal to what is implied, where the cheapest plan has one collective over both axes."""
    both = ImpliedCollectives(fired("AGb AGa"), fired("AGab"))
    found = compare_collectives(TWO, "torch", "y", fired("AGb AGa"), both)
    assert (found.severity, found.why) == (
        None,
        f"{ONE_AXIS_AT_A_TIME.name}: {ONE_AXIS_AT_A_TIME.why}",
    )
    assert (
        compare_collectives(
            TWO, "torch", "y", fired("AGb AGa"), ImpliedCollectives(fired("AGb AGa"))
        ).why
        == ""
    )


@pytest.mark.parametrize(
    ("counted", "wanted", "severity"),
    [
        ("AGa", "AGa", None),
        ("AGa AGa", "AGa", "costly"),
        ("ARa", "", "costly"),
        ("", "AGa", "free"),
        ("CPa", "AGa", "free"),
    ],
)
def test_another_plan_is_costly_if_it_moves_more_bytes(
    counted: str, wanted: str, severity: str | None
) -> None:
    """And free if it does not."""
    found = compare_collectives(
        TWO, "jax/jit", "y", fired(counted), ImpliedCollectives(fired(wanted))
    )
    assert found.severity == severity
    assert found.outcome == ("divergence" if severity == "costly" else "agree")


def test_axes_of_size_one_do_not_count() -> None:
    """A collective over them is no collective."""
    flat = mesh({"a": 1, "b": 4})
    assert explain_by_lowerings(flat, fired("AGa"), ()) == LoweringResult()
    assert explain_by_lowerings(flat, fired("AGab"), fired("AGb")) == LoweringResult()


@pytest.mark.parametrize(
    ("kind", "wanted"), [("AG", 3 * 64), ("AA", 48), ("RS", 48), ("AR", 96), ("CP", 64)]
)
def test_bytes_received_follow_from_kind_and_group(kind: str, wanted: int) -> None:
    """64 bytes in the local operand, 4 devices in the group."""
    assert received_bytes(Collective(KINDS[kind], ("x",), 4, 64)) == wanted


@pytest.mark.parametrize(
    ("source", "target"),
    list(itertools.product(("R", "S(0)", "S(1)", "P"), ("R", "S(0)", "S(1)"))),
)
def test_the_drill(source: str, target: str) -> None:
    """Shards before and after name an effect that fits what fired, and nothing less."""
    before, after = (from_placements([text], ONE, 2) for text in (source, target))
    given = make_input("x", ONE, before, (8, 8))
    if given.per_device is not None:
        shards = [unpack(one) for one in given.per_device]
    else:
        assert given.value is not None
        shards = cut_shards(ONE, before, unpack(given.value))
    plan = implied_plan(ONE, before, after, (8, 8))
    effect = effects.effect_of(ONE, shards, execute_plan(ONE, plan, shards, (8, 8)))
    assert effect is not None
    counted = as_collectives(ONE, plan, (8, 8), 4)
    assert effects.explain_misfit(effect, counted) == ""
    assert bool(effects.explain_misfit(effect, ())) == bool(counted)


def test_an_effect_is_not_named_where_elements_repeat() -> None:
    """Zeros cannot be told from zeros."""
    given = make_input("x", ONE, from_placements(["R"], ONE, 1), (4,), "bool")
    assert given.value is not None
    shards = [unpack(given.value)] * 4
    assert effects.effect_of(ONE, shards, shards) is None


@pytest.mark.parametrize(
    ("effect", "counted", "fit"),
    [
        (effects.Effect("moved", (("a",),)), "AGa", True),
        (effects.Effect("moved", (("a",),)), "AGb", False),
        (effects.Effect("moved", (("a",),)), "ARa", False),
        (effects.Effect("moved", (("a",), ("b",))), "AGb", True),
        (effects.Effect("moved", (("a", "b"),)), "AGa AGb", True),
        (effects.Effect("moved", (("a", "b"),)), "AGa", False),
        (effects.Effect("reduced"), "ARa", True),
        (effects.Effect("reduced"), "AGa", False),
        (effects.Effect("nothing"), "", True),
    ],
)
def test_an_effect_fits_its_kind_and_axes(effect: effects.Effect, counted: str, fit: bool) -> None:
    """What moved needs a collective that moves, over axes that reach."""
    assert (effects.explain_misfit(effect, fired(counted)) == "") == fit
