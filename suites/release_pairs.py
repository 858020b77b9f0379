"""How does every release of a framework compare with every release of another?

Judged from records alone, with no framework installed. Most answers are the same in most releases,
so each distinct answer of a case is judged once, and compared once with each distinct answer of
another framework. The verdicts are those of `suites.judge.judge` for the pair, line for line.
"""

from __future__ import annotations

import math
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from pathlib import Path

import msgspec

from adapters import record
from adapters.answer import Answer
from adapters.protocol import Promises
from adapters.record import Record
from adapters.registry import FRAMEWORKS, framework_of, subjects
from cases.catalogue import catalogue
from cases.facts import Facts, facts
from cases.ledger import Cause, load_ledger
from cases.model import Case, slug
from suites import frameworks_compared, replay
from suites import record_index as shelves
from suites.aspects import Context
from suites.judge import (
    ExplainedFinding,
    attach_causes,
    bases,
    check_alone,
    context_of_answer,
    mark_refused_routes,
    verdict_line,
)
from suites.record_index import RecordIndex, RecordPaths, release_of
from suites.replay import LiveRun, VerdictMismatch
from suites.truth import truth
from suites.verdict import OUTCOMES, Finding, Outcome, Verdict

# Few enough that both processes end together, many enough that neighbouring cases share work.
_CASES_PER_PART = 40


class Cell(msgspec.Struct, frozen=True):
    """Some of a subject's verdicts on a case, which are the same in all these releases.

    ``releases``: of the subject's framework. ``base`` and ``beside``: the framework that it is
    compared with and that one's releases; none for the subject's verdicts by itself. ``firsts``: by
    index, the cause of a finding that inherits none. ``unclear``: causes that fit one finding
    together.
    """

    subject: str
    releases: tuple[str, ...]
    base: str
    beside: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    firsts: dict[int, str] = {}
    unclear: tuple[tuple[str, ...], ...] = ()


class Unexplained(msgspec.Struct, frozen=True):
    """A divergence in all these releases that no cause explains, or several causes do.

    ``op``: of the step, with "/full" where it is materialised. ``causes``: all that fit.
    """

    verdict: Verdict
    op: str
    releases: tuple[str, ...]
    beside: tuple[str, ...]
    causes: tuple[str, ...] = ()


class CauseUse(msgspec.Struct):
    """Where a cause explains something: cases by release, the smallest case and its verdict."""

    cases: dict[str, set[str]] = {}
    smallest: tuple[int, str, Verdict] | None = None

    def meet(self, size: int, verdict: Verdict, releases: Iterable[str]) -> None:
        """Add one more verdict."""
        for release in releases:
            self.cases.setdefault(release, set()).add(verdict.case)
        this = (size, verdict.case, verdict)
        if self.smallest is None or this[:2] < self.smallest[:2]:
            self.smallest = this


# Subject, its release, and the framework and release that it is compared with ("" for none).
CountKey = tuple[str, str, str, str]


class Tally(msgspec.Struct):
    """The results of all cases.

    ``counts``: how many verdicts there are of each of `OUTCOMES`. ``met``: by id of a cause.
    ``replayed``: how many cases were compared with a live run; ``strayed``: the verdicts that
    differed.
    """

    cases: int = 0
    counts: dict[CountKey, list[int]] = {}
    open: list[Unexplained] = []
    met: dict[str, CauseUse] = {}
    replayed: int = 0
    strayed: list[VerdictMismatch] = []

    def pair(self, one: tuple[str, str], other: tuple[str, str]) -> list[int]:
        """The counts for two releases: each by itself, and the second compared with the first."""
        keys = [(subject, one[1], "", "") for subject in FRAMEWORKS[one[0]].subjects]
        for subject in FRAMEWORKS[other[0]].subjects:
            keys += [(subject, other[1], "", ""), (subject, other[1], *one)]
        rows = [self.counts[key] for key in keys if key in self.counts]
        return [sum(column) for column in zip(*rows)] or [0] * len(OUTCOMES)


class AnswerGroup(msgspec.Struct, frozen=True):
    """Releases of a framework with the same answers to a case, and the findings of each."""

    releases: tuple[str, ...]
    contexts: dict[str, Context]
    found: dict[str, list[Finding]]


def group_answers(case: Case, name: str, records: Sequence[Record]) -> list[AnswerGroup]:
    """The distinct answers of a framework to a case, each judged by itself once."""
    right, made = truth(case, name), []
    for releases, answers, promises in distinct_answers(case, records):
        contexts = {one.subject: context_of_answer(case, one, right, promises) for one in answers}
        found = {subject: check_alone(one) for subject, one in contexts.items()}
        for subject, own in found.items():
            mark_refused_routes(own, [one for one in answers if one.subject != subject])
        made.append(AnswerGroup(releases, contexts, found))
    return made


