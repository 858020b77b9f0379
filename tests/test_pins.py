"""Do the committed records pin every answer? A change from them is a divergence of its own."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from adapters.answer import Answer, Collective, Hung, Observed, Refused
from cases.arrays import pack, unpack
from cases.catalogue import catalogue
from cases.ledger import CasePattern, Cause
from cases.model import Case, Layout
from reports.tell import recorded_answers
from suites.answer_differences import compare_with_record
from suites.judge import judge
from suites.observation import Changed
from suites.truth import truth

CASES = {case.id: case for case in catalogue()}


def kept(case: str, subject: str) -> Answer:
    """What the record has."""
    return recorded_answers(CASES[case])[subject]


def with_y(answer: Answer, **fields: object) -> Answer:
    """The same answer with another y."""
    y = msgspec.structs.replace(answer["y"], **fields)
    seen = tuple(y if one.name == "y" else one for one in answer.seen)
    return msgspec.structs.replace(answer, seen=seen)


def changes(case: str, answer: Answer, pin: Answer) -> list[tuple[str | None, str]]:
    """By step, in what an answer differs from its record."""
    found = compare_with_record(CASES[case], answer, pin, truth(CASES[case]))
    out = []
    for one in found:
        assert isinstance(one.observation, Changed)
        assert (one.against, one.outcome) == ("record", "divergence")
        out += [(one.step, what.what) for what in one.observation.differences]
    return out


GATHER = Collective("all-gather", ("x",), 4, 64)


def doubled(seen: Observed) -> tuple[object, ...]:
    """The value of a result, twice as large."""
    return tuple(pack(unpack(one) * 2) for one in seen.full)


def moved(seen: Observed) -> tuple[object, ...]:
    """Shards on other devices."""
    assert seen.shards is not None
    return tuple(pack(unpack(one) + 1) for one in seen.shards if one is not None)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"collectives": ()}, "collectives"),
        ({"collectives": (GATHER, GATHER)}, "collectives"),
        ({"collectives": (msgspec.structs.replace(GATHER, bytes=65),)}, "collectives"),
        ({"layout": Layout((("x",), ()))}, "layout"),
        ({"dtype": "float64"}, "shape"),
        ({"shape": (4, 16)}, "shape"),
        ({"offsets": None}, "offsets"),
        ({"offsets": ((0, 0), (1, 0), (0, 0), (0, 0))}, "offsets"),
        ({"shards": None}, "shards"),
        ({"shards": moved}, "shards"),
        ({"full": ()}, "value"),
        ({"full": doubled}, "value"),
        ({"note": "reduced"}, "note"),
        ({"disagreements": ("rank 1 says so",)}, "ranks"),
    ],
)
def test_another_field_is_a_change(fields: dict[str, object], what: str) -> None:
    """Whatever an answer shows, free or not, is what the record has."""
    pin = kept("x4-s0-to-r", "torch")
    assert changes("x4-s0-to-r", pin, pin) == []
    made = {
        name: value(pin["y"]) if isinstance(value, Callable) else value  # type: ignore[arg-type]
        for name, value in fields.items()
    }
    assert changes("x4-s0-to-r", with_y(pin, **made), pin) == [("y", what)]


def test_what_materialising_costs_is_pinned_too() -> None:
    """Under the name of the step with /full."""
    pin = kept("x4-s0-to-r", "torch")
    found = changes("x4-s0-to-r", with_y(pin, full_collectives=(GATHER,)), pin)
    assert found == [("y/full", "collectives")]


def test_a_program_s_count_is_pinned_too() -> None:
    """Where a route compiles the program as one."""
    pin = kept("x4-s0-to-r", "jax/jit")
    found = changes("x4-s0-to-r", msgspec.structs.replace(pin, program=()), pin)
    assert found == [(None, "collectives")]


def test_a_result_that_is_not_shown_is_a_change() -> None:
    """One, or all of them."""
    pin = kept("x4-s0-to-r", "torch")
    found = changes("x4-s0-to-r", msgspec.structs.replace(pin, seen=()), pin)
    assert found == [("x", "result"), ("y", "result")]


REFUSED = "a2.b2-s0.r-to-p.p"


@pytest.mark.parametrize(
    ("change", "is_change"),
    [
        (lambda end: end, False),
        (lambda end: msgspec.structs.replace(end, line="something else went wrong"), True),
        (lambda end: msgspec.structs.replace(end, error="ValueError"), True),
        (lambda end: msgspec.structs.replace(end, step="x"), True),
        (lambda end: Hung("every rank waits, and none works", "y"), True),
    ],
)
def test_another_message_type_or_step_of_a_refusal_is_a_change(
    change: Callable[[Refused], object], is_change: bool
) -> None:
    """A refusal is known by what it says, and where."""
    pin = kept(REFUSED, "torch")
    assert isinstance(pin.end, Refused)
    other = msgspec.structs.replace(pin, end=change(pin.end))
    assert bool(changes(REFUSED, other, pin)) == is_change


def test_a_message_is_held_without_what_is_chance() -> None:
    """Paths, addresses and ranks are another in every run."""
    pin = kept(REFUSED, "torch")
    assert isinstance(pin.end, Refused)
    end = msgspec.structs.replace(pin.end, line="failed on rank 3 at 0x7ffe1234")
    again = msgspec.structs.replace(pin.end, line="failed on rank 1 at 0x7ffe9999")
    recorded_one = msgspec.structs.replace(pin, end=msgspec.structs.replace(
        end, line="failed on rank <n> at <address>"))  # fmt: skip
    for one in (end, again):
        assert changes(REFUSED, msgspec.structs.replace(pin, end=one), recorded_one) == []


WRONG = Cause(
    "wrong", ("torch",), ("wrong value", "wrong shard", "ranks differ"), "It is so.",
    relation=("times a number",), cases=CasePattern(step=("redistribute",)),
)  # fmt: skip


def verdicts_of(case: Case, answer: Answer, pin: Answer) -> set[tuple[str, str, str | None]]:
    """What is said of the value of y, and of its record."""
    found = judge(case, {"torch": answer}, (WRONG,), pins={"torch": pin}).verdicts
    return {
        (v.against, v.verdict, v.ledger)
        for v in found
        if v.step == "y" and v.severity is not None and v.aspect in ("global", "record")
    }


def test_a_known_wrong_value_is_that_value_and_no_other() -> None:
    """Twice as large is in the record; three times as large has the same relation, and fails."""
    case, right = CASES["x4-s0-to-r"], kept("x4-s0-to-r", "torch")

    def times(factor: int) -> Answer:
        array = pack((unpack(right["y"].full[0]) * factor).astype(np.float32))
        return with_y(right, full=(array,), shards=(array,) * 4)

    assert verdicts_of(case, times(2), times(2)) == {("reference", "known", "wrong")}
    assert verdicts_of(case, times(3), times(2)) == {
        ("reference", "divergence", "wrong"), ("record", "divergence", None),
    }  # fmt: skip
    assert verdicts_of(case, right, times(2)) == {("record", "divergence", None)}


def test_elsewhere_the_nearest_record_is_told_and_fails_nothing() -> None:
    """What differs there is drift; what is wrong without a cause fails all the same."""
    case, right = CASES["x4-s0-to-r"], kept("x4-s0-to-r", "torch")
    other = with_y(right, layout=Layout(((), ())), note="new")
    found = judge(case, {"torch": other}, (), nearest={"torch": right}).verdicts
    (told,) = (v for v in found if v.against == "record")
    assert told.verdict == "agree"
    assert "drift" in told.why
    array = pack(unpack(right["y"].full[0]) * 2)
    wrong = with_y(right, full=(array,), shards=(array,) * 4)
    found = judge(case, {"torch": wrong}, (), nearest={"torch": right}).verdicts
    assert {v.step for v in found if v.verdict == "divergence"} == {"y"}
