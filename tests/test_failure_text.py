"""A failed case is told first cause first, with what a crash or a hang left, and a way back."""

from __future__ import annotations

import pytest

from adapters.answer import Answer, Crashed, Done, End, Hung
from cases.catalogue import catalogue
from suites.failure import report
from suites.verdict import Aspect, Verdict

CASE = next(case for case in catalogue() if case.id == "lesson-gather-along-tp")


def _bad(aspect: Aspect, step: str | None = "y") -> Verdict:
    return Verdict(CASE.id, step, aspect, "torch", "reference", "divergence", None, "[1]", "[2]")


def _told(end: End, *verdicts: Verdict) -> str:
    answer = Answer(CASE.id, "torch", end)
    return report(CASE, verdicts, {"torch": answer}, {}, "pytest suites -k lesson")


def test_it_starts_with_the_case_in_both_notations_and_ends_with_commands() -> None:
    text = _told(Done(), _bad("global")).splitlines()
    assert text[0].startswith("case    lesson-gather-along-tp")
    assert text[1] == "mesh    dp=2, tp=2"
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
    text = _told(Crashed("a rank died: SIGABRT", rank, printed), _bad("global")).splitlines()
    assert ("            rank 2 was found dead first" in text) == told
    assert [line.strip() for line in text if line.startswith("              line")] == [
        f"line {n}" for n in range(10, 30)
    ]


def test_a_hang_tells_what_was_raised_and_where_each_rank_stood() -> None:
    end = Hung("rank 1 raised", "y", "rank 1: ValueError: no", ("in f\nin g", ""))
    text = _told(end, _bad("global"))
    assert "rank 1: ValueError: no\n            stack of rank 0:\n" in text
    assert "              in f\n              in g\n            rank 1 had ended" in text
