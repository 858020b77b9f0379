"""What is a verdict? One line: what was held against what, how it came out, how grave, and why.

Data alone. How findings are reached is in `aspects` and `collectives`, what the records and the
ledger make of them in `cause_matching`.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from cases.ledger import Aspect
from suites.observation import Observation, Severity, severity_of

# The version of the lines of --verdicts. A line that changes its form or its meaning raises it.
FORMAT = 1

Outcome = Literal["agree", "known", "divergence", "not comparable"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

# These are told on a line that agrees: nobody asked for another answer.
TOLERATED: tuple[Severity, ...] = ("free", "documented")

# What a line is held against that no other framework answers.
REFERENCE = "reference"
RECORD = "record"
REAL_RUN = "real"


class Verdict(msgspec.Struct, frozen=True):
    """One line of ``--verdicts``; no two lines have the same first five fields.

    ``step`` is the input or result judged, "y/full" where materialising y is, or None for the
    whole program. ``severity`` is None where a line agrees without more, or nothing is comparable.
    ``ledger`` is the id of the cause. ``wanted`` and ``got`` are for people; ``why`` is a sentence
    or two.
    """

    case: str
    step: str | None
    aspect: Aspect
    subject: str
    against: str
    verdict: Outcome
    severity: Severity | None = None
    ledger: str | None = None
    wanted: str = ""
    got: str = ""
    why: str = ""


class Finding(msgspec.Struct, frozen=True):
    """What one aspect says of one input, result or program of one answer.

    ``observation``: None if all is as it should be, or if nothing is ``comparable``. ``severity``:
    that of the observation, unless the rest of the case changes it.
    """

    step: str | None
    aspect: Aspect
    against: str = REFERENCE
    observation: Observation | None = None
    severity: Severity | None = None
    comparable: bool = True
    why: str = ""
    got: str = ""

    @property
    def bad(self) -> bool:
        """Whether a cause is wanted: something is wrong, refused or costly."""
        return self.severity in ("wrong", "refused", "costly")

    @property
    def outcome(self) -> Outcome:
        """How it comes out, as long as no cause explains it."""
        if not self.comparable or self.severity == "route refused":
            return "not comparable"
        return "agree" if self.severity in (None, *TOLERATED) else "divergence"


def agree(step: str | None, aspect: Aspect, against: str = REFERENCE, why: str = "") -> Finding:
    """Nothing to report."""
    return Finding(step, aspect, against, why=why)


def differs(
    step: str | None,
    aspect: Aspect,
    observation: Observation,
    against: str = REFERENCE,
    why: str = "",
) -> Finding:
    """Something to report, as grave as it is by itself."""
    return Finding(step, aspect, against, observation, severity_of(observation), why=why)


def not_comparable(
    step: str | None, aspect: Aspect, why: str, against: str = REFERENCE, got: str = ""
) -> Finding:
    """Two things that cannot be held against one another, and the reason."""
    return Finding(step, aspect, against, comparable=False, why=why, got=got)
