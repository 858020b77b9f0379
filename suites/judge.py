"""What are the verdicts of a case? Asks every aspect, compares with records, and names causes.

Pure functions: a case, its answers, the ledger and records go in, verdicts come out. One judge
serves programs, recipes and dry runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from adapters.answer import Answer, Crashed, Done, Hung, Refused, Unsupported
from adapters.completeness import drop_partial_lists, find_missing_fields
from adapters.protocol import Promises
from adapters.registry import FRAMEWORKS, framework_of, only_executes_plans
from cases.facts import Facts, facts
from cases.ledger import Cause
from cases.model import Case
from suites import answer_differences, aspects, contracts, frameworks_compared
from suites.aspects import Context, make_context
from suites.cause_matching import UNEXPLAINED, Explanation, find_causes
from suites.collectives import check_collectives
from suites.effects import check_effects
from suites.observation import RanksDiffer, WrongDtype, WrongShape, WrongShard
from suites.tensors import result_name
from suites.truth import Truth, truth
from suites.verdict import RECORD, REFERENCE, Finding, Verdict, differs, not_comparable
from suites.wording import make_verdict


class Judgement(msgspec.Struct, frozen=True):
    """The verdicts of a case, with the finding that each was made of.

    ``firsts``: by index, what explains a finding that follows from no earlier one.
    """

    verdicts: list[Verdict]
    findings: list[Finding]
    firsts: dict[int, Explanation] = {}


class ExplainedFinding(msgspec.Struct, frozen=True):
    """A finding, what explains it, and whether that excuses it."""

    finding: Finding
    explained: Explanation
    known: bool


def judge(
    case: Case,
    answers: Mapping[str, Answer],
    ledger: Sequence[Cause],
    *,
    promises: Promises | None = None,
    pins: Mapping[str, Answer] | None = None,
    nearest: Mapping[str, Answer] | None = None,
    real: Mapping[str, Answer] | None = None,
    excusing: Collection[str] | None = None,
    pinned: bool = False,
) -> Judgement:
    """All verdicts on one case.

    ``answers`` and ``pins``: by subject; a pin is the recorded answer of the very same environment.
    ``nearest``: the recorded answers of the nearest release, from which a difference is told and
    fails nothing. ``promises``: by subject, the fields that its route always shows. ``real``: for a
    dry run, the recorded answers to the question with data. ``excusing``: ids of the causes that
    excuse what they explain; all if None. ``pinned``: whether each answer needs a record, so that
    an answer without one is told.
    """
    whole = answers
    if real is not None:
        answers = {name: drop_unreached(one, real.get(name)) for name, one in answers.items()}
    fact = facts(case)
    contexts, found = {}, {}
    for subject, answer in answers.items():
        right = truth(case, framework_of(subject))
        contexts[subject] = context_of_answer(case, answer, right, promises or {}, whole[subject])
        found[subject] = check_alone(contexts[subject])
    # No answer is compared with one that is wrong by itself, even where that is judged with data.
    doubt = {subject: frameworks_compared.suspect_steps(own) for subject, own in found.items()}
    for subject, own in found.items():
        if real is not None:
            own[:] = leave_to_real_run(own, real.get(subject))
        mark_refused_routes(own, [answers[one] for one in answers if _is_other_route(one, subject)])
    verdicts: list[Verdict] = []
    findings: list[Finding] = []
    firsts: dict[int, Explanation] = {}
    for subject, answer in answers.items():
        own = list(found[subject])
        for other in bases(subject, answers):
            own += frameworks_compared.compare_answers(
                contexts[subject], contexts[other], doubt[other]
            )
        if real is not None:
            own += answer_differences.compare_dry_run(case, answer, real.get(subject))
        right = contexts[subject].right
        drift = []
        if pins and subject in pins:
            drift = answer_differences.compare_with_record(case, answer, pins[subject], right)
        elif nearest and subject in nearest:
            told = answer_differences.compare_with_record(case, answer, nearest[subject], right)
            why = "this is drift from the record of the nearest release"
            own += [msgspec.structs.replace(one, severity=None, why=why) for one in told]
        elif pinned and not isinstance(answer.end, Unsupported):
            why = "no record that was named holds this question as it is now"
            own.append(not_comparable(None, "record", why, RECORD))
        moved = {result_name(one.step) for one in drift}
        if real is not None:
            # What a dry run shows differently from the record is not the fault that is known of the
            # record.
            moved |= {result_name(one.step) for one in own if one.aspect == "dry run" and one.bad}
        for one in attach_causes(contexts[subject], own, drift, ledger, fact, excusing, moved):
            if one.explained.first:
                firsts[len(verdicts)] = one.explained
            verdicts.append(verdict_line(case, subject, one))
            findings.append(one.finding)
    return Judgement(verdicts, findings, firsts)


def _is_other_route(one: str, subject: str) -> bool:
    return one != subject and framework_of(one) == framework_of(subject)


def bases(subject: str, present: Collection[str]) -> list[str]:
    """The subjects that a subject is compared with: of each earlier framework, the first route."""
    found = []
    for name, row in FRAMEWORKS.items():
        if name == framework_of(subject):
            break
        found += [one for one in row.choosing if one in present][:1]
    return found


def context_of_answer(
    case: Case, answer: Answer, right: Truth, promises: Promises, whole: Answer | None = None
) -> Context:
    """The context in which an answer is judged.

    ``whole``: everything that the answer shows, where only a part of it is judged.
    """
    answer = drop_partial_lists(case.question, answer)
    whole = answer if whole is None else drop_partial_lists(case.question, whole)
    lacking: dict[str, set[str]] = {}
    for name, field in find_missing_fields(case.question, whole, promises):
        lacking.setdefault(name, set()).add(field or "result")
    return make_context(
        case, answer, right, {name: frozenset(some) for name, some in lacking.items()}
    )


def check_alone(one: Context) -> list[Finding]:
    """The findings of an answer by itself, compared with the reference."""
    found = [aspects.check_ending(one)]
    if one.answer.apart:
        found.append(differs(None, "soundness", RanksDiffer(one.answer.apart)))
    found += aspects.check_meshes(one)
    found += aspects.check_tensors(one, aspects.TENSOR_ASPECTS)
    found += (contracts.check_contract if one.case.question.recipe else check_collectives)(one)
    return found + check_effects(one)


def mark_refused_routes(found: list[Finding], others: Sequence[Answer]) -> None:
    """Lower the severity of a refusal where another route of the same framework answers."""
    answered = any(
        isinstance(one.end, Done) and not only_executes_plans(one.subject) for one in others
    )
    for index, one in enumerate(found):
        if answered and one.aspect == "ending" and one.severity == "refused":
            found[index] = msgspec.structs.replace(one, severity="route refused")


def attach_causes(
    of: Context,
    found: Sequence[Finding],
    drift: Sequence[Finding],
    ledger: Sequence[Cause],
    fact: Facts,
    excusing: Collection[str] | None,
    moved: Collection[str] = (),
) -> list[ExplainedFinding]:
    """The findings, each with what explains it.

    ``drift``: the differences from the record. ``moved``: the results that differ from a record, so
    that no known fault excuses them.
    """
    out = []
    for one, explained in zip(
        found, find_causes(of.case, of.answer, found, ledger, fact, of.right)
    ):
        cause = explained.cause
        if cause is not None and cause.documented:
            one = msgspec.structs.replace(one, severity="documented")
            out.append(ExplainedFinding(one, explained, False))
            continue
        # What differs from the record is another fault than the one that is known.
        known = cause is not None and (excusing is None or cause.id in excusing)
        if one.aspect == "dry run":
            known = known and cause is not None and "dry run differs" in cause.observed
        else:
            known = known and result_name(one.step) not in moved
        out.append(ExplainedFinding(one, explained, known))
    return out + [ExplainedFinding(one, UNEXPLAINED, False) for one in drift]


def verdict_line(case: Case, subject: str, one: ExplainedFinding) -> Verdict:
    """The verdict line of a finding that has been explained."""
    cause = one.explained.cause
    if cause is None:
        return make_verdict(one.finding, case, subject)
    return make_verdict(one.finding, case, subject, cause.id, cause.why, one.known)


# ---- dry runs ----------------------------------------------------------------------------------


def drop_unreached(answer: Answer, real: Answer | None) -> Answer:
    """A dry run's answer, cut off at the point at which the run with data ended badly."""
    if real is None or not isinstance(real.end, Refused | Hung | Crashed):
        return answer
    names = {seen.name for seen in real.seen}
    kept = tuple(seen for seen in answer.seen if seen.name in names)
    return msgspec.structs.replace(answer, seen=kept)


def leave_to_real_run(found: Sequence[Finding], real: Answer | None) -> list[Finding]:
    """The findings, without those on a shape or dtype that is the same with data.

    Those are judged in the run with data, which shows more, so that they may have another name
    there.
    """
    held = {seen.name: seen for seen in (() if real is None else real.seen)}
    out = []
    for one in found:
        seen = held.get(result_name(one.step))
        same = False
        if seen is not None and one.against == REFERENCE:
            first = None if not seen.shards or seen.shards[0] is None else seen.shards[0].shape
            match one.observation:
                case WrongShard(_, _, got):
                    same = got == first
                case WrongDtype(_, got_dtype):
                    same = got_dtype == seen.dtype
                case WrongShape(_, got_shape):
                    same = got_shape == seen.shape
        why = "it is the same with data, where it is judged"
        out.append(not_comparable(one.step, one.aspect, why) if same else one)
    return out
