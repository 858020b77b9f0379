"""How does every release of torch come out beside every release of another framework?

Judged from records alone, with no framework installed. Most answers are the same in most
releases, so each distinct answer of a case is judged once, beside each distinct answer of torch,
under each distinct choice of ledger entries. The verdicts are those that `suites.judge.judge`
gives for the pair, line for line. Asks no framework; what the ledger should say is in `ranges`.
"""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from pathlib import Path

import msgspec

from adapters import record
from adapters.answer import Answer
from adapters.record import Record
from adapters.registry import FRAMEWORKS, framework_of, subjects
from cases.catalogue import catalogue
from cases.facts import facts
from cases.ledger import Entry, applies, load_ledger
from cases.model import Case, slug
from suites import aspects, plans, replay
from suites import shelf as shelves
from suites.judge import about, alone, beside, holds, known
from suites.replay import Live, Strayed
from suites.shelf import Paths, Shelf, release_of
from suites.truth import Truth, truth
from suites.verdict import OUTCOMES, Finding, Outcome, Verdict, said_of

# What all others are held against.
BASE = "torch"

# Few enough that one process is not left with the last, many enough that neighbours share work.
_TOGETHER = 40


class Cell(msgspec.Struct, frozen=True):
    """One subject's verdicts on a case, the same in every pair of these releases.

    ``releases``: of the subject's framework. ``torch``: what it is held beside, none for torch
    itself; "" where there is no record of it. ``observed``: of each verdict, in the ledger's words.
    ``holds``: by id of every entry and rule that names the case, of whatever releases.
    """

    subject: str
    releases: tuple[str, ...]
    torch: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    observed: tuple[str, ...]
    holds: dict[str, bool | None]


class Open(msgspec.Struct, frozen=True):
    """A divergence that the ledger does not know, in every pair of these releases.

    ``op``: of the step, with "/full" where that is materialised.
    """

    verdict: Verdict
    observed: str
    op: str
    releases: tuple[str, ...]
    torch: tuple[str, ...]


class Stood(msgspec.Struct):
    """How an entry fared in one release: cases in which it held, could not show, and failed.

    ``failed``: by case, beside which releases of torch; it may have held beside others.
    """

    held: set[str] = set()
    unseen: set[str] = set()
    failed: dict[str, tuple[str, ...]] = {}


class Tally(msgspec.Struct):
    """What came of all cases.

    ``counts``: by subject, its release and that of torch ("" for torch itself), how many verdicts
    of each of `OUTCOMES`. ``stood``: by id of a ledger entry and release of its subject.
    ``replayed``: cases held against a live run; ``strayed``: where that had other verdicts.
    """

    cases: int = 0
    counts: dict[tuple[str, str, str], list[int]] = {}
    open: list[Open] = []
    stood: dict[tuple[str, str], Stood] = {}
    replayed: int = 0
    strayed: list[Strayed] = []

    def pair(self, torch: str, other: str, release: str) -> list[int]:
        """Counts of verdicts of torch and another framework beside it."""
        keys = [(subject, torch, "") for subject in FRAMEWORKS[BASE].subjects]
        keys += [(subject, release, torch) for subject in FRAMEWORKS[other].subjects]
        rows = [self.counts[key] for key in keys if key in self.counts]
        return [sum(column) for column in zip(*rows)] or [0] * len(OUTCOMES)


# Ids of entries in force, by framework and release.
Force = Mapping[tuple[str, str], frozenset[str]]


def in_force(shelf: Shelf, ledger: Sequence[Entry]) -> Force:
    """Ids of the entries and rules that are about each release of a shelf, whatever they name."""
    return {
        (name, release_of(one)): frozenset(
            entry.id
            for entry in ledger
            if framework_of(entry.subject) == name and applies(entry, release_of(one))
        )
        for name, records in shelf.items()
        for one in records
    }


