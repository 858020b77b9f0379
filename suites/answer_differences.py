"""In what do two answers to one question differ? A release and its record, a dry run and data.

Compares field by field and says what it found in words for a person. Refuses to know which of the
two is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from adapters.answer import (
    Answer,
    Collective,
    Crashed,
    Done,
    Hung,
    Observed,
    Unsupported,
    format_end,
)
from adapters.scrub import scrub_answer
from cases.arrays import Array
from cases.model import Case
from suites.array_difference import EXACT, difference, format_array
from suites.observation import Changed, Difference, DryRunDiffers
from suites.tensors import FULL, UNSHARDED, mesh_of
from suites.truth import Truth
from suites.verdict import REAL_RUN, RECORD, Finding, agree, differs, not_comparable
from suites.wording import format_collectives, format_reported_layout

# By step, what differs there. None is the whole program.
ByStep = dict[str | None, list[Difference]]


def compare_with_record(
    case: Case, answer: Answer, recorded: Answer, right: Truth
) -> list[Finding]:
    """In what an answer differs from the record of its own environment, one line for each step.

    Values and shards may differ by the tolerance of the op; all else must be equal.
    """
    now = scrub_answer(answer)
    found: ByStep = {}
    if now.end != recorded.end:
        step = getattr(now.end, "step", "") or getattr(recorded.end, "step", "") or None
        found[step] = [Difference("end", format_end(recorded.end), format_end(now.end))]
    if now.program != recorded.program:
        found.setdefault(None, []).append(_collectives_difference(recorded.program, now.program))
    for what, before, after in (
        ("counters", recorded.complaints, now.complaints), ("ranks", recorded.apart, now.apart),
    ):  # fmt: skip
        if before != after:
            told = Difference(what, "; ".join(before) or "none", "; ".join(after) or "none")
            found.setdefault(None, []).append(told)
    kept = {seen.name: seen for seen in recorded.seen}
    for seen in now.seen:
        before_ = kept.pop(seen.name, None)
        if before_ is None:
            found.setdefault(seen.name, []).append(Difference("result", "not shown", "shown"))
            continue
        for step, one in _compare_tensors(case, before_, seen):
            found.setdefault(step, []).append(one)
        for one in _compare_values(case, before_, seen, right):
            found.setdefault(seen.name, []).append(one)
    for name in kept:
        found.setdefault(name, []).append(Difference("result", "shown", "not shown"))
    return [
        differs(step, "record", Changed(tuple(some)), RECORD,
                why="the record of this environment holds another answer")
        for step, some in found.items()
    ]  # fmt: skip


def compare_dry_run(case: Case, dry: Answer, real: Answer | None) -> list[Finding]:
    """Does a dry run show what the same release did with data? One line for each step that differs.

    ``real``: what its record holds; None if it holds nothing. Compared are how it ended, and of
    every result the global shape, dtype, layout, the first shard's shape, and collectives with
    their bytes, forward and backward apart.
    """
    if real is None or isinstance(real.end, Unsupported):
        return []
    if isinstance(dry.end, Unsupported):
        return [not_comparable(None, "dry run", dry.end.why, REAL_RUN, got=format_end(dry.end))]
    if type(real.end) in ONLY_WITH_DATA and type(dry.end) is not type(real.end):
        return [
            not_comparable(
                None, "dry run", ONLY_WITH_DATA[type(real.end)], REAL_RUN, format_end(real.end)
            )
        ]
    found: ByStep = {}
    if _comparable_end(real) != _comparable_end(dry):
        step = getattr(real.end, "step", "") or getattr(dry.end, "step", "") or None
        found[step] = [Difference("end", format_end(real.end), format_end(dry.end))]
    before = {seen.name: seen for seen in real.seen}
    if isinstance(real.end, Done) and isinstance(dry.end, Done):
        if real.program != dry.program:
            found.setdefault(None, []).append(_collectives_difference(real.program, dry.program))
        for name in before.keys() - {seen.name for seen in dry.seen}:
            # The unsharded step of a recipe has values and nothing else.
            if not name.startswith(UNSHARDED):
                found.setdefault(name, []).append(Difference("result", "shown", "not shown"))
    for seen in dry.seen:
        if seen.name in before:
            for step, one in _compare_tensors(case, before[seen.name], seen, dry=True):
                found.setdefault(step, []).append(one)
    if not found:
        return [agree(None, "dry run", REAL_RUN)]
    return [
        differs(step, "dry run", DryRunDiffers(tuple(some)), REAL_RUN)
        for step, some in found.items()
    ]


# The run with data ended in a way that a dry run cannot: a dry run has one rank and no values.
ONLY_WITH_DATA: dict[type, str] = {
    Hung: "with data it hangs; a dry run has one rank, which waits for no other",
    Crashed: "with data it crashes; a dry run computes nothing",
}


def _comparable_end(answer: Answer) -> tuple[Any, ...]:
    end = answer.end
    # The message is not compared: without data, JAX's own check of sizes has another message.
    return type(end), getattr(end, "error", ""), getattr(end, "step", "")


def _compare_tensors(
    case: Case, before: Observed, after: Observed, dry: bool = False
) -> Iterator[tuple[str, Difference]]:
    """In what two reports of a tensor differ, apart from its values."""
    name = after.name
    mesh = mesh_of(case, name)
    for what, one, other in (
        ("shape", f"{before.dtype}{list(before.shape)}", f"{after.dtype}{list(after.shape)}"),
        ("layout", before.layout, after.layout),
        # Some notes exist with data alone, such as that a result is still on its way.
        ("note", before.note if after.note or not dry else "", after.note),
        ("ranks", () if dry else before.disagreements, () if dry else after.disagreements),
        ("local shape", *_locals(before, after)),
    ):
        if one != other:
            texts = (
                format_reported_layout(side, mesh) if what == "layout" else str(side)  # type: ignore[arg-type]
                for side in (one, other)
            )
            yield name, Difference(what, *texts)
    if before.collectives != after.collectives:
        yield name, _collectives_difference(before.collectives, after.collectives)
    if before.full_collectives != after.full_collectives:
        yield (
            f"{name}{FULL}",
            _collectives_difference(before.full_collectives, after.full_collectives),
        )


def _locals(before: Observed, after: Observed) -> tuple[Any, Any]:
    """The shape of the first shard, which a dry run has too; equal where either shows none."""
    shapes = []
    for one in (before, after):
        first = one.shards[0] if one.shards else None
        of_first = None if first is None else first.shape
        shapes.append(of_first if one.local is None else one.local)
    return (None, None) if None in shapes else (shapes[0], shapes[1])


def _compare_values(
    case: Case, before: Observed, after: Observed, right: Truth
) -> Iterator[Difference]:
    """In what two runs with data differ: values, shards and offsets."""
    if after.name in right.own:
        # Random numbers may differ; the ranks on which they are equal may not.
        for what, was, now in (
            ("values", _equal_arrays(before.full), _equal_arrays(after.full)),
            ("shards", _equal_arrays(before.shards), _equal_arrays(after.shards)),
            ("offsets", before.offsets, after.offsets),
        ):
            if was != now:
                yield Difference(what, str(was), str(now))
        return
    allowed = right.allowed.get(after.name, EXACT)
    if len(before.full) != len(after.full):
        yield Difference("value", _count_values(before), _count_values(after))
    for one, other in zip(before.full, after.full):
        if difference(one, other, allowed) is not None:
            yield Difference("value", format_array(one), format_array(other))
            break
    if not _same_shards(before.shards, after.shards, allowed):
        yield Difference("shards", _format_shards(before.shards), _format_shards(after.shards))
    if before.offsets != after.offsets:
        yield Difference("offsets", str(before.offsets), str(after.offsets))


def _equal_arrays(arrays: Sequence[Array | None] | None) -> tuple[str, ...] | None:
    """For each array its shape, and the first array that is equal to it."""
    if arrays is None:
        return None
    return tuple(
        "none" if one is None else f"{list(one.shape)} as {arrays.index(one)}" for one in arrays
    )


def _count_values(one: Observed) -> str:
    return "none" if not one.full else "one" if len(one.full) == 1 else "another on some rank"


def _same_shards(
    before: Sequence[Array | None] | None, after: Sequence[Array | None] | None, allowed: Any
) -> bool:
    if before is None or after is None:
        return before is after
    return len(before) == len(after) and all(
        one is other if one is None or other is None else difference(one, other, allowed) is None
        for one, other in zip(before, after)
    )


def _format_shards(shards: Sequence[Array | None] | None) -> str:
    return (
        "none"
        if shards is None
        else " | ".join("none" if s is None else format_array(s) for s in shards)
    )


def _collectives_difference(
    before: Sequence[Collective] | None, after: Sequence[Collective] | None
) -> Difference:
    return Difference("collectives", format_fired(before), format_fired(after))


def format_fired(fired: Sequence[Collective] | None) -> str:
    """Collectives with everything that is compared, in order."""
    if fired is None:
        return "not counted"
    told = (
        f"{len([*alike])} x {text}" if text else ""
        for text, alike in groupby(
            f"{format_collectives([one])} of {one.bytes} B in groups of {one.group}, {one.pass_}"
            f"{', in a loop' if one.in_loop else ''}"
            for one in fired
        )
    )
    return "; ".join(told) or "none"
