"""Are pending sums that come out wrong told apart, and do a case's facts say what they mean?"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from adapters.answer import Answer, Done, Observed
from adapters.registry import subjects
from cases.arrays import pack
from cases.catalogue import catalogue
from cases.facts import facts
from cases.ledger import LEDGER, load_ledger
from cases.model import Case
from suites.judge import judge

LEDGERS = load_ledger(LEDGER, subjects())


@cache
def cases() -> dict[str, Case]:
    return {case.id: case for case in catalogue()}


def causes(case: Case, shards: list[NDArray[np.float32]], full: NDArray[np.float32]) -> set[str]:
    """The causes that explain an explicit answer which holds these shards of its result."""
    step = case.question.steps[-1]
    packed = tuple(map(pack, shards))
    seen = Observed(step.result, "float32", full.shape, step.to, packed, full=(pack(full),))
    answer = Answer(case.question.id, "jax/explicit", Done(), (seen,))
    found = judge(case, {answer.subject: answer}, LEDGERS)
    return {one.cause.id for one in found.firsts.values() if one.cause}


def value(case: Case) -> NDArray[np.float32]:
    given = case.question.inputs[0].value
    assert given is not None
    return np.frombuffer(given.data, np.float32).reshape(given.shape)


def test_one_addend_is_told_where_it_is_split_over_another_axis() -> None:
    """The addend of the first row of devices is that of no single device."""
    case = cases()["a2.b2-s0.r-to-s0.p"]
    right = value(case)
    halves = np.split(right, 2)
    apart = [half + number for half in halves for number in (1, -1)]
    got = np.concatenate([half + 1 for half in halves])
    assert causes(case, apart, got) == {"jax-explicit-treats-pending-sum-as-replicated"}


def test_replicas_of_an_addend_that_differ_are_not_taken_for_a_lost_sum() -> None:
    """Devices along an axis over which nothing is pending hold different things."""
    case = cases()["a2.b2-r.r-to-r.p"]
    right = value(case)
    zero = np.zeros_like(right)
    wanted = {"jax-explicit-reshard-to-pending-sum-skips-gather"}
    assert causes(case, [right, zero, right + 1, zero], right) == wanted


def test_a_sum_that_is_off_by_something_else_has_no_cause() -> None:
    case = cases()["a2.b2-r.r-to-r.p"]
    right = value(case)
    zero = np.zeros_like(right)
    assert causes(case, [right, zero, right, zero], right + 3 * np.eye(8, dtype="f4")) == set()


@pytest.mark.parametrize(
    ("id", "several", "draws"),
    [
        ("move-to-another-view", True, False),
        ("two-meshes.add", True, False),
        ("x4-s0-to-r", False, False),
        ("whole-a2.b2-s0.s1", False, True),
    ],
)
def test_meshes_and_random_numbers_are_facts(id: str, several: bool, draws: bool) -> None:
    fact = facts(cases()[id])
    assert (fact.several_meshes, fact.random) == (several, draws)


def test_a_sum_that_a_case_says_is_pending_is_a_fact() -> None:
    assert facts(cases()["lesson-matmul-s1-by-s0"]).pending == {"sum"}