def cells(case: Case, shelf: Shelf, ledger: Sequence[Entry], force: Force) -> Iterator[Cell]:
    """Every subject's verdicts on a case in all pairs, each distinct one once.

    ``force``: of this shelf and ledger, by `in_force`.
    """
    fact = facts(case)
    named = {subject: about(case, subject, ledger, fact) for subject in subjects()}
    answered = {name: distinct(case, records) for name, records in shelf.items()}
    of_torch: list[tuple[tuple[str, ...], Answer | None, frozenset[str | None]]] = []
    for releases, (answer,) in answered.get(BASE, []):
        right = truth(case, BASE)
        of_torch.append((releases, answer, _doubt(case, answer, right)))
        found = alone(case, answer, right)
        yield from _cells(case, answer, releases, (), found, named, force)
    if not of_torch:
        of_torch.append((("",), None, frozenset()))
    for name, groups in answered.items():
        if name == BASE:
            continue
        # Of the subjects in a line, one may be the same where another is not.
        right = truth(case, name)
        for releases, answer in _apart(groups):
            own = alone(case, answer, right)
            for torch, theirs, doubt in of_torch:
                found = list(own)
                if theirs is not None:
                    found += beside(case, answer, theirs, right, doubt)
                yield from _cells(case, answer, releases, torch, found, named, force)


def distinct(
    case: Case, records: Sequence[Record]
) -> list[tuple[tuple[str, ...], tuple[Answer, ...]]]:
    """The answers that a case has in records, and the releases that answer so."""
    asked = record.digest(case.question)
    groups: dict[str, list[Record]] = {}
    for one in records:
        line = one.lines.get(case.id)
        # What answered another question says only that.
        kept = "none" if line is None else one.line_digest(case.id) if line.digest == asked else ""
        groups.setdefault(kept, []).append(one)
    return [
        (tuple(map(release_of, group)), group[0].answer(case.question)) for group in groups.values()
    ]


def _apart(
    groups: Iterable[tuple[tuple[str, ...], tuple[Answer, ...]]],
) -> list[tuple[tuple[str, ...], Answer]]:
    merged: list[tuple[tuple[str, ...], Answer]] = []
    for releases, answers in groups:
        for answer in answers:
            at = next((i for i, (_, other) in enumerate(merged) if other == answer), None)
            if at is None:
                merged.append((releases, answer))
            else:
                merged[at] = (merged[at][0] + releases, answer)
    return merged


def _doubt(case: Case, torch: Answer, right: Truth) -> frozenset[str | None]:
    if case.question.recipe is not None:
        return frozenset()
    if case.question.mode == "plan":
        return plans.doubtful(case, torch, right)
    return aspects.doubtful(case, torch, right)


def _cells(
    case: Case,
    answer: Answer,
    releases: tuple[str, ...],
    torch: tuple[str, ...],
    found: Sequence[Finding],
    named: Mapping[str, Sequence[Entry]],
    force: Force,
) -> Iterator[Cell]:
    entries, name = named[answer.subject], framework_of(answer.subject)
    stood = {entry.id: holds(entry, case, found) for entry in entries}
    alike: dict[frozenset[str], list[str]] = {}
    for release in releases:
        alike.setdefault(force[name, release].intersection(stood), []).append(release)
    for on, group in alike.items():
        said = known(case, found, [entry for entry in entries if entry.id in on])
        yield Cell(
            answer.subject,
            tuple(group),
            torch,
            tuple(said_of(finding, case.id, answer.subject, id) for finding, id in said),
            tuple(finding.observed for finding, _ in said),
            stood,
        )


def of_pair(judged: Iterable[Cell], releases: Mapping[str, str]) -> list[Verdict]:
    """The verdicts of one release of each framework, which `cells` gave among those of others."""
    return [
        verdict
        for cell in judged
        if releases.get(framework_of(cell.subject)) in cell.releases
        and (not cell.torch or releases.get(BASE, "") in cell.torch)
        for verdict in cell.verdicts
    ]


def count(
    cases: Iterable[Case],
    shelf: Shelf,
    ledger: Sequence[Entry],
    force: Force,
    live: Live | None = None,
) -> Tally:
    """Judge cases in all pairs, in this process. ``force``: by `in_force`.

    The cases of ``live`` are held against it.
    """
    tally = Tally()
    # Few groups of releases come up again and again.
    grouped: dict[tuple[str, tuple[str, ...], tuple[str, ...]], Counter[Outcome]] = {}
    for case in cases:
        tally.cases += 1
        judged = tuple(cells(case, shelf, ledger, force))
        if live is not None and case.id in live.verdicts:
            tally.replayed += 1
            tally.strayed += replay.strayed(
                live.verdicts[case.id],
                of_pair(judged, live.releases),
                replay.unstable(case.id, live, shelf),
            )
        for cell in judged:
            at = (cell.subject, cell.releases, cell.torch or ("",))
            grouped.setdefault(at, Counter()).update(one.verdict for one in cell.verdicts)
            _keep(tally, case, cell)
    for (subject, releases, torch), numbers in grouped.items():
        row = [numbers[outcome] for outcome in OUTCOMES]
        for release in releases:
            for other in torch:
                _plus(tally, (subject, release, other), row)
    return tally


