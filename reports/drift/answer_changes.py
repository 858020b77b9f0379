"""What changed in the answers from one release to the next? Two records in, an upgrade out.

Nothing in a record is left out: two answers that differ give at least one change, or a step whose
collectives one of the two cannot show. Does not know which answer is right.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import get_args

import msgspec

from adapters.answer import (
    Answer,
    Collective,
    Crashed,
    Done,
    End,
    Hung,
    Refused,
    Unsupported,
    format_end,
)
from adapters.record import Record
from cases.model import Case, CollectiveKind
from reports.drift.answer_pair import ANSWER, AnswerPair, make_change
from reports.drift.model import Change, ChangeKind, Upgrade
from reports.drift.patterns import collectives_pattern, format_collectives, message_pattern
from reports.drift.tensor_changes import NOT_SHOWN, layout_changes, layout_differs, value_changes
from suites.sources import public_release
from suites.tensors import upstream
from suites.truth import truth

_KINDS: tuple[str, ...] = get_args(CollectiveKind)
Collectives = tuple[Collective, ...]
WITH_LAYOUT = ", with another layout"


def compare_records(
    older: Record, newer: Record, cases: Mapping[str, Case], digests: Mapping[str, str]
) -> Upgrade:
    """What changed between two records of one framework.

    ``cases``: the catalogue, by id. ``digests``: those of its questions, which are slow to compute.

    Raises:
        BadInput: a line of a record is no list of answers.
    """
    changes: list[Change] = []
    apart: list[str] = []
    unstable: list[tuple[str, str]] = []
    unseen: list[tuple[str, str, str]] = []
    releases = public_release(older.header.release), public_release(newer.header.release)
    blind = find_hidden_kinds(older.header.unseen, newer.header.unseen)
    asked = sorted({*older.lines, *newer.lines})
    for id in asked:
        left, right = older.lines.get(id), newer.lines.get(id)
        if left is None or right is None or left.digest != right.digest:
            apart.append(id)
            continue
        shaky = {*left.unstable, *right.unstable}
        unstable += [(id, subject) for subject in sorted(shaky)]
        if older.line_digest(id) == newer.line_digest(id):
            continue
        case = cases.get(id)
        if case is None or digests[id] != left.digest:
            apart.append(id)
            continue
        for pair in pair_answers(case, older, newer, blind):
            if pair.newer.subject not in shaky:
                changes += find_differences(pair)
                unseen += [(id, pair.newer.subject, step) for step in find_uncountable_steps(pair)]
    return Upgrade(
        older.header.framework, *releases, tuple(changes), len(asked) - len(apart), tuple(apart),
        tuple(unstable), tuple(unseen),
    )  # fmt: skip


def find_hidden_kinds(older: Iterable[str], newer: Iterable[str]) -> frozenset[str]:
    """The kinds of collective that one of two releases hides, and the other does not.

    Sentences in `Header` say so: "reduce-scatter: on gloo ..." hides the kinds before the colon. A
    sentence that names no kind hides nothing.
    """
    heads = [sentence.partition(":")[0] for sentence in {*older} ^ {*newer} if ":" in sentence]
    named = {word for head in heads for word in re.findall(r"[\w-]+", head)}
    return frozenset(named.intersection(_KINDS))


def pair_answers(
    case: Case, older: Record, newer: Record, blind: frozenset[str] = frozenset()
) -> list[AnswerPair]:
    """Two records' answers to a case, paired for each subject that both have.

    Raises:
        BadInput: a line of a record is no list of answers.
        KeyError: a record has no such line.
    """
    left, right = (
        {
            answer.subject: _without_release(answer, public_release(kept.header.release))
            for answer in kept.stored_answers(case.id)
        }
        for kept in (older, newer)
    )
    return [
        AnswerPair(case, left[subject], answer, blind)
        for subject, answer in right.items()
        if subject in left
    ]


def _without_release(answer: Answer, release: str) -> Answer:
    """An answer whose end does not name its own release, so that another release can repeat it."""
    end: End
    match answer.end:
        case Unsupported(why, step):
            end = Unsupported(why.replace(release, "<release>"), step)
        case Refused(error, line, step):
            end = Refused(error, line.replace(release, "<release>"), step)
        case _:
            return answer
    return msgspec.structs.replace(answer, end=end)


def find_differences(pair: AnswerPair) -> list[Change]:
    """Every way in which two answers differ; none if they do not."""
    if pair.older == pair.newer:
        return []
    # A recipe has many tensors, but its truth is computed once.
    known = cache(lambda: truth(pair.case))
    ends, tensors, counted = _compare_ends(pair), list[Change](), _compare_programs(pair)
    moved: dict[str, int] = {}
    before, after = ({seen.name: seen for seen in one.seen} for one in (pair.older, pair.newer))
    for name in dict.fromkeys((*before, *after)):
        one, other = before.get(name), after.get(name)
        if one is not None and other is not None:
            if layout_differs(one, other):
                # The change of layout is the first change of a tensor.
                moved[name] = len(tensors)
            tensors += [*layout_changes(pair, one, other), *value_changes(pair, one, other, known)]
            counted += _compare_counts(pair, name, one.collectives, other.collectives)
            counted += _compare_counts(
                pair, f"{name}/full", one.full_collectives, other.full_collectives
            )
        elif pair.older.end == pair.newer.end:
            # Otherwise the end says why.
            texts = ("shown", NOT_SHOWN) if other is None else (NOT_SHOWN, "shown")
            tensors.append(make_change(pair, "support", name, " → ".join(texts), *texts))
    return [*ends, *_attach_counts(pair, tensors, counted, moved)]


def _attach_counts(
    pair: AnswerPair, tensors: list[Change], counted: list[Change], moved: Mapping[str, int]
) -> list[Change]:
    """Changes of tensors, each change of layout with the counts of its step; then other counts.

    ``moved``: the index of the change of layout, by step. The pattern of a count says so where the
    layout of something upstream changed.
    """
    left = []
    for count in counted:
        name = count.step.removesuffix("/full")
        if count.kind == "count" and name in moved:
            what = "fires" if count.step == name else "materialised, fires"
            sides = f"{what} {count.before}", f"{what} {count.after}"
            whole = tensors[moved[name]]
            tensors[moved[name]] = msgspec.structs.replace(whole, counts=(*whole.counts, sides))
        elif count.kind == "count" and not upstream(pair.case, count.step).isdisjoint(moved):
            left.append(msgspec.structs.replace(count, pattern=count.pattern + WITH_LAYOUT))
        else:
            left.append(count)
    return [*tensors, *left]


def find_uncountable_steps(pair: AnswerPair) -> list[str]:
    """The steps for which it is unknown whether their collectives changed.

    One of the two answers does not show them, or its release hides kinds that the other shows.
    """
    before, after = (_collectives_by_step(answer) for answer in (pair.older, pair.newer))
    return [
        step
        for step in before
        if step in after
        and (
            (before[step] is None) != (after[step] is None)
            or _differs_in_hidden_kind(pair, before[step], after[step])
        )
    ]


def _differs_in_hidden_kind(pair: AnswerPair, one: object, other: object) -> bool:
    """Whether the collectives differ in a kind that one of the releases hides."""
    if not isinstance(one, tuple) or not isinstance(other, tuple) or one == other:
        return False
    sides = (Counter((c.kind, c.axes, c.bytes, c.pass_) for c in side) for side in (one, other))
    left, right = sides
    return any(kind in pair.blind for kind, *_ in ((left - right) + (right - left)))


def _collectives_by_step(answer: Answer) -> dict[str, object]:
    """The collectives of each step that was reached, by its name; None where they are unknown."""
    found: dict[str, object] = {}
    if isinstance(answer.end, Done):
        found |= {"": answer.program, "peak": answer.peak}
    for seen in answer.seen:
        found[seen.name] = seen.collectives
        if seen.full:
            found[f"{seen.name}/full"] = seen.full_collectives
    return found


def _compare_ends(pair: AnswerPair) -> list[Change]:
    one, other = pair.older.end, pair.newer.end
    found = []
    if one != other:
        gone = isinstance(one, Unsupported) or isinstance(other, Unsupported)
        kind: ChangeKind = "support" if gone else "refusal"
        before, after = _kind_of_end(one), _kind_of_end(other)
        alike = before == after
        # Messages of one pattern differ only in what they say about the case.
        pattern = f"{before}, with another message" if alike else f"{before} → {after}"
        step = getattr(other, "step", "") or getattr(one, "step", "")
        weight = -2 if isinstance(one, Done) else -1 if isinstance(other, Done) else int(alike)
        texts = _format_whole_end(one), _format_whole_end(other)
        found.append(make_change(pair, kind, step, pattern, *texts, weight=weight))
    if pair.older.apart != pair.newer.apart:
        sides = pair.older.apart, pair.newer.apart
        before, after = ("; ".join(side) or "all ranks end alike" for side in sides)
        pattern = "ranks end differently" if pair.newer.apart else "ranks no longer end differently"
        found.append(make_change(pair, "refusal", "", pattern, before, after))
    return found


def _kind_of_end(end: End) -> str:
    match end:
        case Done():
            return ANSWER
        case Refused(error, line):
            return f"{error}: {message_pattern(line)}" if line else error
        case Unsupported(why):
            return f"unsupported: {message_pattern(why)}"
        case Crashed(how):
            return f"crashed: {message_pattern(how)}"
        case Hung():
            return "hung"


def _format_whole_end(end: End) -> str:
    more = f", after {end.raised}" if isinstance(end, Hung) and end.raised else ""
    return ANSWER if isinstance(end, Done) else format_end(end) + more


def _compare_programs(pair: AnswerPair) -> list[Change]:
    one, other = pair.older, pair.newer
    found = _compare_counts(pair, "", one.program, other.program)
    if one.complaints != other.complaints:
        before, after = ("; ".join(side.complaints) or "agree" for side in (one, other))
        found.append(make_change(pair, "count", "", "counters disagree", before, after))
    if one.peak is not None and other.peak is not None and one.peak != other.peak:
        pattern = "more" if other.peak > one.peak else "less"
        found.append(
            make_change(pair, "memory", "", pattern, f"{one.peak:,} B", f"{other.peak:,} B")
        )
    return found


def _compare_counts(
    pair: AnswerPair, step: str, one: Collectives | None, other: Collectives | None
) -> list[Change]:
    if one is None or other is None or one == other or _differs_in_hidden_kind(pair, one, other):
        return []
    full = "materialised: " if step.endswith("/full") else ""
    pattern = full + collectives_pattern(one, other)
    sides = format_collectives(one), format_collectives(other)
    return [make_change(pair, "count", step, pattern, *sides)]