def judge_all_releases(case: Case, shelf: RecordIndex, ledger: Sequence[Cause]) -> Iterator[Cell]:
    """Every subject's verdicts on a case in all pairs, each distinct one once."""
    fact = facts(case)
    answered = {name: group_answers(case, name, records) for name, records in shelf.items()}
    for name, some in answered.items():
        for group in some:
            for subject, of in group.contexts.items():
                own = group.found[subject]
                settled = attach_causes(of, own, (), ledger, fact, None)
                yield _make_cell(case, subject, group.releases, "", (), settled)
                for base in FRAMEWORKS:
                    if base == name:
                        break
                    for other in answered.get(base, ()):
                        yield _compare_groups(case, subject, group, base, other, ledger, fact)


def _compare_groups(
    case: Case, subject: str, group: AnswerGroup, base: str, other: AnswerGroup,
    ledger: Sequence[Cause], fact: Facts,
) -> Cell:  # fmt: skip
    of, own = group.contexts[subject], group.found[subject]
    held = [one for one in bases(subject, other.contexts) if one in other.contexts]
    more = [
        finding
        for one in held
        for finding in frameworks_compared.compare_answers(
            of, other.contexts[one], frameworks_compared.suspect_steps(other.found[one])
        )
    ]
    # What is found in a comparison may follow from what is found without it.
    settled = attach_causes(of, [*own, *more], (), ledger, fact, None)[len(own) :]
    return _make_cell(case, subject, group.releases, base, other.releases, settled)


def _make_cell(
    case: Case, subject: str, releases: tuple[str, ...], base: str, beside: tuple[str, ...],
    settled: Sequence[ExplainedFinding],
) -> Cell:  # fmt: skip
    firsts, unclear = {}, []
    for index, one in enumerate(settled):
        if one.explained.first and one.explained.cause is not None:
            firsts[index] = one.explained.cause.id
            if one.explained.others:
                unclear.append((one.explained.cause.id, *one.explained.others))
    verdicts = tuple(verdict_line(case, subject, one) for one in settled)
    return Cell(subject, releases, base, beside, verdicts, firsts, tuple(unclear))


def distinct_answers(
    case: Case, records: Sequence[Record]
) -> list[tuple[tuple[str, ...], tuple[Answer, ...], Promises]]:
    """The distinct answers of a case in records, with their releases and their promises."""
    asked = record.digest_question(case.question)
    alike: dict[tuple[str, str], list[Record]] = {}
    for one in records:
        kept = one.lines.get(case.id)
        # An answer to another question shows only that this one was not asked.
        text = "none" if kept is None else ""
        if kept is not None and kept.digest == asked:
            text = one.line_digest(case.id)
        promised = repr(sorted(one.header.promises.items()))
        alike.setdefault((text, promised), []).append(one)
    return [
        (tuple(map(release_of, some)), some[0].answer(case.question), some[0].header.promises)
        for some in alike.values()
    ]


def verdicts_of_pair(judged: Iterable[Cell], releases: Mapping[str, str]) -> list[Verdict]:
    """Those verdicts of `judge_all_releases` that belong to one release of each framework."""
    return [
        verdict
        for cell in judged
        if releases.get(framework_of(cell.subject)) in cell.releases
        and (not cell.base or releases.get(cell.base) in cell.beside)
        for verdict in cell.verdicts
    ]


def count(
    cases: Iterable[Case], shelf: RecordIndex, ledger: Sequence[Cause], live: LiveRun | None = None
) -> Tally:
    """Judge cases in all pairs, in this process, and compare them with the run in ``live``."""
    tally = Tally()
    grouped: dict[tuple[str, tuple[str, ...], str, tuple[str, ...]], Counter[Outcome]] = {}
    for case in cases:
        tally.cases += 1
        judged = tuple(judge_all_releases(case, shelf, ledger))
        if live is not None and case.id in live.verdicts:
            tally.replayed += 1
            tally.strayed += replay.compare_verdicts(
                live.verdicts[case.id],
                verdicts_of_pair(judged, live.releases),
                replay.unstable_subjects(case.id, live, shelf),
            )
        for cell in judged:
            at = (cell.subject, cell.releases, cell.base, cell.beside or ("",))
            grouped.setdefault(at, Counter()).update(one.verdict for one in cell.verdicts)
            _collect(tally, case, cell)
    for (subject, releases, base, beside), numbers in grouped.items():
        row = [numbers[outcome] for outcome in OUTCOMES]
        for release in releases:
            for other in beside:
                _add_counts(tally, (subject, release, base, other), row)
    return tally


