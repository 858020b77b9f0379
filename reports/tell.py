"""What did each framework do on a case? Its shards, results and collectives, from records.

``python -m reports.tell ID ...`` prints cases of the catalogue; an id may be a pattern. It reads
the records of the releases that the project runs, and does not say what is right.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from packaging.version import Version

from adapters import record
from adapters.answer import Answer, Collective, Done, Observed, Unsupported, format_end
from adapters.protocol import Promises
from adapters.registry import FRAMEWORKS
from cases.catalogue import catalogue
from cases.errors import BadInput
from cases.model import Case, Mesh, slug
from reports.drift.case_history import find_case
from reports.drift.finding_listing import UnknownId
from reports.formatting import format_axes
from suites.array_difference import format_array
from suites.failure import format_step
from suites.record_index import find_records
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
def _records(folder: Path = RECORDS) -> dict[str, record.Record]:
    """By framework, the record in a folder of the release that the project runs, or the newest."""
    pinned, found = pinned_releases(), {}
    paths = find_records(folder)
    for name, row in FRAMEWORKS.items():
        own = [path for other, path in paths if other == name]
        due = record_path(folder, name, pinned.get(name, ""))
        if own:
            found[name] = record.load(due if due in own else own[-1], name, row.subjects)
    return found


def recorded_answers(case: Case, folder: Path = RECORDS) -> dict[str, Answer]:
    """Every subject's answer to a case, from those records."""
    return {a.subject: a for kept in _records(folder).values() for a in kept.answer(case.question)}


def recorded_promises() -> Promises:
    """The fields that each subject promises to show, by those records."""
    return {
        subject: fields
        for kept in _records().values()
        for subject, fields in kept.header.promises.items()
    }


def recorded_releases() -> dict[str, str]:
    """The releases of those records by framework, without local tags."""
    return {name: Version(kept.header.release).public for name, kept in _records().items()}


def main(words: Sequence[str]) -> int:
    """The command line: 0, or 2 with one line of what is wrong."""
    parser = argparse.ArgumentParser(
        "python -m reports.tell", description="Print what each framework did on a case."
    )
    parser.add_argument("ids", metavar="ID", nargs="+", help="the id of a case, or a pattern")
    parser.add_argument("--records", metavar="FOLDER", type=Path, default=RECORDS,
                        help="the records to read (default: those of the project)")  # fmt: skip
    given = parser.parse_args(words)
    ids = {slug(case.id): case for case in catalogue()}
    lines = []
    try:
        for wanted in given.ids:
            found = [case for id, case in ids.items() if fnmatchcase(id, wanted)]
            for case in found or [find_case(wanted, ids)]:
                lines += [*tell(case, recorded_answers(case, given.records)), ""]
    except (BadInput, UnknownId) as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(lines[:-1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
