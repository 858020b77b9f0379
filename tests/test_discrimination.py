"""Would the catalogue notice a mistake? Every seeded mistake, in every case, with no framework."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

import pytest

from adapters.answer import Answer
from cases.catalogue import FAMILIES, family
from cases.model import Case
from suites import discrimination, plan_mistakes, recipe_mistakes
from suites.discrimination import Mistake
from suites.judge import findings
from suites.truth import Truth, truth


def _of(case: Case) -> ModuleType:
    """Who makes answers to a question of its kind, right and wrong."""
    if case.question.recipe is not None:
        return recipe_mistakes
    return plan_mistakes if case.question.mode == "plan" else discrimination


def right_answer(case: Case, right: Truth) -> Answer:
    """That of a framework that does exactly what is implied, or as a recipe's plan has it."""
    return _of(case).right_answer(case, right, "torch")


def mistakes(case: Case, answer: Answer) -> Iterable[Mistake]:
    """What can go wrong with it."""
    return _of(case).mistakes(case, answer)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_right_answer_has_no_divergence(name: str) -> None:
    """A framework that does exactly what is implied is found to be right in every case."""
    for case in family(name):
        right = truth(case)
        answer = right_answer(case, right)
        wrong = [
            f
            for f in findings(case, answer, answer, right)
            # What is implied need not be the cheapest that a source knows of.
            if f.verdict == "divergence" and f.observed != "plan: more than suffices"
        ]
        assert wrong == [], case.id


@pytest.mark.parametrize("name", FAMILIES)
def test_every_mistake_that_differs_shows_in_its_aspect(name: str) -> None:
    """Axes swapped, ranks permuted, a stale shard, a collective too many: each is a divergence."""
    missed = [
        (case.id, wrong) for case in family(name) for wrong, noticed in _tried(case) if not noticed
    ]
    assert missed == []


@pytest.mark.parametrize("name", FAMILIES)
def test_a_case_can_notice_a_mistake_or_says_why_not(name: str) -> None:
    """``insensitive`` is given where, and only where, no mistake in a value can be seeded."""
    for case in family(name):
        right = truth(case)
        seeded = [
            m for m in mistakes(case, right_answer(case, right)) if "collectives" not in m.aspects
        ]
        assert bool(seeded) != bool(case.insensitive), case.id


def _tried(case: Case) -> list[tuple[str, bool]]:
    right = truth(case)
    tried = []
    for mistake in mistakes(case, right_answer(case, right)):
        found = findings(case, mistake.answer, mistake.answer, right)
        hit = any(f.verdict == "divergence" and f.aspect in mistake.aspects for f in found)
        tried.append((mistake.name, hit))
    return tried
