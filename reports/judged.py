"""How does the catalogue come out in the committed records? Judged once, for every page.

Asks no framework. What an outcome is called here is for tables; the verdicts say more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from adapters.registry import subjects
from cases.catalogue import catalogue
from cases.ledger import LEDGER, Cause, load_ledger
from cases.model import Case
from reports.tell import recorded, releases
from suites.judge import judge
from suites.verdict import Verdict

# The routes that compute: those of shard_map only move.
ROUTES = ("torch", "jax/jit", "jax/explicit")

Outcome = Literal["sound", "wrong", "refuses", "hangs", "crashes", "unsupported"]
OUTCOMES: tuple[Outcome, ...] = (
    "sound", "wrong", "refuses", "hangs", "crashes", "unsupported",
)  # fmt: skip

_ENDS: dict[str, Outcome] = {
    "hung": "hangs", "crashed": "crashes", "refused": "refuses", "unsupported": "unsupported",
}  # fmt: skip
# Aspects in which a divergence means that a number is wrong.
_VALUES = ("soundness", "global", "gradients", "shards", "meshes")


class Judged(msgspec.Struct, frozen=True):
    """A case and its verdicts."""

    case: Case
    verdicts: tuple[Verdict, ...]

    def of(self, subject: str) -> list[Verdict]:
        """The verdicts of one subject."""
        return [verdict for verdict in self.verdicts if verdict.subject == subject]


@lru_cache(maxsize=1)
def ledger() -> tuple[Cause, ...]:
    """The project's ledger."""
    return load_ledger(LEDGER, subjects())


@lru_cache(maxsize=1)
def judged() -> tuple[Judged, ...]:
    """Every case of the catalogue, as the committed records answer it."""
    found = []
    for case in catalogue():
        found.append(Judged(case, tuple(judge(case, recorded(case), ledger()).verdicts)))
    return tuple(found)


def outcome(verdicts: Iterable[Verdict]) -> Outcome:
    """What a subject did with a case, in a word: its end first, then whether a number is wrong."""
    worst: Outcome = "sound"
    for verdict in verdicts:
        word = verdict.got.partition(" ")[0].rstrip(":")
        if verdict.aspect in ("global", "gradients") and word in _ENDS:
            return _ENDS[word]
        if verdict.verdict in ("known", "divergence") and verdict.aspect in _VALUES:
            worst = "wrong"
    return worst


def counted(cases: Sequence[Judged], subject: str) -> dict[Outcome, int]:
    """How many cases came out how, for one subject."""
    found = dict.fromkeys(OUTCOMES, 0)
    for one in cases:
        found[outcome(one.of(subject))] += 1
    return found


def size(case: Case) -> int:
    """How small a case is: devices, then elements of its inputs, then steps, in one number."""
    elements = sum(math.prod(given.shape) for given in case.question.inputs)
    return case.question.mesh.size * 10**9 + elements * 10**3 + len(case.question.steps)


def frameworks() -> str:
    """The releases that the records are of: ``torch 2.13.0 and jax 0.10.2``."""
    return " and ".join(f"{name} {release}" for name, release in releases().items())
