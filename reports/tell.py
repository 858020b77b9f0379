"""What did each framework do on a case? Its shards, results and collectives, from records.

``python -m reports.tell ID ...`` prints cases of the catalogue; an id may be a pattern. It reads
the committed records, and does not say what is right.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from functools import cache

from packaging.version import Version

from adapters import record
from adapters.answer import Answer, Collective, Done, Observed, Unsupported, format_end
from adapters.protocol import Promises
from adapters.registry import FRAMEWORKS
from cases.catalogue import catalogue
from cases.model import Case, Mesh, slug
from reports.formatting import format_axes
from suites.array_difference import format_array
from suites.failure import format_step
from suites.sources import RECORDS, pinned_releases, record_path
from suites.tensors import mesh_of
from suites.wording import format_collectives, format_position, format_reported_layout

# Larger shards are not printed.
_MOST = 16


def tell(case: Case, answers: dict[str, Answer]) -> list[str]:
    """The lines about one case."""
    mesh = case.question.mesh
    lines = [f"{case.id}    mesh {format_axes(mesh)}"]
    ended = {subject: answer for subject, answer in answers.items() if _has_answered(answer)}
    for given in case.question.inputs:
        lines += _tensor(case, given.name, f"{given.name}", ended)
    for step in case.question.steps:
        lines += _tensor(case, step.result, format_step(step, mesh), ended)
    for subject, answer in ended.items():
        if answer.program is not None and case.question.steps:
            lines.append(f"  program: {format_collectives(answer.program)}    ({subject})")
        if not isinstance(answer.end, Done):
            lines.append(f"  {subject} {format_end(answer.end)}")
    return lines


def _has_answered(answer: Answer) -> bool:
    return bool(answer.seen) or not isinstance(answer.end, Unsupported)


def _tensor(case: Case, name: str, head: str, answers: dict[str, Answer]) -> list[str]:
    """The lines about an input or result: each fact once, with the subjects that report it."""
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
    facts: dict[str, Callable[[Observed], list[str]]] = {
        "layout": lambda one: [format_reported_layout(one.layout, mesh)],
        "shards": lambda one: _shards(mesh, one),
        "value": lambda one: [format_array(one.full[0])] if one.full else [],
    }
    if any(step.result == name for step in case.question.steps):
        facts["fired"] = lambda one: _fired(one.collectives)
        facts["full"] = lambda one: _fired(one.full_collectives)
    for what, fact in facts.items():
        lines += _group_equal_facts(what, {s: fact(one) for s, one in seen.items()})
    return lines


def _fired(collectives: tuple[Collective, ...] | None) -> list[str]:
    return [] if collectives is None else [format_collectives(collectives)]


def _shards(mesh: Mesh, seen: Observed) -> list[str]:
    """An empty line and one for each device; nothing if a shard is too large."""
    if seen.shards is None or any(shard is None or shard.size > _MOST for shard in seen.shards):
        return []
    held = [format_array(shard) for shard in seen.shards if shard is not None]
    return ["", *(f"    {format_position(mesh, p)}: {text}" for p, text in enumerate(held))]


def _group_equal_facts(what: str, facts: dict[str, list[str]]) -> Iterable[str]:
    """Each fact once, with the subjects that share it. A fact is a list of lines."""
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
    """The committed record of each framework's release that the project runs."""
    return tuple(
        record.load(record_path(RECORDS, name, release), name, FRAMEWORKS[name].subjects)
        for name, release in pinned_releases().items()
    )


def recorded_answers(case: Case) -> dict[str, Answer]:
    """Every subject's answer to a case, from the records of the project's own releases."""
    return {a.subject: a for kept in _records() for a in kept.answer(case.question)}


def recorded_promises() -> Promises:
    """The fields that each subject promises to show, by those records."""
    return {
        subject: fields for kept in _records() for subject, fields in kept.header.promises.items()
    }


def recorded_releases() -> dict[str, str]:
    """The releases of those records by framework, without local tags."""
    return {name: Version(kept.header.release).public for name, kept in zip(FRAMEWORKS, _records())}


def main(patterns: list[str]) -> list[str]:
    """The lines about the cases whose ids match."""
    lines = []
    for case in catalogue():
        if any(fnmatchcase(slug(case.id), pattern) for pattern in patterns):
            lines += [*tell(case, recorded_answers(case)), ""]
    return lines[:-1]


if __name__ == "__main__":
    sys.stdout.write("\n".join(main(sys.argv[1:])) + "\n")
