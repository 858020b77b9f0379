"""Do the committed records pin every exact count? A change from them is a divergence."""

from __future__ import annotations

import msgspec
import pytest

from adapters.answer import Answer, Collective, Refused
from cases.catalogue import catalogue
from cases.model import Layout
from reports.tell import recorded
from suites.judge import pinned

RELEASES = {"torch": "2.13.0", "jax": "0.10.2"}
CASES = {case.id: case for case in catalogue()}


def test_the_records_hold_every_case_of_the_catalogue() -> None:
    """Asked in the very form that the catalogue has today."""
    for case in CASES.values():
        for answer in recorded(case).values():
            assert "record" not in getattr(answer.end, "why", ""), case.id


def kept(case: str, subject: str) -> Answer:
    """What the record has."""
    return recorded(CASES[case])[subject]


def changed(answer: Answer, **fields: object) -> Answer:
    """The same answer with another y."""
    y = msgspec.structs.replace(answer["y"], **fields)
    seen = tuple(y if one.name == "y" else one for one in answer.seen)
    return msgspec.structs.replace(answer, seen=seen)


GATHER = Collective("all-gather", ("x",), 4, 64)


@pytest.mark.parametrize(
    ("fields", "aspect"),
    [
        ({"collectives": ()}, "collectives"),
        ({"collectives": (GATHER, GATHER)}, "collectives"),
        ({"collectives": (msgspec.structs.replace(GATHER, bytes=65),)}, "collectives"),
        ({"full_collectives": (GATHER,)}, "collectives"),
        ({"layout": Layout((("x",), ()))}, "layout"),
    ],
)
def test_another_count_size_or_layout_is_a_change(fields: dict[str, object], aspect: str) -> None:
    """One collective more or fewer, a byte more in its operand, another layout."""
    pin = kept("x4-s0-to-r", "torch")
    assert pinned(pin, pin) == []
    (found,) = pinned(changed(pin, **fields), pin)
    assert (found.aspect, found.verdict, found.observed) == (aspect, "divergence", "changed")


def test_a_program_s_count_is_pinned_too() -> None:
    """Where a route compiles the program as one."""
    pin = kept("x4-s0-to-r", "jax/jit")
    (found,) = pinned(msgspec.structs.replace(pin, program=()), pin)
    assert (found.step, found.aspect) == (None, "collectives")


def test_another_end_is_a_change() -> None:
    """A case that ended and is refused now."""
    pin = kept("x4-s0-to-r", "torch")
    refused = Answer(pin.question, "torch", Refused("RuntimeError", "no", "y"))
    (found,) = pinned(refused, pin)
    assert found.aspect == "global"


def test_nothing_is_pinned_without_a_record() -> None:
    """Of another release, or of a question that it does not have."""
    assert pinned(kept("x4-s0-to-r", "torch"), None) == []
