"""What did each framework do on a case? Its shards, results and collectives, from records.

``python -m reports.tell ID ...`` tells of cases of the catalogue (an id may be a pattern).
Reads the committed records and asks no framework; says nothing about right or wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache

from packaging.version import Version

from adapters import record
from adapters.answer import Answer, Collective, Done, Observed, Unsupported, format_end
from adapters.protocol import Promises
from adapters.registry import FRAMEWORKS
from cases.catalogue import catalogue
from cases.model import Case, Mesh, slug
from suites.array_difference import format_array
from suites.failure import format_step as program_line
from suites.sources import RECORDS, pinned_releases, record_path
from suites.tensors import mesh_of
from suites.wording import format_collectives, format_position
from suites.wording import format_reported_layout as said

# Larger shards are told by their shape alone.
_MOST = 16


def tell(case: Case, answers: dict[str, Answer]) -> list[str]:
    """The story of one case, a line each."""
    mesh = case.question.mesh
    lines = [f"{case.id}    mesh {', '.join(f'{name}={size}' for name, size in mesh.axes)}"]
    ended = {subject: answer for subject, answer in answers.items() if _has_answered(answer)}
    for given in case.question.inputs:
        lines += _tensor(case, given.name, f"{given.name}", ended)
    for step in case.question.steps:
        lines += _tensor(case, step.result, program_line(step, mesh), ended)
    for subject, answer in ended.items():
        if answer.program is not None and case.question.steps:
            lines.append(f"  program: {format_collectives(answer.program)}    ({subject})")
        if not isinstance(answer.end, Done):
            lines.append(f"  {subject} {format_end(answer.end)}")
    return lines


def _has_answered(answer: Answer) -> bool:
    return bool(answer.seen) or not isinstance(answer.end, Unsupported)


def _tensor(case: Case, name: str, head: str, answers: dict[str, Answer]) -> list[str]:
    """An input or result: each fact once, with the subjects that report it."""
    if name not in case.question.check:
        return []
    mesh = mesh_of(case, name)
    lines = [head]
    seen = {
        subject: one
        for subject, answer in answers.items()
        for one in answer.seen
        if one.name == name
    }
    lines += _group_equal_facts("layout", {s: [said(one.layout, mesh)] for s, one in seen.items()})
    lines += _group_equal_facts("shards", {s: _shards(mesh, one) for s, one in seen.items()})
    lines += _group_equal_facts(
        "value", {s: [format_array(one.full[0])] for s, one in seen.items() if one.full}
    )
    if any(step.result == name for step in case.question.steps):
        lines += _group_equal_facts(
            "fired", _format_fired({s: one.collectives for s, one in seen.items()})
        )
        lines += _group_equal_facts(
            "full", _format_fired({s: one.full_collectives for s, one in seen.items()})
        )
    return lines


def _format_fired(fired: dict[str, tuple[Collective, ...] | None]) -> dict[str, list[str]]:
    return {subject: [format_collectives(own)] for subject, own in fired.items() if own is not None}


def _shards(mesh: Mesh, seen: Observed) -> list[str]:
    """A line for each device, after an empty one for the head; nothing if a shard is too large."""
    if seen.shards is None or any(shard is None or shard.size > _MOST for shard in seen.shards):
        return []
    held = [format_array(shard) for shard in seen.shards if shard is not None]
    return ["", *(f"    {format_position(mesh, p)}: {text}" for p, text in enumerate(held))]


def _group_equal_facts(what: str, facts: dict[str, list[str]]) -> Iterable[str]:
    """Equal facts told once, under the subjects that share them; a fact is its lines."""
    grouped: dict[tuple[str, ...], list[str]] = {}
    for subject, fact in facts.items():
        if fact:
            grouped.setdefault(tuple(fact), []).append(subject)
    for (first, *rest), subjects in grouped.items():
        head = f"  {what}: {first}" if first else f"  {what}:"
        yield f"{head}    ({', '.join(subjects)})"
        yield from rest


@cache
def _records() -> tuple[record.Record, ...]:
    """The committed record of each framework's release that the project itself runs."""
    return tuple(
        record.load(record_path(RECORDS, name, release), name, FRAMEWORKS[name].subjects)
        for name, release in pinned_releases().items()
    )


def recorded_answers(case: Case) -> dict[str, Answer]:
    """Every subject's answer to a case, from the records of the releases that the project runs."""
    return {a.subject: a for kept in _records() for a in kept.answer(case.question)}


def recorded_promises() -> Promises:
    """The fields that each subject has promised to show, by those records."""
    return {
        subject: fields for kept in _records() for subject, fields in kept.header.promises.items()
    }


def recorded_releases() -> dict[str, str]:
    """The release of each framework that those records are of, local tags left out."""
    return {name: Version(kept.header.release).public for name, kept in zip(FRAMEWORKS, _records())}


def main(patterns: list[str]) -> list[str]:
    """The stories of the cases whose ids match."""
    lines = []
    for case in catalogue():
        if any(fnmatchcase(slug(case.id), pattern) for pattern in patterns):
            lines += [*tell(case, recorded_answers(case)), ""]
    return lines[:-1]


if __name__ == "__main__":
    sys.stdout.write("\n".join(main(sys.argv[1:])) + "\n")
