"""What is wrong, in the one line that pytest's short summary shows?

Subject first, then what is wrong, the step and the known cause. A framework's own message comes
last, since a narrow terminal may cut it off. Writes text; decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from adapters.answer import Answer, Crashed, Hung, Observed, Refused
from adapters.registry import framework_of
from cases.arrays import pack, unpack
from cases.layout import index_ranges
from cases.model import Case, Layout
from cases.ops.op import widen
from suites import observation as seen_as
from suites.array_difference import difference, tolerance_of_shard
from suites.cause_matching import ending_message, relations_of
from suites.observation import Ended, Observation, WrongValue
from suites.tensors import FULL, mesh_of, result_name
from suites.truth import truth
from suites.verdict import RECORD, Finding, Verdict
from suites.wording import format_counts, format_factor, format_operand_bytes

# The longest headline, which a message of a framework may fill up, and the longest such message.
_MAX_LENGTH = 105
_MAX_MESSAGE = 60

_RELATION_TEXTS = {
    "NaN": "NaN where it should not be",
    "one addend": "one device's addend alone",
    "operand unchanged": "its operand unchanged",
    "zeros": "zero where it should not be",
    "elements permuted": "the right elements in another order",
}


def headline(case: Case, verdict: Verdict, finding: Finding, answers: Mapping[str, Answer]) -> str:
    """The first line of a failure text."""
    answer = answers.get(verdict.subject)
    what, more = _describe(case, verdict, finding, answer)
    cause = f" (known cause: {verdict.ledger})" if verdict.ledger else ""
    first = f"{verdict.subject}: {what}{cause}"
    return f"{first}: {_shorten(more, _MAX_LENGTH - len(first))}" if more else first


def _shorten(text: str, most: int) -> str:
    """A text of at most so many characters, and of at least one word."""
    if len(text) <= most:
        return text
    return f"{text[: max(most, 0)].rpartition(' ')[0] or text.partition(' ')[0]} …"


def _describe(
    case: Case, verdict: Verdict, finding: Finding, answer: Answer | None
) -> tuple[str, str]:
    """What is wrong, with the step; and the part that may be cut off."""
    observed, at = finding.observation, _step_name(finding)
    if verdict.against == RECORD:
        first = observed.differences[0] if isinstance(observed, seen_as.Changed) else None
        return f"{at} is not as in its record", first.what if first else ""
    match observed:
        case Ended(end):
            return _describe_ending(end, verdict.step, observed)
        case WrongValue():
            return _describe_wrong_value(case, verdict, finding, observed, answer), ""
        case None:
            return f"{_ASPECTS.get(verdict.aspect, f'{verdict.aspect} is wrong')} of {at}", ""
    if verdict.aspect == "soundness":
        return f"the answer contradicts itself about {at}: {_KINDS[type(observed)]}", ""
    if verdict.aspect == "meshes" and isinstance(observed, seen_as.WrongOffset):
        return f"wrong coordinate in mesh {at}", ""
    if verdict.aspect == "meshes":
        return f"{_KINDS[type(observed)]} {at}", ""
    return _describe_observation(observed, at, case, finding), ""


def _step_name(finding: Finding) -> str:
    """A step as the headline names it: "y", "the materialised y", or "the whole program"."""
    if finding.step is None:
        return "the whole program"
    if finding.step.endswith(FULL):
        return f"the materialised {result_name(finding.step)}"
    return finding.step


def _describe_ending(
    end: Refused | Hung | Crashed, step: str | None, observed: Ended
) -> tuple[str, str]:
    at = f" at {step}" if step else ""
    if step and step.endswith(FULL):
        at = f" while {result_name(step)} was gathered"
    word = {Refused: "refused", Hung: "hung", Crashed: "crashed"}[type(end)]
    said = ending_message(observed)
    return f"{word}{at}", _shorten(said, _MAX_MESSAGE)


def _describe_wrong_value(
    case: Case, verdict: Verdict, finding: Finding, observed: WrongValue, answer: Answer | None
) -> str:
    step = result_name(finding.step)
    if answer is not None and verdict.aspect == "global":
        for seen in answer.seen:
            if seen.name != step:
                continue
            if observed.by_shards:
                return f"{step} was made on each shard by itself, as asked, and is not the whole"
            if _has_right_shards(case, observed, seen):
                return f"wrong value of {step} when it is gathered; its shards are right"
    noun = "gradient" if verdict.aspect == "gradients" else "value"
    if verdict.aspect == "soundness":
        return f"the answer contradicts itself about {step}: its shards and its value do not fit"
    related = ""
    if answer is not None:
        right = truth(case, framework_of(verdict.subject))
        related = _describe_relation(observed, relations_of(case, answer, finding, right))
    return f"wrong {noun} of {_step_name(finding)}{f', {related}' if related else ''}"


def _has_right_shards(case: Case, observed: WrongValue, seen: Observed) -> bool:
    """Whether shards are the slices of the right value, so that gathering them is at fault."""
    layout, mesh = seen.layout, mesh_of(case, seen.name)
    shards = [one for one in seen.shards or () if one is not None]
    wanted = observed.wanted
    if not isinstance(layout, Layout) or layout.partial or layout.ndim != len(wanted.shape):
        return False
    if len(shards) < mesh.size or not any(layout.dims):
        return False
    value, allowed = unpack(wanted), observed.allowed
    return all(
        difference(
            pack(value[tuple(slice(*span) for span in spans)]),
            got,
            tolerance_of_shard(allowed, spans),
        )
        is None
        for got, spans in zip(shards, index_ranges(mesh, layout, wanted.shape))
    )


def _describe_relation(observed: WrongValue, holding: frozenset[str]) -> str:
    for relation, text in _RELATION_TEXTS.items():
        if relation in holding:
            return text
    if "times a number" in holding:
        right, ours = (
            np.asarray(widen(unpack(one))).ravel() for one in (observed.wanted, observed.got)
        )
        at = int(np.flatnonzero(right)[0])
        return f"{complex(ours[at] / right[at]).real:.4g} times the right one"
    return ""


_ASPECTS = {
    "global": "wrong value", "gradients": "wrong gradient", "shards": "wrong shards",
    "layout": "another layout", "collectives": "other collectives", "meshes": "wrong mesh",
    "soundness": "contradictions", "effects": "counters that disagree",
}  # fmt: skip

_KINDS: dict[type, str] = {
    seen_as.WrongDtype: "wrong dtype",
    seen_as.WrongShape: "wrong shape",
    seen_as.WrongShard: "wrong shards",
    seen_as.WrongOffset: "wrong offsets",
    seen_as.WrongLayout: "wrong layout",
    seen_as.WrongMesh: "wrong devices in mesh",
    seen_as.NotRefused: "no refusal of mesh",
    seen_as.RanksDiffer: "ranks differ",
    seen_as.Missing: "something is missing",
    seen_as.CountersDisagree: "counters disagree",
    seen_as.DryRunDiffers: "dry run differs",
}


def _describe_observation(observed: Observation, at: str, case: Case, finding: Finding) -> str:
    match observed:
        case seen_as.WrongDtype(wanted, got):
            return f"wrong dtype of {at}, {got} for {wanted}"
        case seen_as.WrongShape(wanted, got):
            return f"wrong shape of {at}, {list(got)} for {list(wanted)}"
        case seen_as.WrongShard(position):
            return f"wrong shard of {at} on device {_device(case, finding, position)}"
        case seen_as.WrongOffset(position):
            return f"wrong offset of {at} on device {_device(case, finding, position)}"
        case seen_as.WrongLayout():
            stated = result_name(finding.step) in case.expectation.layouts
            return f"{at} is not in the layout {'that the case states' if stated else 'asked for'}"
        case seen_as.OtherLayout():
            return f"{at} is in another layout"
        case seen_as.RanksDiffer():
            return f"ranks differ about {at}"
        case seen_as.OtherRedistributionPlan(_, implied, fired):
            return f"{at} moves {format_factor(fired, implied)} the implied plan"
        case seen_as.BrokenContract(_, implied, fired, lacking, extra):
            if lacking:
                return f"the {at} pass lacks {format_operand_bytes(lacking)}"
            if extra:
                return f"the {at} pass has, beyond its parallel plan, {format_operand_bytes(extra)}"
            return f"the {at} pass moves {format_factor(fired, implied)} its parallel plan"
        case seen_as.WrongCount(counts):
            return f"other collectives at {at}, wanted {format_counts(counts)}"
        case seen_as.TooMany(enough):
            return f"too many collectives at {at}, {format_counts(enough)} suffice"
        case seen_as.CountersDisagree():
            return f"the collectives counted at {at} cannot be what happened"
        case seen_as.Missing(field):
            return f"{at} lacks its {field}"
        case seen_as.DryRunDiffers():
            return f"the dry run differs at {at} from the run with data"
    return f"{_KINDS.get(type(observed), 'a difference')} at {at}"


def _device(case: Case, finding: Finding, position: int) -> int:
    return mesh_of(case, result_name(finding.step)).devices[position]
