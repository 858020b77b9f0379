"""What is a verdict? One line: what was compared with what, how it came out, how grave, and why.

Data alone. `aspects` and `collectives` make findings; `cause_matching` compares them with the
records and the ledger.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from cases.ledger import Aspect
from suites.observation import Observation, Severity, severity_of

# The version of the lines of --verdicts. Raise it when a line changes its form or its meaning.
FORMAT = 1

Outcome = Literal["agree", "known", "divergence", "not comparable"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

# A line of one of these severities agrees, because nobody asked for another answer.
TOLERATED: tuple[Severity, ...] = ("free", "documented")

# What a line is compared with, if it is not another subject.
REFERENCE = "reference"
RECORD = "record"
REAL_RUN = "real"


class Verdict(msgspec.Struct, frozen=True):
    """One line of ``--verdicts``; no two lines have the same first five fields.

    ``step`` is the input or result judged, "y/full" for materialising y, or None for the whole
    program. ``severity`` is None where a line agrees and has nothing to tell, or is not comparable.
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
        """Whether it needs a cause: something is wrong, refused or costly."""
        return self.severity in ("wrong", "refused", "costly")

    @property
    def outcome(self) -> Outcome:
        """Its outcome before any cause is looked for."""
        if not self.comparable or self.severity == "route refused":
            return "not comparable"
        return "agree" if self.severity in (None, *TOLERATED) else "divergence"


def agree(step: str | None, aspect: Aspect, against: str = REFERENCE, why: str = "") -> Finding:
    """A finding that all is as it should be."""
    return Finding(step, aspect, against, why=why)


def differs(
    step: str | None,
    aspect: Aspect,
    observation: Observation,
    against: str = REFERENCE,
    why: str = "",
) -> Finding:
    """A finding with an observation, as grave as the observation is by itself."""
    return Finding(step, aspect, against, observation, severity_of(observation), why=why)


def not_comparable(
    step: str | None, aspect: Aspect, why: str, against: str = REFERENCE, got: str = ""
) -> Finding:
    """A finding that two things cannot be compared, and why."""
    return Finding(step, aspect, against, comparable=False, why=why, got=got)
