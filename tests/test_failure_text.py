"""A failed case is told first cause first, with what a crash or a hang left, and a way back."""

from __future__ import annotations

import pytest

from adapters.answer import Answer, Crashed, Done, End, Hung
from cases.catalogue import catalogue
from cases.ledger import Aspect
from suites.failure import report
from suites.judge import Judgement
from suites.verdict import Finding, Verdict

CASE = next(case for case in catalogue() if case.id == "lesson-gather-along-tp")


def _bad(aspect: Aspect, step: str | None = "y") -> Verdict:
    return Verdict(
        CASE.id, step, aspect, "torch", "reference", "divergence", "wrong", None, "[1]", "[2]"
    )


def _told(end: End, *verdicts: Verdict) -> str:
    answer = Answer(CASE.id, "torch", end)
    findings = [Finding(one.step, one.aspect, severity="wrong") for one in verdicts]
    judgement = Judgement(list(verdicts), findings)
    failing = range(len(verdicts))
    return report(CASE, judgement, failing, {"torch": answer}, "pytest suites -k lesson")


def test_it_starts_with_what_is_wrong_and_has_both_notations_and_ends_with_commands() -> None:
    text = _told(Done(), _bad("global")).splitlines()
    assert text[0] == "torch: wrong value at y"
    assert text[1].startswith("case    lesson-gather-along-tp")
    assert text[2] == "mesh    dp=2, tp=2"
    assert "to [S(0), R]  =  P('dp')" in next(line for line in text if line.startswith("step"))
    assert text[-3:] == [
        "again   pytest suites -k lesson",
        "torch   pytest suites -k lesson --jax=off",
        "alone   pytest suites -k lesson --repro=out/",
    ]


def test_the_first_step_that_is_wrong_is_told_first() -> None:
    text = _told(Done(), _bad("collectives", None), _bad("layout", "y"), _bad("global", "x"))
    places = [text.index(f"    at {step}\n") for step in ("the program", "x", "y")]
    assert places == sorted(places)


@pytest.mark.parametrize(("rank", "told"), [(2, True), (None, False)])
def test_a_crash_tells_the_rank_found_dead_first_and_what_was_printed_last(
    rank: int | None, told: bool
) -> None:
    """Where several ranks die of one fault, it may be any of them: no verdict holds it."""
    printed = "\n".join(f"line {n}" for n in range(30))
    text = _told(Crashed("a rank died: SIGABRT", rank, printed), _bad("ending")).splitlines()
    assert ("            rank 2 was found dead first" in text) == told
    assert [line.strip() for line in text if line.startswith("              line")] == [
        f"line {n}" for n in range(10, 30)
    ]


def test_a_hang_tells_what_was_raised_and_where_each_rank_stood() -> None:
    end = Hung("rank 1 raised", "y", "rank 1: ValueError: no", ("in f\nin g", ""))
    text = _told(end, _bad("ending"))
    assert "rank 1: ValueError: no\n            stack of rank 0:\n" in text
    assert "              in f\n              in g\n            rank 1 had ended" in text
