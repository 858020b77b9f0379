"""What does one case do through all releases? Runs of releases that answer alike, and each border.

Reads the records that are there; asks no framework and judges nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from adapters import record
from adapters.answer import Answer, Done, Observed, ending
from adapters.record import Record, digest
from adapters.registry import FRAMEWORKS
from cases.model import Case, slug
from cases.notation import both
from reports.drift.changes import differences, hidden, hides, pairs
from reports.drift.finding import Unknown
from reports.drift.model import Change
from reports.drift.patterns import fired
from reports.drift.tables import spans
from suites.failure import mesh_said
from suites.failure import said as step_said
from suites.shelf import find, release_of
from suites.tensors import mesh_of
from suites.values import show
from suites.wording import layout_text as said

_MOST = 16
_NEAREST = 3


def named(id: str, known: Mapping[str, Case]) -> Case:
    """The case with an id, as it is or as `slug` has it.

    Raises:
        Unknown: there is none.
    """
    by_slug = {slug(case.id): case for case in known.values()}
    found = known.get(id) or by_slug.get(slug(id))
    if found is None:
        near = difflib.get_close_matches(slug(id), sorted(by_slug), n=_NEAREST, cutoff=0.0)
        raise Unknown("case", id, near)
    return found


class Stretch(msgspec.Struct, frozen=True):
    """Consecutive releases in which one subject answers alike.

    ``changes``: against the stretch before; ``unseen``: the steps whose collectives one of the
    two cannot show. ``note``: why there is no answer, or that it is not the same in every run.
    """

    releases: tuple[str, ...]
    answer: Answer | None
    changes: tuple[Change, ...] = ()
    unseen: tuple[str, ...] = ()
    note: str = ""


def told(folder: Path, case: Case) -> list[str]:
    """The story of a case in every release that a folder has a record of.

    Raises:
        BadInput: there is no record, or one cannot be read.
    """
    lines = _asked(case)
    paths = find(folder)
    for name in FRAMEWORKS:
        records = [record.load(path, name) for other, path in paths if other == name]
        releases = [release_of(one) for one in records]
        for subject in dict.fromkeys(s for one in records for s in one.header.subjects):
            lines += ["", subject]
            before: Answer | None = None
            for stretch in stretches(case, records, subject):
                lines += _stretch(case, releases, stretch, before)
                before = stretch.answer
    return lines


def _asked(case: Case) -> list[str]:
    question = case.question
    mesh = ", ".join(f"{axis}={size}" for axis, size in question.mesh.axes)
    lines = [f"{slug(case.id)}    mesh {mesh}"]
    if question.recipe is not None:
        lines.append(f"  recipe {question.recipe.name}")
    lines += [f"  {mesh_said(step)}" for step in question.mesh_steps]
    for one in question.inputs:
        at = both(one.layout, mesh_of(case, one.name))
        lines.append(f"  {one.name}: {one.dtype}{list(one.shape)}  {at}")
        if one.value is not None:
            lines.append(f"    {show(one.value, _MOST)}")
    return lines + [f"  {step_said(step, mesh_of(case, step.result))}" for step in question.steps]


def stretches(case: Case, records: Sequence[Record], subject: str) -> list[Stretch]:
    """How one subject's answer to a case goes through records of one framework, oldest first.

    Raises:
        BadInput: a line of a record is no list of answers.
    """
    found: list[Stretch] = []
    for last, kept in pairwise((None, *records)):
        assert kept is not None
        one = _alone(case, kept, subject)
        if last is None:
            found.append(one)
            continue
        before = found[-1]
        if before.note or one.note:
            same = before.note == one.note
        else:
            blind = hides(last.header.unseen, kept.header.unseen)
            (pair,) = (p for p in pairs(case, last, kept, blind) if p.newer.subject == subject)
            changes, unseen = tuple(differences(pair)), tuple(hidden(pair))
            one = msgspec.structs.replace(one, changes=changes, unseen=unseen)
            same = not changes and not unseen
        if same:
            releases = (*before.releases, *one.releases)
            found[-1] = msgspec.structs.replace(before, releases=releases)
        else:
            found.append(one)
    return found


def _alone(case: Case, kept: Record, subject: str) -> Stretch:
    """A stretch of one release."""
    release = (release_of(kept),)
    row = kept.lines.get(case.id)
    if row is None or subject not in kept.header.subjects:
        return Stretch(release, None, note="not asked")
    if row.digest != digest(case.question):
        return Stretch(release, None, note="asked in other words")
    answer = next(one for one in kept.kept(case.id) if one.subject == subject)
    return Stretch(release, answer, note="not the same in every run" * (subject in row.unstable))


def _stretch(
    case: Case, releases: Sequence[str], stretch: Stretch, before: Answer | None
) -> Iterable[str]:
    note = f"  ({stretch.note})" if stretch.note else ""
    yield f"  {spans(releases, stretch.releases)}{note}"
    if stretch.answer is None:
        return
    if not stretch.changes and not stretch.unseen:
        yield from (f"    {line}" for line in whole(case, stretch.answer))
    for change in stretch.changes:
        silent = ", silent" if change.silent else ""
        # How it ended says all that its pattern does.
        pattern = "" if change.kind in ("refusal", "support") else change.pattern
        what = ": ".join(filter(None, (change.step, pattern)))
        yield f"    {change.kind}{silent}  {what}".rstrip()
        for old, new in ((change.before, change.after), *change.counts):
            yield f"      before  {old}"
            yield f"      after   {new}"
    if stretch.changes and before is not None:
        yield from (f"    {line}" for line in _begun(case, before, stretch.answer))
    for step in stretch.unseen:
        yield f"    not seen  collectives of {step or 'the program'}, in one of the two"


def whole(case: Case, answer: Answer) -> Iterable[str]:
    """All that one answer says, but for shards and offsets, a line each."""
    for seen in answer.seen:
        yield from _seen(case, seen)
    if answer.program is not None:
        yield f"the program fires {fired(answer.program)}"
    yield "done" if isinstance(answer.end, Done) else ending(answer.end)


def _begun(case: Case, before: Answer, answer: Answer) -> Iterable[str]:
    """What an answer says of results that the one before did not come to."""
    reached = {seen.name for seen in before.seen}
    for seen in answer.seen:
        if seen.name not in reached:
            yield from _seen(case, seen)
    if before.program is None and answer.program is not None:
        yield f"the program fires {fired(answer.program)}"


def _seen(case: Case, seen: Observed) -> Iterable[str]:
    mesh = seen.mesh or mesh_of(case, seen.name)
    yield f"{seen.name}  {seen.dtype}{list(seen.shape)}  {said(seen.layout, mesh)}"
    if seen.full:
        yield f"  {show(seen.full[0], _MOST)}"
    if seen.collectives is not None:
        yield f"  fires {fired(seen.collectives)}"
    if seen.full_collectives:
        yield f"  materialised, fires {fired(seen.full_collectives)}"
