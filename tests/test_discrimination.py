"""Would the catalogue notice a mistake? Every seeded mistake, in every case, with no framework."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

import pytest

from adapters.answer import Answer
from cases.catalogue import FAMILIES, family
from cases.model import Case
from suites.observation import TooMany
from suites.truth import Truth, truth
from suites.verdict import Finding
from tests import dry_run_mistakes, mistakes, recipe_mistakes
from tests.judging import findings
from tests.mistakes import Mistake


def _of(case: Case) -> ModuleType:
    """Who makes answers to a question of its kind, right and wrong."""
    if case.question.recipe is not None:
        return recipe_mistakes
    return dry_run_mistakes if case.question.mode == "plan" else mistakes


def right_answer(case: Case, right: Truth) -> Answer:
    """That of a framework that does exactly what is implied, or what a recipe's plan says."""
    return _of(case).right_answer(case, right, "torch")


def wrong_answers(case: Case, answer: Answer) -> Iterable[Mistake]:
    """What can go wrong with it."""
    return _of(case).mistakes(case, answer)


def found_of(case: Case, answer: Answer, right: Truth) -> list[Finding]:
    """All that is found of an answer by itself, and beside the right answer of another."""
    return findings(case, answer, right_answer(case, right), right)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_right_answer_has_nothing_to_tell(name: str) -> None:
    """A framework that does exactly what is implied is found to be right in every case."""
    for case in family(name):
        right = truth(case, "torch")
        wrong = [
            one
            for one in found_of(case, right_answer(case, right), right)
            # What is implied need not be the cheapest that a source knows of.
            if one.severity is not None and not isinstance(one.observation, TooMany)
        ]
        assert wrong == [], case.id


@pytest.mark.parametrize("name", FAMILIES)
def test_every_mistake_that_differs_shows_in_its_aspect(name: str) -> None:
    """Axes swapped, ranks permuted, a stale shard, a collective too many: each is told."""
    missed = [
        (case.id, wrong) for case in family(name) for wrong, noticed in _tried(case) if not noticed
    ]
    assert missed == []


@pytest.mark.parametrize("name", FAMILIES)
def test_a_case_can_notice_a_mistake_or_says_why_not(name: str) -> None:
    """``insensitive`` is given where, and only where, no mistake in a value can be seeded."""
    for case in family(name):
        right = truth(case, "torch")
        seeded = [
            one
            for one in wrong_answers(case, right_answer(case, right))
            if "collectives" not in one.aspects
        ]
        assert bool(seeded) != bool(case.insensitive), case.id


def _tried(case: Case) -> list[tuple[str, bool]]:
    right = truth(case, "torch")
    tried = []
    for mistake in wrong_answers(case, right_answer(case, right)):
        found = found_of(case, mistake.answer, right)
        hit = any(one.severity is not None and one.aspect in mistake.aspects for one in found)
        # Only a plan of fewer bytes may be free; all else that is seeded is wrong or costly.
        grave = any(one.bad for one in found) or mistake.aspects == {"collectives"}
        tried.append((mistake.name, hit and grave))
    return tried