def _plus(tally: Tally, key: tuple[str, str, str], row: Sequence[int]) -> None:
    have = tally.counts.get(key, [0] * len(OUTCOMES))
    tally.counts[key] = [one + other for one, other in zip(have, row, strict=True)]


def _keep(tally: Tally, case: Case, cell: Cell) -> None:
    for verdict, observed in zip(cell.verdicts, cell.observed):
        if verdict.verdict == "divergence":
            op = op_of(case, verdict.step)
            tally.open.append(Open(verdict, observed, op, cell.releases, cell.torch))
    for id, held in cell.holds.items():
        for release in cell.releases:
            stood = tally.stood.get((id, release))
            if stood is None:
                stood = tally.stood[id, release] = Stood()
            if held is False:
                stood.failed[case.id] = stood.failed.get(case.id, ()) + cell.torch
            else:
                (stood.held if held else stood.unseen).add(case.id)


def op_of(case: Case, step: str | None) -> str:
    """The op of a step as verdicts name it: "matmul", "input/full"; a pass of a recipe itself."""
    if step is None:
        return "program"
    name, slash, full = step.partition("/")
    made: dict[str, str] = {one.result: one.op for one in case.question.mesh_steps}
    made |= {one.result: one.op for one in case.question.steps}
    made |= {one.name: "input" for one in case.question.inputs}
    return f"{made[name]}{slash}{full}" if name in made else step


def join(parts: Iterable[Tally]) -> Tally:
    """One tally of several, each of other cases."""
    whole = Tally()
    for part in parts:
        whole.cases += part.cases
        whole.open += part.open
        whole.replayed += part.replayed
        whole.strayed += part.strayed
        for key, numbers in part.counts.items():
            _plus(whole, key, numbers)
        for at, one in part.stood.items():
            stood = whole.stood.setdefault(at, Stood())
            stood.held |= one.held
            stood.unseen |= one.unseen
            stood.failed |= one.failed
    return whole


class _Work(msgspec.Struct, frozen=True):
    cases: tuple[Case, ...]
    shelf: dict[str, list[Record]]
    ledger: tuple[Entry, ...]
    force: Force
    live: Live | None


@lru_cache(maxsize=1)
def _read(paths: Paths, ledger: Path, pattern: str, live: Path | None) -> _Work:
    shelf, entries = shelves.load(paths), load_ledger(ledger, subjects())
    ran = None if live is None else replay.read(live)
    if ran is not None and live is not None:
        replay.check(ran, shelf, live)
    return _Work(chosen(pattern), shelf, entries, in_force(shelf, entries), ran)


def chosen(pattern: str) -> tuple[Case, ...]:
    """The cases of the catalogue whose slug matches."""
    return tuple(case for case in catalogue() if fnmatchcase(slug(case.id), pattern))


def _part(paths: Paths, ledger: Path, pattern: str, live: Path | None, first: int) -> Tally:
    work = _read(paths, ledger, pattern, live)
    some = work.cases[first : first + _TOGETHER]
    return count(some, work.shelf, work.ledger, work.force, work.live)


def judged(
    paths: Paths,
    ledger: Path,
    *,
    pattern: str = "*",
    live: Path | None = None,
    processes: int = 2,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Tally:
    """The catalogue, or those of its cases that match ``pattern``, in all pairs of records.

    ``live``: the verdicts of a live run, which the records of its releases have to give too.
    ``progress`` is told how many cases are done, of how many. Each process reads the records
    itself: that takes as long as reading them once, and leaves nothing to be sent.

    Raises:
        BadInput: a record, the ledger or the verdicts cannot be read, or two records are of one
            release.
    """
    total = len(chosen(pattern))
    parts = []
    work = partial(_part, paths, ledger, pattern, live)
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for part in pool.imap_unordered(work, range(0, total, _TOGETHER)):
            parts.append(part)
            progress(sum(one.cases for one in parts), total)
    tally = join(parts)
    tally.open.sort(key=lambda one: (one.verdict.case, one.verdict.subject, one.releases))
    return tally
