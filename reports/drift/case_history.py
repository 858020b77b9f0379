"""How did the answers to one case change through all releases? For ``--case``, from the records."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from adapters import record
from adapters.answer import Answer, Done, Observed, format_end
from adapters.record import Record, digest_question
from adapters.registry import FRAMEWORKS
from cases.model import Case, slug
from cases.notation import format_both_notations
from reports.drift.answer_changes import (
    find_differences,
    find_hidden_kinds,
    find_uncountable_steps,
    pair_answers,
)
from reports.drift.finding_listing import UnknownId
from reports.drift.model import Change
from reports.drift.patterns import format_collectives
from reports.formatting import format_axes, format_releases
from suites.array_difference import format_array
from suites.failure import format_mesh_step, format_step
from suites.record_index import find_records, release_of
from suites.tensors import mesh_of
from suites.wording import format_reported_layout

_MOST = 16
_NEAREST = 3


def find_case(id: str, known: Mapping[str, Case]) -> Case:
    """The case with an id, as in its file or as `slug` writes it.

    Raises:
        UnknownId: there is none.
    """
    by_slug = {slug(case.id): case for case in known.values()}
    found = known.get(id) or by_slug.get(slug(id))
    if found is None:
        near = difflib.get_close_matches(slug(id), sorted(by_slug), n=_NEAREST, cutoff=0.0)
        raise UnknownId("case", id, near)
    return found


class UnchangedReleases(msgspec.Struct, frozen=True):
    """Consecutive releases in which one subject gives the same answer.

    ``changes``: from the releases before. ``unseen``: the steps whose collectives these or those
    cannot show. ``note``: why there is no answer, or that it differs from run to run.
    """

    releases: tuple[str, ...]
    answer: Answer | None
    changes: tuple[Change, ...] = ()
    unseen: tuple[str, ...] = ()
    note: str = ""


def format_history(folder: Path, case: Case) -> list[str]:
    """How a case was answered in every release that a folder has a record of.

    Raises:
        BadInput: there is no record, or one cannot be read.
    """
    lines = _format_question(case)
    paths = find_records(folder)
    for name in FRAMEWORKS:
        records = [record.load(path, name) for other, path in paths if other == name]
        releases = [release_of(one) for one in records]
        for subject in dict.fromkeys(s for one in records for s in one.header.subjects):
            lines += ["", subject]
            before: Answer | None = None
            for stretch in find_unchanged_releases(case, records, subject):
                lines += _format_releases(case, releases, stretch, before)
                before = stretch.answer
    return lines


def _format_question(case: Case) -> list[str]:
    question = case.question
    lines = [f"{slug(case.id)}    mesh {format_axes(question.mesh)}"]
    if question.recipe is not None:
        lines.append(f"  recipe {question.recipe.name}")
    lines += [f"  {format_mesh_step(step)}" for step in question.mesh_steps]
    for one in question.inputs:
        at = format_both_notations(one.layout, mesh_of(case, one.name))
        lines.append(f"  {one.name}: {one.dtype}{list(one.shape)}  {at}")
        if one.value is not None:
            lines.append(f"    {format_array(one.value, _MOST)}")
    return lines + [f"  {format_step(step, mesh_of(case, step.result))}" for step in question.steps]


def find_unchanged_releases(
    case: Case, records: Sequence[Record], subject: str
) -> list[UnchangedReleases]:
    """One subject's answers to a case in the records of one framework, oldest first.

    Raises:
        BadInput: a line of a record is no list of answers.
    """
    found: list[UnchangedReleases] = []
    for last, kept in pairwise((None, *records)):
        assert kept is not None
        one = _single_release(case, kept, subject)
        if last is None:
            found.append(one)
            continue
        before = found[-1]
        if before.note or one.note:
            same = before.note == one.note
        else:
            blind = find_hidden_kinds(last.header.unseen, kept.header.unseen)
            (pair,) = (
                p for p in pair_answers(case, last, kept, blind) if p.newer.subject == subject
            )
            changes, unseen = tuple(find_differences(pair)), tuple(find_uncountable_steps(pair))
            one = msgspec.structs.replace(one, changes=changes, unseen=unseen)
            same = not changes and not unseen
        if same:
            releases = (*before.releases, *one.releases)
            found[-1] = msgspec.structs.replace(before, releases=releases)
        else:
            found.append(one)
    return found


def _single_release(case: Case, kept: Record, subject: str) -> UnchangedReleases:
    """What one release answers."""
    release = (release_of(kept),)
    row = kept.lines.get(case.id)
    if row is None or subject not in kept.header.subjects:
        return UnchangedReleases(release, None, note="not asked")
    if row.digest != digest_question(case.question):
        return UnchangedReleases(release, None, note="asked in different words")
    answer = next(one for one in kept.stored_answers(case.id) if one.subject == subject)
    return UnchangedReleases(
        release, answer, note="differs from run to run" * (subject in row.unstable)
    )


def _format_releases(
    case: Case, releases: Sequence[str], stretch: UnchangedReleases, before: Answer | None
) -> Iterable[str]:
    note = f"  ({stretch.note})" if stretch.note else ""
    yield f"  {format_releases(releases, stretch.releases)}{note}"
    if stretch.answer is None:
        return
    if not stretch.changes and not stretch.unseen:
        yield from (f"    {line}" for line in format_answer(case, stretch.answer))
    for change in stretch.changes:
        silent = ", silent" if change.silent else ""
        # The pattern of an end repeats what before and after say.
        pattern = "" if change.kind in ("refusal", "support") else change.pattern
        what = ": ".join(filter(None, (change.step, pattern)))
        yield f"    {change.kind}{silent}  {what}".rstrip()
        for old, new in ((change.before, change.after), *change.counts):
            yield f"      before  {old}"
            yield f"      after   {new}"
    if stretch.changes and before is not None:
        yield from (f"    {line}" for line in _format_new_results(case, before, stretch.answer))
    for step in stretch.unseen:
        yield f"    not seen  collectives of {step or 'the program'}, in one of the two"


def format_answer(case: Case, answer: Answer) -> Iterable[str]:
    """A line for each thing in an answer, except shards and offsets."""
    for seen in answer.seen:
        yield from _format_tensor(case, seen)
    if answer.program is not None:
        yield f"the program fires {format_collectives(answer.program)}"
    yield "done" if isinstance(answer.end, Done) else format_end(answer.end)


def _format_new_results(case: Case, before: Answer, answer: Answer) -> Iterable[str]:
    """What an answer has for results that the one before did not reach."""
    reached = {seen.name for seen in before.seen}
    for seen in answer.seen:
        if seen.name not in reached:
            yield from _format_tensor(case, seen)
    if before.program is None and answer.program is not None:
        yield f"the program fires {format_collectives(answer.program)}"


def _format_tensor(case: Case, seen: Observed) -> Iterable[str]:
    mesh = seen.mesh or mesh_of(case, seen.name)
    layout = format_reported_layout(seen.layout, mesh)
    yield f"{seen.name}  {seen.dtype}{list(seen.shape)}  {layout}"
    if seen.full:
        yield f"  {format_array(seen.full[0], _MOST)}"
    if seen.collectives is not None:
        yield f"  fires {format_collectives(seen.collectives)}"
    if seen.full_collectives:
        yield f"  materialised, fires {format_collectives(seen.full_collectives)}"
