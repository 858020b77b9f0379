"""Would the catalogue notice a mistake? Every seeded mistake, in every case, with no framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pytest

from adapters.answer import Answer
from adapters.reference.evaluate import Value, cut_shards, evaluate
from cases.arrays import pack
from cases.catalogue import FAMILIES, family
from cases.model import Case, Layout
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
    return dry_run_mistakes if case.question.mode == "dry run" else mistakes


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


def _last(first: Callable[..., Any]) -> Callable[..., Value]:
    """The place of the last of equals, where ``first`` gives that of the first."""

    def place(x: Value, axis: int | None = None) -> Value:
        if axis is None:
            return np.asarray(x.size - 1 - first(x.ravel()[::-1]))
        return np.asarray(x.shape[axis] - 1 - first(np.flip(x, axis), axis))

    return place


def _unstable(x: Value, axis: int = -1, descending: bool = False) -> Value:
    """An order in which equal elements come last first."""
    back = np.flip(x, axis)
    order = np.argsort(-back if descending else back, axis=axis, kind="stable")
    return np.asarray(x.shape[axis] - 1 - order)


# Wrong answers that only ties and halves show.
TIED: dict[str, Callable[..., Value]] = {
    "round": lambda x: np.floor(x + 0.5),
    "argmax": _last(np.argmax),
    "argmin": _last(np.argmin),
    "max_with_index": _last(np.argmax),
    "argsort": _unstable,
    "sign": lambda x: np.where(x >= 0, 1, -1),
    "maximum": lambda x, y: x >= y,
    "max": lambda x, axis: x == x.max(axis, keepdims=True),
}


@pytest.mark.parametrize("op", TIED)
def test_a_wrong_choice_among_equals_is_noticed(op: str) -> None:
    """Halves rounded up, the last of equals, an order that is not stable, a gradient not shared."""
    cases = [case for case in family("ties") if case.question.steps[0].op == op]
    assert cases
    for case in cases:
        first, last = case.question.steps[0], case.question.steps[-1]
        values = evaluate(case.question)
        args = [values[str(arg)] for arg in first.args]
        wrong = TIED[op](*args, **first.params).astype(values[last.result].dtype)
        assert not np.array_equal(wrong, values[last.result]), case.id
        right = truth(case)
        answer = right_answer(case, right)
        seen = []
        for one in answer.seen:
            if one.name == last.result:
                assert isinstance(one.layout, Layout)
                shards = tuple(map(pack, cut_shards(case.question.mesh, one.layout, wrong)))
                one = msgspec.structs.replace(one, full=(pack(wrong),), shards=shards)
            seen.append(one)
        answer = msgspec.structs.replace(answer, seen=tuple(seen))
        found = {f.aspect for f in findings(case, answer, None, right) if f.bad}
        assert found == {"gradients" if last.op == "grad" else "global"}, case.id


def test_distinct_values_show_no_choice_among_equals() -> None:
    """So that it takes cases with ties: what other families ask of the same ops comes out alike."""
    for case in family("operators"):
        (step,) = case.question.steps
        if step.op in ("round", "argmax", "argmin", "max_with_index", "argsort"):
            values = evaluate(case.question)
            kept = {name: one for name, one in step.params.items() if name != "keepdims"}
            wrong = TIED[step.op](values[str(step.args[0])], **kept)
            assert np.array_equal(wrong.ravel(), values[step.result].ravel()), case.id
