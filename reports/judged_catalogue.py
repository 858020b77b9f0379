"""How does every case of the catalogue come out, by the committed records? For the pages.

The catalogue is judged once. An outcome is one word for tables; the verdicts say more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal, get_args

import msgspec

from adapters.answer import Answer, Crashed, Done, End, Hung, Refused, Unsupported
from adapters.protocol import Promises
from adapters.registry import choosing_subjects, subjects
from cases.catalogue import catalogue
from cases.ledger import LEDGER, Aspect, Cause, load_ledger
from cases.model import Case
from reports.tell import recorded_answers, recorded_promises, recorded_releases
from suites.judge import judge
from suites.observation import Ended
from suites.verdict import Finding, Verdict

# The routes that compute. Those of shard_map only execute redistribution plans.
ROUTES = choosing_subjects()

Outcome = Literal["sound", "documented", "wrong", "refuses", "hangs", "crashes", "unsupported"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
# The outcomes that give a user a wrong value, or nothing at all.
BAD: tuple[Outcome, ...] = ("wrong", "hangs", "crashes")

# The aspects of a result itself, without its collectives.
_RESULTS: tuple[Aspect, ...] = (
    "soundness", "global", "gradients", "shards", "layout", "meshes",
)  # fmt: skip


class JudgedCase(msgspec.Struct, frozen=True):
    """A case, its verdicts, and what each subject did with it."""

    case: Case
    verdicts: tuple[Verdict, ...]
    outcomes: dict[str, Outcome]

    def of(self, subject: str) -> list[Verdict]:
        """The verdicts of one subject."""
        return [verdict for verdict in self.verdicts if verdict.subject == subject]

    def causes(self, subject: str) -> list[str]:
        """Ids of the causes of what is wrong, refused or documented, each once."""
        grave = ("wrong", "refused", "documented")
        ids = (one.ledger for one in self.of(subject) if one.severity in grave)
        return [*dict.fromkeys(id for id in ids if id)]


@lru_cache(maxsize=1)
def ledger() -> tuple[Cause, ...]:
    """The project's ledger."""
    return load_ledger(LEDGER, subjects())


@lru_cache(maxsize=1)
def judge_catalogue() -> tuple[JudgedCase, ...]:
    """Every case of the catalogue, judged by the committed records."""
    return tuple(
        judge_case(case, recorded_answers(case), recorded_promises()) for case in catalogue()
    )


def judge_case(case: Case, answers: Mapping[str, Answer], promised: Promises) -> JudgedCase:
    """How a case comes out. Answers and promises are given by subject."""
    judgement = judge(case, answers, ledger(), promises=promised)
    found: dict[str, list[Finding]] = {subject: [] for subject in answers}
    for verdict, finding in zip(judgement.verdicts, judgement.findings, strict=True):
        found[verdict.subject].append(finding)
    outcomes = {subject: outcome_of(own) for subject, own in found.items()}
    return JudgedCase(case, tuple(judgement.verdicts), outcomes)


def outcome_of(found: Iterable[Finding]) -> Outcome:
    """What a subject did with a case: how it ended, else whether it is right."""
    worst: Outcome = "sound"
    for one in found:
        if one.aspect == "ending":
            # An end that cannot be compared means that there is no form for the case.
            if not one.comparable:
                return "unsupported"
            if isinstance(one.observation, Ended):
                return end_word(one.observation.end)
        elif one.aspect in _RESULTS:
            if one.severity == "wrong":
                worst = "wrong"
            elif one.severity == "documented" and worst == "sound":
                worst = "documented"
    return worst


def end_word(end: End) -> Outcome:
    """How an answer ended; "sound" if it finished."""
    match end:
        case Done():
            return "sound"
        case Refused():
            return "refuses"
        case Hung():
            return "hangs"
        case Crashed():
            return "crashes"
        case Unsupported():
            return "unsupported"


def count_outcomes(cases: Sequence[JudgedCase], subject: str) -> dict[Outcome, int]:
    """How many cases have each outcome, for one subject."""
    found = dict.fromkeys(OUTCOMES, 0)
    for one in cases:
        if subject in one.outcomes:
            found[one.outcomes[subject]] += 1
    return found


def format_outcomes(cases: Sequence[JudgedCase], subject: str) -> str:
    """``5 sound, 2 wrong``."""
    counts = count_outcomes(cases, subject)
    return ", ".join(f"{number} {word}" for word, number in counts.items() if number)


def cause_link(id: str) -> str:
    """A link to what docs/causes.md says of a cause, from another page in the same folder."""
    return f"[{id}](causes.md#{id.replace('.', '')})"


def format_frameworks() -> str:
    """The releases that the records are of: ``torch 2.13.0 and jax 0.10.2``."""
    return " and ".join(f"{name} {release}" for name, release in recorded_releases().items())
