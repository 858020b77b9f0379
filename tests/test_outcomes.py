"""Is an outcome what the verdicts say? And what is random, or a gradient, judged as such?"""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from adapters import record
from adapters.answer import Answer, Crashed, Done, End, Hung, Refused
from adapters.reference.evaluate import evaluate
from adapters.registry import FRAMEWORKS
from cases.arrays import pack
from cases.catalogue import family
from cases.errors import BadInput
from cases.ledger import Aspect
from cases.load import load
from cases.model import Question, Tolerance
from reports.judged_catalogue import JudgedCase, end_word, outcome_of
from reports.operators import read_sweep
from suites.array_difference import tolerances
from suites.judge import check_alone, context_of_answer
from suites.observation import Ended, OtherRedistributionPlan, WrongValue
from suites.sources import record_path
from suites.tensors import value_aspect
from suites.truth import truth
from suites.verdict import Finding, agree, differs, not_comparable
from tests import planted
from tests.mistakes import right_answer

_ONE = pack(np.asarray(1.0))
_WRONG = WrongValue(_ONE, _ONE, None, Tolerance())


def wrong(aspect: Aspect) -> Finding:
    """A result that is not right."""
    return differs("r", aspect, _WRONG)


def documented(aspect: Aspect) -> Finding:
    """The same, where the framework's documentation says so."""
    return msgspec.structs.replace(wrong(aspect), severity="documented")


def ended(end: Refused | Hung | Crashed) -> Finding:
    """How an answer ended."""
    return differs("r", "ending", Ended(end))


_REFUSED = ended(Refused("ValueError", "hung: crashed", "r"))


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (
            [
                agree(None, "ending"),
                differs("r", "collectives", OtherRedistributionPlan("more", (), ())),
            ],
            "sound",
        ),
        ([wrong("collectives")], "sound"),
        ([wrong("soundness")], "wrong"),
        ([agree("r", "global"), wrong("gradients")], "wrong"),
        ([wrong("layout")], "wrong"),
        ([documented("global")], "documented"),
        ([documented("global"), wrong("shards"), documented("shards")], "wrong"),
        ([wrong("soundness"), _REFUSED], "refuses"),
        ([msgspec.structs.replace(_REFUSED, severity="route refused")], "refuses"),
        ([ended(Hung("every rank waits", "g"))], "hangs"),
        ([ended(Crashed("SIGSEGV", 0))], "crashes"),
        ([not_comparable(None, "ending", "no form"), wrong("global")], "unsupported"),
        ([not_comparable("r", "global", "no right value")], "sound"),
        ([], "sound"),
    ],
)
def test_an_outcome_is_the_end_then_the_results(found: list[Finding], wanted: str) -> None:
    """By types and severities alone: what a message says is nothing to it."""
    assert outcome_of(found) == wanted


def test_every_end_has_a_word() -> None:
    """Also the one that is none."""
    ends: list[End] = [Done(), Refused("E", "", "y"), Hung(""), Crashed("")]
    assert [end_word(end) for end in ends] == ["sound", "refuses", "hangs", "crashes"]


def test_the_outcomes_of_a_sweep_are_taken_from_its_records(tmp_path: Path) -> None:
    """Counted by kind of op and route; what was wrong by name."""
    cases = [one for one in family("operators") if "pointwise" in one.tags][:3]
    wrong_id = cases[0].id

    def hangs(answer: Answer) -> Answer:
        if answer.question != wrong_id or answer.subject != "torch":
            return answer
        return msgspec.structs.replace(answer, end=Hung("every rank waits"), seen=())

    for name in FRAMEWORKS:
        kept = planted.kept(name)
        rows: list[tuple[Question, tuple[Answer, ...]]] = [
            (one.question, tuple(map(hangs, kept.stored_answers(one.id)))) for one in cases
        ]
        record.write(record_path(tmp_path, name, planted.OLDER[name]), kept.hello(), rows)
    found = read_sweep(tmp_path)
    assert found.versions == {name: planted.kept(name).header.release for name in FRAMEWORKS}
    assert found.counts["operators"]["pointwise"]["torch"] == {"hangs": 1, "sound": 2}
    assert found.wrong["torch hangs"] == [wrong_id]
    record_path(tmp_path, "jax", planted.OLDER["jax"]).unlink()
    with pytest.raises(BadInput, match="0 records of jax"):
        read_sweep(tmp_path)


def test_a_subject_without_verdicts_has_none() -> None:
    """A case that a subject was not asked has no verdicts of it."""
    assert JudgedCase(family("operators")[0], (), {}).of("jax/jit") == []


RANDOM = """
[[case]]
id = "a"
mesh = { x = 4 }
program = [
  "u = random_uniform(shape=[4], seed=1, placements=['S(0)'])", "d = sum(u - u)",
  "e = sum(x)", "g = grad(e, x)", "h = exp(x)", "k = x - 1000000",
]
right = { d = 0 }
inputs.x = { shape = [4], placements = ["S(0)"] }
"""


def test_random_numbers_are_judged_only_where_the_case_says_what_is_right(tmp_path: Path) -> None:
    """Each framework has its own; and a gradient is judged as one."""
    path = tmp_path / "a.toml"
    path.write_text(RANDOM)
    (case,) = load(path)
    right = truth(case)
    asked = context_of_answer(case, right_answer(case, right), right, {})
    found = {f.step: f for f in check_alone(asked) if f.aspect in ("global", "gradients")}
    assert found["u"].why == "random numbers are each framework's own"
    assert (found["d"].outcome, found["d"].aspect) == ("agree", "global")
    assert (found["g"].outcome, found["g"].aspect) == ("agree", "gradients")
    assert [value_aspect(case, step) for step in ("e", "g", "g/full", None)] == [
        "global", "gradients", "gradients", "global",
    ]  # fmt: skip


def test_a_result_may_be_off_by_the_roundings_of_what_was_met_on_the_way(tmp_path: Path) -> None:
    """Whole numbers not at all; an exponential by its roundings of the largest there was."""
    path = tmp_path / "a.toml"
    path.write_text(RANDOM)
    (case,) = load(path)
    known = evaluate(case.question)
    allowed_of = tolerances(case, known)
    assert allowed_of["k"].atol == 0
    allowed = allowed_of["h"]
    assert allowed.rtol == 32 * 2.0**-23
    # What one rounding of the exponent makes of the largest exponential, and a little more.
    largest = 2.0**-23 * 3 * math.exp(3)
    assert largest <= allowed.atol < 4 * largest
    assert "exponential" in allowed.why
