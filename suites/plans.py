"""What is judged of a plan, which has no data? Shapes, layouts, sizes of shards; mode real's word.

Each function stands for one of `aspects` that looks at values. `agreement` holds a plan against
what the same framework did with data. None knows the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from adapters.answer import (
    Answer,
    Collective,
    Crashed,
    Done,
    Hung,
    Observed,
    Refused,
    Unsupported,
    ending,
)
from cases.layout import largest
from cases.model import Case, Layout
from suites.aspects import mesh_of, missing, said, value_aspect
from suites.collectives import say
from suites.truth import Truth
from suites.verdict import Finding, agree, not_comparable

NO_DATA = "a plan has no data"

# How mode real ended where a plan, which is one rank's and has no values, cannot: the reason.
BEYOND = {
    Hung: "with data it hangs: one rank alone waits for nobody",
    Crashed: "with data it crashes: a plan computes nothing",
}


def soundness(case: Case, answer: Answer, right: Truth) -> list[Finding]:
    """Is the largest shard of the shape that the reported layout implies?"""
    findings = [
        Finding(None, "soundness", "reference", "divergence", "counters disagree",
                "counters that agree", one)
        for one in answer.complaints
    ]  # fmt: skip
    for seen in answer.seen:
        mesh = mesh_of(case, seen.name)
        if not isinstance(seen.layout, Layout) or seen.local is None:
            why = "no layout reported" if seen.layout is None else "shards of several shapes"
            if seen.layout is not None and not isinstance(seen.layout, Layout):
                why = "a layout of its own kind"
            findings.append(not_comparable(seen.name, "soundness", why))
            continue
        whole = largest(mesh, seen.layout, seen.shape)
        if seen.local == whole:
            findings.append(agree(seen.name, "soundness"))
        else:
            wanted = f"local shape {list(whole)} under {said(seen.layout, mesh)}"
            findings.append(
                Finding(seen.name, "soundness", "reference", "divergence", "wrong shard", wanted,
                        str(list(seen.local)), "the answer contradicts itself")
            )  # fmt: skip
    return findings + missing(case, answer, "soundness")


def global_(case: Case, answer: Answer, right: Truth) -> list[Finding]:
    """Are global shape and dtype right? Of values a plan says nothing."""
    findings = missing(case, answer, "global")
    for seen in answer.seen:
        typed, aspect = right.typed.get(seen.name), value_aspect(case, seen.name)
        # Of what is no DTensor, torch shows the shape of a shard.
        if typed is None or (seen.layout is None and seen.local == seen.shape):
            findings.append(not_comparable(seen.name, aspect, NO_DATA))
            continue
        got, wanted = _typed(seen.dtype, seen.shape), _typed(typed.dtype, typed.shape)
        if got == wanted:
            findings.append(not_comparable(seen.name, aspect, NO_DATA))
        else:
            findings.append(
                Finding(seen.name, aspect, "reference", "divergence", "wrong value", wanted, got)
            )
    return findings


def shards(
    case: Case, ours: Answer, theirs: Answer, doubt: frozenset[str | None] = frozenset()
) -> list[Finding]:
    """Are the largest shards of two subjects of one shape where their layouts are one?

    ``doubt`` names where ``theirs``, which is held against, is wrong itself.
    """
    findings = missing(case, ours, "shards", theirs.subject)
    others = {seen.name: seen for seen in theirs.seen}
    for seen in ours.seen:
        other = others.get(seen.name)
        if other is None:
            findings.append(not_comparable(seen.name, "shards", ending(theirs.end), theirs.subject))
        elif seen.name in doubt:
            why = f"{theirs.subject} is itself wrong here"
            findings.append(not_comparable(seen.name, "shards", why, theirs.subject))
        elif seen.layout is None or seen.layout != other.layout or seen.shape != other.shape:
            findings.append(not_comparable(seen.name, "shards", "layouts differ", theirs.subject))
        elif seen.local is None or other.local is None:
            findings.append(not_comparable(seen.name, "shards", "no shards shown", theirs.subject))
        elif seen.local == other.local:
            findings.append(agree(seen.name, "shards", theirs.subject))
        else:
            findings.append(
                Finding(seen.name, "shards", theirs.subject, "divergence", "wrong shard",
                        f"local shape {list(other.local)}", str(list(seen.local)))
            )  # fmt: skip
    return findings


def reached(answer: Answer, real: Answer | None) -> Answer:
    """A plan's answer without what data never gets to.

    Where the framework refuses before, with data; and nothing where it hangs or crashes.
    """
    if real is None or not isinstance(real.end, Refused | Hung | Crashed):
        return answer
    names = {seen.name for seen in real.seen}
    kept = tuple(seen for seen in answer.seen if seen.name in names)
    return msgspec.structs.replace(answer, seen=kept)


def doubtful(case: Case, answer: Answer, right: Truth) -> frozenset[str | None]:
    """The inputs and results of a plan that are wrong by themselves."""
    found = soundness(case, answer, right) + global_(case, answer, right)
    return frozenset(finding.step for finding in found if finding.verdict == "divergence")


def left_to_data(found: list[Finding], real: Answer | None) -> list[Finding]:
    """Findings, without those on a shape that is the very same with data: it is judged there.

    With data more is seen of it, and it may go by another name: ranks that differ, say.
    """
    held: dict[str | None, set[str]] = {}
    for seen in () if real is None else real.seen:
        held[seen.name] = {_typed(seen.dtype, seen.shape), str(list(_first(seen) or ()))}
    return [
        not_comparable(one.step, one.aspect, "as with data, where it is judged", got=one.got)
        if one.observed in ("wrong shard", "wrong value")
        and one.against == "reference"
        and one.got in held.get(one.step, ())
        else one
        for one in found
    ]


def _typed(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype}{list(shape)}"


def _first(seen: Observed) -> tuple[int, ...] | None:
    """The shape of the first shard, which is a plan's too."""
    if seen.shards is None or seen.shards[0] is None:
        return None
    return seen.shards[0].shape


