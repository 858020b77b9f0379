"""What is a verdict? One line: what was held against what, how it came out, and why.

Data alone; how verdicts are reached is in `aspects` and `collectives`, what the ledger makes
of them in `judge`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Aspect = Literal[
    "soundness",
    "global",
    "shards",
    "layout",
    "collectives",
    "effects",
    "gradients",
    "meshes",
    "plan",
]
Outcome = Literal["agree", "known", "divergence", "not comparable"]
OUTCOMES: tuple[Outcome, ...] = ("agree", "known", "divergence", "not comparable")

ASPECTS: tuple[Aspect, ...] = (
    "soundness", "global", "shards", "layout", "collectives", "effects", "gradients", "meshes",
    "plan",
)  # fmt: skip


class Verdict(msgspec.Struct, frozen=True):
    """One line of ``--verdicts``.

    ``step`` is the input or result judged, "y/full" where materialising y is, or None for the
    whole program. ``ledger`` is the id of the entry or rule that knows of it. ``wanted`` and
    ``got`` are for people; ``why`` is a sentence or a short list of reasons.
    """

    case: str
    step: str | None
    aspect: Aspect
    subject: str
    against: str
    verdict: Outcome
    ledger: str | None = None
    wanted: str = ""
    got: str = ""
    why: str = ""


class Finding(msgspec.Struct, frozen=True):
    """A verdict in the making: what was seen, before the ledger has its say.

    ``observed`` names the kind of divergence in the ledger's closed set of words ("wrong value",
    "refused: ValueError", "plan: permutes instead", ...), "" where nothing diverges.
    ``where``: mesh position and index of the first difference, for the failure text.
    """

    step: str | None
    aspect: Aspect
    against: str
    verdict: Outcome
    observed: str = ""
    wanted: str = ""
    got: str = ""
    why: str = ""
    where: str = ""


def agree(step: str | None, aspect: Aspect, against: str = "reference", why: str = "") -> Finding:
    """Nothing to report."""
    return Finding(step, aspect, against, "agree", why=why)


def not_comparable(
    step: str | None, aspect: Aspect, why: str, against: str = "reference", got: str = ""
) -> Finding:
    """Two things that cannot be held against one another, and the reason."""
    return Finding(step, aspect, against, "not comparable", why=why, got=got)


def said_of(finding: Finding, case: str, subject: str, ledger: str | None) -> Verdict:
    """The verdict line of a finding about a subject's answer to a case."""
    return Verdict(
        case, finding.step, finding.aspect, subject, finding.against, finding.verdict, ledger,
        finding.wanted, finding.got, finding.why,
    )  # fmt: skip
