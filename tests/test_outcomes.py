"""Is an outcome what the verdicts say? And what is random, or a gradient, judged as such?"""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest

from adapters.reference.values import evaluate
from cases.catalogue import family
from cases.load import load
from reports.judged import Judged, outcome, size
from reports.operators import taken
from suites.judge import alone, look
from suites.tensors import value_aspect
from suites.truth import truth
from suites.values import tolerance_for
from suites.verdict import Verdict
from tests.mistakes import right_answer


def said(aspect: str, verdict: str, got: str = "", case: str = "a") -> Verdict:
    return Verdict(case, "r", aspect, "torch", "reference", verdict, got=got)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verdicts", "wanted"),
    [
        ([said("global", "agree"), said("collectives", "divergence")], "sound"),
        ([said("soundness", "known")], "wrong"),
        ([said("gradients", "divergence", "[1 2]")], "wrong"),
        ([said("soundness", "known"), said("global", "known", "refused at r: X: y")], "refuses"),
        ([said("gradients", "known", "hung at g: every rank waits")], "hangs"),
        ([said("global", "known", "crashed: rank 0 died")], "crashes"),
        ([said("global", "not comparable", "unsupported: no form")], "unsupported"),
        ([said("layout", "known", "[R]")], "sound"),
        ([], "sound"),
    ],
)
def test_an_outcome_is_the_end_then_the_numbers(verdicts: list[Verdict], wanted: str) -> None:
    """Layouts and counts have no say in it."""
    assert outcome(verdicts) == wanted


def test_the_outcomes_of_a_sweep_are_taken_from_its_verdicts(tmp_path: Path) -> None:
    """Counted by kind of op and route; what was wrong, and what explained it, by name."""
    ids = [case.id for case in family("operators", exhaustive=True)][:3]
    rows = [
        said("global", "known", "[1]", ids[0]), said("global", "agree", "", ids[1]),
        said("layout", "known", "", ids[2]),
    ]  # fmt: skip
    rows[0] = msgspec.structs.replace(rows[0], ledger="an-entry")
    path = tmp_path / "verdicts.jsonl"
    head = msgspec.json.encode({"versions": {"torch": "9.9"}, "facts": {}})
    path.write_bytes(b"\n".join([head, *map(msgspec.json.encode, rows)]) + b"\n")
    kept = taken(path)
    assert kept.versions == {"torch": "9.9"}
    assert kept.counts["operators"]["pointwise"]["torch"] == {"wrong": 1, "sound": 2}
    assert kept.wrong == {"torch wrong": [ids[0]]}
    assert kept.ledger == ["an-entry"]


def test_the_smallest_case_has_the_fewest_devices_then_elements() -> None:
    """Of two cases the smaller is told."""
    few, many = family("operators")[0], family("contraction")[-1]
    assert size(few) < size(many)
    assert size(few) // 10**9 == few.question.mesh.size
    elements = sum(math.prod(given.shape) for given in few.question.inputs)
    assert size(few) % 10**9 // 1000 == elements
    assert Judged(few, (said("global", "agree"),)).of("jax/jit") == []


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
    asked = look(case, right_answer(case, right), right, {})
    found = {f.step: f for f in alone(asked) if f.aspect in ("global", "gradients")}
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
    assert tolerance_for(case, "k", known).atol == 0
    allowed = tolerance_for(case, "h", known)
    assert allowed.rtol == 32 * 2.0**-23
    assert allowed.atol == pytest.approx(32 * 2.0**-23 * math.exp(3))
    assert "exponential" in allowed.why