def agreement(answer: Answer, real: Answer | None) -> list[Finding]:
    """Does a plan say what the same release did with data? One finding, or one per difference.

    ``real``: what its committed record holds, None if nothing. Held are how it ended, and of
    every result global shape, dtype, layout, the first shard's shape, and collectives with their
    bytes, forward and backward apart.
    """
    if real is None or isinstance(real.end, Unsupported):
        return []
    if isinstance(answer.end, Unsupported):
        return [not_comparable(None, "plan", answer.end.why, "real", got=ending(answer.end))]
    if type(real.end) in BEYOND and type(answer.end) is not type(real.end):
        return [not_comparable(None, "plan", BEYOND[type(real.end)], "real", got=ending(real.end))]
    found = []
    ends = [_end(one) for one in (real, answer)]
    if ends[0] != ends[1]:
        steps = (getattr(one.end, "step", "") for one in (real, answer))
        step = next(filter(None, steps), None)
        found.append(_differs(step, "the end", ending(real.end), ending(answer.end)))
    if isinstance(real.end, Done) and isinstance(answer.end, Done):
        if real.program != answer.program:
            texts = (_said(one.program) for one in (real, answer))
            found.append(_differs(None, "collectives", *texts))
        ours = {seen.name for seen in answer.seen}
        found += [
            _differs(seen.name, "what is seen", "it", "nothing")
            for seen in real.seen
            # The unsharded step of a recipe has values and nothing else.
            if seen.name not in ours and not seen.name.startswith("plain/")
        ]
    before = {seen.name: seen for seen in real.seen}
    for seen in answer.seen:
        if seen.name in before:
            found += _one(seen, before[seen.name])
    return found or [agree(None, "plan", "real")]


def _end(answer: Answer) -> tuple[Any, ...]:
    end = answer.end
    # The words are not held: with no data, JAX's own check of sizes is another.
    return type(end), getattr(end, "error", ""), getattr(end, "step", "")


def _one(seen: Observed, real: Observed) -> list[Finding]:
    looks = (
        ("the global shape", *(_typed(one.dtype, one.shape) for one in (real, seen))),
        ("the layout", _layout(real), _layout(seen)),
        ("collectives", _said(real.collectives), _said(seen.collectives)),
        # What is said with data alone, such as that a result is still on its way, a plan has not.
        ("the note", real.note if seen.note else "", seen.note),
    )
    found = [_differs(seen.name, *look) for look in looks if look[1] != look[2]]
    local = _first(real)
    if local is not None and seen.local is not None and local != seen.local:
        texts = str(list(local)), str(list(seen.local))
        found.append(_differs(seen.name, "the local shape", *texts))
    fulls = _said(real.full_collectives), _said(seen.full_collectives)
    if fulls[0] != fulls[1]:
        found.append(_differs(f"{seen.name}/full", "collectives", *fulls))
    return found


def _layout(seen: Observed) -> str:
    if isinstance(seen.layout, Layout):
        return f"dims {seen.layout.dims}, partial {seen.layout.partial}"
    return "none" if seen.layout is None else seen.layout.text


def _said(fired: Sequence[Collective] | None) -> str:
    """Collectives with all that is held of them, in order."""
    if fired is None:
        return "not counted"
    told = (
        f"{say([one])} of {one.bytes} B in groups of {one.group}, {one.pass_}"
        f"{', in a loop' if one.in_loop else ''}"
        for one in fired
    )
    return "; ".join(told) or "none"


def _differs(step: str | None, what: str, real: str, plan: str) -> Finding:
    return Finding(
        step, "plan", "real", "divergence", f"differs: {what}", real, plan,
        "plan and real mode differ",
    )  # fmt: skip