def _add_counts(tally: Tally, key: CountKey, row: Sequence[int]) -> None:
    have = tally.counts.get(key, [0] * len(OUTCOMES))
    tally.counts[key] = [one + other for one, other in zip(have, row, strict=True)]


def _collect(tally: Tally, case: Case, cell: Cell) -> None:
    for index, verdict in enumerate(cell.verdicts):
        if verdict.verdict == "divergence":
            where = op_of(case, verdict.step), cell.releases, cell.beside
            tally.open.append(Unexplained(verdict, *where))
        if index in cell.firsts:
            met = tally.met.setdefault(cell.firsts[index], CauseUse())
            met.meet(case_size(case), verdict, cell.releases)
    for causes in cell.unclear:
        verdict = next(one for one in cell.verdicts if one.ledger == causes[0])
        where = op_of(case, verdict.step), cell.releases, cell.beside
        tally.open.append(Unexplained(verdict, *where, causes))


def case_size(case: Case) -> int:
    """How small a case is: devices, then elements of its inputs, then steps, in one number."""
    elements = sum(math.prod(given.shape) for given in case.question.inputs)
    return case.question.mesh.size * 10**9 + elements * 10**3 + len(case.question.steps)


def op_of(case: Case, step: str | None) -> str:
    """The op of a step as verdicts name it: "matmul", "input/full"; for a recipe the pass."""
    if step is None:
        return "program"
    name, slash, full = step.partition("/")
    made: dict[str, str] = {one.result: one.op for one in case.question.mesh_steps}
    made |= {one.result: one.op for one in case.question.steps}
    made |= {one.name: "input" for one in case.question.inputs}
    return f"{made[name]}{slash}{full}" if name in made else step


def join_tallies(parts: Iterable[Tally]) -> Tally:
    """Join tallies of different cases."""
    whole = Tally()
    for part in parts:
        whole.cases += part.cases
        whole.open += part.open
        whole.replayed += part.replayed
        whole.strayed += part.strayed
        for key, numbers in part.counts.items():
            _add_counts(whole, key, numbers)
        for id, one in part.met.items():
            met = whole.met.setdefault(id, CauseUse())
            for release, ids in one.cases.items():
                met.cases.setdefault(release, set()).update(ids)
            if one.smallest is not None:
                met.meet(one.smallest[0], one.smallest[2], ())
    return whole


class _Inputs(msgspec.Struct, frozen=True):
    cases: tuple[Case, ...]
    shelf: dict[str, list[Record]]
    ledger: tuple[Cause, ...]
    live: LiveRun | None


@lru_cache(maxsize=1)
def _read_inputs(paths: RecordPaths, ledger: Path, pattern: str, live: Path | None) -> _Inputs:
    shelf, causes = shelves.load_records(paths), load_ledger(ledger, subjects())
    ran = None if live is None else replay.read_live_run(live)
    if ran is not None and live is not None:
        replay.check_releases(ran, shelf, live)
    return _Inputs(select_cases(pattern), shelf, causes, ran)


def select_cases(pattern: str) -> tuple[Case, ...]:
    """The cases of the catalogue whose slug matches."""
    return tuple(case for case in catalogue() if fnmatchcase(slug(case.id), pattern))


def _judge_part(
    paths: RecordPaths, ledger: Path, pattern: str, live: Path | None, first: int
) -> Tally:
    work = _read_inputs(paths, ledger, pattern, live)
    some = work.cases[first : first + _CASES_PER_PART]
    return count(some, work.shelf, work.ledger, work.live)


def judge_catalogue(
    paths: RecordPaths,
    ledger: Path,
    *,
    pattern: str = "*",
    live: Path | None = None,
    processes: int = 2,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Tally:
    """Judge the catalogue, or its cases that match ``pattern``, in all pairs of records.

    ``live``: the verdicts of a live run; the records of its releases must give the same.
    ``progress`` gets the number of cases done, and of all. Each process reads the records itself,
    which takes as long as reading them once, and nothing has to be sent.

    Raises:
        BadInput: a record, the ledger or the verdicts cannot be read, or two records are of one
            release.
    """
    total = len(select_cases(pattern))
    parts = []
    work = partial(_judge_part, paths, ledger, pattern, live)
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for part in pool.imap_unordered(work, range(0, total, _CASES_PER_PART)):
            parts.append(part)
            progress(sum(one.cases for one in parts), total)
    tally = join_tallies(parts)
    tally.open.sort(key=lambda one: (one.verdict.case, one.verdict.subject, one.releases))
    return tally
