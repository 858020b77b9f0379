"""A failed case is told first cause first, with what a crash or a hang left, and a way back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from adapters.answer import Answer, Collective, Crashed, Done, End, Hung, Refused, Unsupported
from cases.arrays import pack
from cases.catalogue import catalogue
from cases.ledger import Aspect
from cases.model import Case, Layout, Tolerance
from suites.failure import failure_text
from suites.judge import Judgement
from suites.observation import (
    BrokenContract,
    Ended,
    OtherLayout,
    OtherRedistributionPlan,
    WrongLayout,
    WrongShard,
    WrongValue,
)
from suites.verdict import Finding, agree, differs, not_comparable
from suites.wording import make_verdict

PAIR: tuple[Aspect, ...] = ("record", "global")
CASE = next(case for case in catalogue() if case.id == "lesson-gather-along-tp")
EXACT = Tolerance(0.0, 0.0)


def value(factor: float = 2.0) -> WrongValue:
    """Four numbers, all of them times a factor."""
    right = np.arange(1.0, 5.0)
    return WrongValue(pack(right), pack(right * factor), None, EXACT)


def told(
    *pairs: tuple[str, Finding],
    case: Case = CASE,
    ends: Mapping[str, End] | None = None,
    cause: str | None = None,
    own: bool = False,
    command: str = "pytest suites/test_lesson.py -k lesson",
) -> list[str]:
    """The failure text of findings by subject; what is a divergence fails."""
    verdicts = [make_verdict(finding, case, subject, cause) for subject, finding in pairs]
    answers = {
        subject: Answer(case.id, subject, (ends or {}).get(subject, Done())) for subject, _ in pairs
    }
    failing = [i for i, one in enumerate(verdicts) if one.verdict == "divergence"]
    judgement = Judgement(verdicts, [finding for _, finding in pairs])
    scripts = ["lesson_torch.py", "lesson_jax.py"]
    text = failure_text(case, judgement, failing, answers, command, own=own, scripts=scripts)
    return text.splitlines()


def test_it_starts_with_what_is_wrong_and_has_both_notations_and_ends_with_commands() -> None:
    text = told(("torch", differs("y", "global", value())))
    assert text[0] == "torch: wrong value of y, 2 times the right one"
    assert text[1].startswith("case    lesson-gather-along-tp")
    assert text[2] == "mesh    dp=2, tp=2"
    assert "to [S(0), R]  =  P('dp')" in next(line for line in text if line.startswith("step"))
    again = "pytest suites/test_lesson.py -k lesson --jax=off"
    assert text[-2:] == [
        f"again   {again}",
        f"alone   {again} --repro=out; python out/lesson_torch.py",
    ]


def test_the_known_cause_is_in_the_first_line() -> None:
    text = told(("torch", differs("y", "global", value())), cause="torch-doubles")
    assert text[0].endswith("the right one (known cause: torch-doubles)")


@pytest.mark.parametrize(
    ("finding", "line"),
    [
        (differs("y", "gradients", value(4)), "wrong gradient of y, 4 times the right one"),
        (
            differs("y", "global", WrongValue(*(pack(np.array(a)) for a in ([1, 2, 4], [2, 1, 4])),
                                              None, EXACT)),
            "wrong value of y, the right elements in another order",
        ),
        (
            differs("y", "soundness", WrongShard(1, (2, 3), (3, 2))),
            "the answer contradicts itself about y: wrong shards",
        ),
        (
            differs("y", "layout", WrongLayout(Layout((("dp",),)), None)),
            "y is not in the layout asked for",
        ),
        (
            differs("y", "ending", Ended(Refused("ValueError", "no such thing", "y"))),
            "refused at y: ValueError: no such thing",
        ),
        (
            differs("y/full", "ending", Ended(Refused("ValueError", "no", "y/full"))),
            "refused while y was gathered: ValueError: no",
        ),
        (differs(None, "ending", Ended(Crashed("SIGABRT"))), "crashed: SIGABRT"),
        (
            differs("y", "ending", Ended(Hung("rank 1 raised", "y", "rank 1: ValueError: no"))),
            "hung at y: rank 1: ValueError: no",
        ),
    ],
)  # fmt: skip
def test_the_first_line_says_what_and_where(finding: Finding, line: str) -> None:
    assert told(("torch", finding))[0] == f"torch: {line}"


def test_what_is_wrong_comes_before_what_is_refused() -> None:
    """Whatever the order of the subjects and of the steps."""
    refused = differs("x", "ending", Ended(Refused("ValueError", "no", "x")))
    text = told(("jax/jit", refused), ("torch", differs("y", "global", value())))
    assert text[0].startswith("torch: wrong value of y")
    heads = [line for line in text if line.startswith(("global", "ending"))]
    assert [line.split()[0] for line in heads] == ["global", "ending"]
    assert "--jax=off" not in text[-1]


def test_the_first_step_is_told_and_what_follows_from_it_in_one_line() -> None:
    text = told(
        ("torch", differs("y", "shards", value(), against="jax/jit")),
        ("torch", differs("y", "gradients", value())),
        ("torch", differs("x", "global", value())),
        ("torch", differs("x", "soundness", value())),
    )
    assert text[0].startswith("torch: wrong value of x")
    (line,) = (line for line in text if line.startswith("after"))
    assert line == "after   in torch this follows: y (gradients, shards)"
    assert not any(line.startswith(("shards", "gradients")) for line in text)
    # Another aspect of the very same result is a line.
    (line,) = (line for line in text if line.startswith("soundness"))
    assert line.startswith("soundness   x: on every rank: 4 of 4 elements differ")


def gather(n: int) -> Collective:
    return Collective("all-gather", ("tp",), 2, n)


def test_collectives_are_one_table_with_bytes() -> None:
    reduced = Collective("all-reduce", ("tp",), 2, 8)
    plan = OtherRedistributionPlan("more", (gather(32),), (gather(32), gather(64)), (reduced,))
    text = told(("torch", differs("y", "collectives", plan)))
    assert text[0] == "torch: y moves 3 times the bytes of the implied plan"
    at = next(i for i, line in enumerate(text) if line.strip().startswith("implied"))
    rows = [" ".join(line.split()) for line in text[at : at + 3]]
    assert rows == [
        "implied 32 B all-gather(tp)",
        "cheapest 8 B all-reduce(tp)",
        "fired 96 B 2 all-gather(tp) 3 times the bytes of the implied plan",
    ]


def test_a_broken_contract_is_a_table_of_what_is_due_lacking_and_extra() -> None:
    reduced = Collective("all-reduce", ("dp",), 2, 8)
    broken = BrokenContract("fewer", (gather(32), reduced), (gather(32),), (reduced,), ())
    text = told(("torch", differs("backward", "collectives", broken)))
    assert text[0] == "torch: the backward pass lacks all-reduce(dp) of 8 B"
    rows = [line.split() for line in text if line.startswith(" " * 12)]
    assert [row[0] for row in rows] == ["due", "fired", "lacking"]


def test_the_others_are_told_and_what_is_free_in_a_line_each() -> None:
    layouts = (Layout((("dp",), ())), Layout(((), ())))
    text = told(
        ("torch", differs("y", "global", value())),
        ("jax/jit", agree("y", "global")),
        ("jax/explicit", agree("y", "global")),
        ("jax/jit", differs("y", "layout", OtherLayout(*layouts), against="torch")),
    )
    assert "others  jax/jit and jax/explicit are right" in (line.strip() for line in text)
    (line,) = (line for line in text if line.startswith("told"))
    assert line == "told    jax/jit: free: y is [R, R]  =  P(), in torch [S(0), R]  =  P('dp')"


def test_a_subject_with_one_right_line_and_one_wrong_is_not_right() -> None:
    """Its shards are those of another framework, and are not those that the case states."""
    wrong = value()
    text = told(
        ("torch", differs("y", "shards", wrong)),
        ("jax/jit", differs("y", "shards", wrong)),
        ("jax/jit", agree("y", "shards", "torch")),
    )
    assert not [line for line in text if "right" in line and "others" in line]


def test_of_a_user_s_case_it_says_who_was_not_asked() -> None:
    """A framework none of whose routes has such a thing."""
    pairs = [
        ("torch", differs("y", "global", value())),
        *((route, not_comparable(None, "ending", "no such op")) for route in
          ("jax/jit", "jax/explicit")),
    ]  # fmt: skip
    ends = {route: Unsupported("no such op") for route, _ in pairs[1:]}
    assert "told    jax was not asked: no such op" in told(*pairs, ends=ends, own=True)
    assert not any("not asked" in line for line in told(*pairs, ends=ends))


@pytest.mark.parametrize(("rank", "seen"), [(2, True), (None, False)])
def test_a_crash_tells_the_rank_found_dead_first_and_what_was_printed_last(
    rank: int | None, seen: bool
) -> None:
    """Where several ranks die of one fault, it may be any of them: no verdict holds it."""
    printed = "\n".join(f"line {n}" for n in range(30))
    end = Crashed("a rank died: SIGABRT", rank, printed)
    text = told(("torch", differs(None, "ending", Ended(end))), ends={"torch": end})
    assert ("            rank 2 was found dead first" in text) == seen
    assert [line.strip() for line in text if line.startswith("              line")] == [
        f"line {n}" for n in range(10, 30)
    ]


def test_a_hang_tells_what_was_raised_and_each_stack_once() -> None:
    end = Hung("rank 1 raised", "y", "rank 1: ValueError: no", ("in f\nin g", "", "in f\nin g\n"))
    text = "\n".join(told(("torch", differs("y", "ending", Ended(end))), ends={"torch": end}))
    assert "rank 1: ValueError: no\n            ranks 0, 2:\n" in text
    assert text.count("in f") == 1
    assert "              in f\n              in g\n            rank 1 had ended" in text


def test_the_command_gives_each_option_once() -> None:
    """A framework that is left out is not read from a record too."""
    command = "pytest suites --torch=live --jax=old.jsonl -k x"
    text = told(("torch", differs("y", "global", value())), command=command)
    assert "again   pytest suites --torch=live -k x --jax=off" in text


def test_an_aspect_without_a_place_in_the_order_comes_last() -> None:
    """So that an aspect is added without a line in the failure text."""
    record, own = (differs("y", aspect, value()) for aspect in PAIR)
    text = told(("torch", record), ("torch", own))
    assert next(line for line in text if "torch at y: wrong" in line).startswith("global ")
    assert any(line.startswith("record ") for line in text)
