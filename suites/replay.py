"""Do the records of two releases give the verdicts of a live run of them, case by case?

``--verdicts`` writes the verdicts of a live run to a file. The records must give the same lines,
word for word. Where a record marks a subject's answer as unstable, the texts for people are left
out of the comparison.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from adapters.registry import FRAMEWORKS
from cases.errors import BadInput, Where
from suites.judge import bases
from suites.record_index import RecordIndex, release_of
from suites.sources import public_release
from suites.verdict import Verdict


class LiveRun(msgspec.Struct, frozen=True):
    """A live run: its releases by framework, and its verdicts by case."""

    releases: dict[str, str]
    verdicts: dict[str, list[Verdict]]


class VerdictMismatch(msgspec.Struct, frozen=True):
    """A verdict that only one side gave; the other is None."""

    live: Verdict | None
    replayed: Verdict | None


class _Head(msgspec.Struct, frozen=True):
    versions: dict[str, str]


def read_live_run(path: Path) -> LiveRun:
    """The verdicts of a live run, as ``--verdicts`` leaves them.

    Raises:
        BadInput: it cannot be read, or is no such file.
    """
    where = Where(str(path))
    try:
        head, *lines = path.read_bytes().splitlines()
        versions = msgspec.json.decode(head, type=_Head).versions
        verdicts = [msgspec.json.decode(line, type=Verdict) for line in lines]
    except OSError as error:
        raise where.error(f"{error.strerror}", "a file of verdicts") from None
    except (ValueError, msgspec.DecodeError) as error:
        raise where.error(f"no verdicts ({error})", "what --verdicts leaves") from None
    by_case: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_case.setdefault(verdict.case, []).append(verdict)
    return LiveRun({name: public_release(release) for name, release in versions.items()}, by_case)


def check_releases(live: LiveRun, shelf: RecordIndex, path: Path) -> None:
    """Refuse a live run of a release that has no record.

    Raises:
        BadInput: which release.
    """
    for name, release in live.releases.items():
        if release not in map(release_of, shelf.get(name, ())):
            found = f"a run of {name} {release}"
            raise BadInput(str(path), "", "line 1", found, "a release that there is a record of")


def unstable_subjects(case: str, live: LiveRun, shelf: RecordIndex) -> frozenset[str]:
    """The subjects whose answers to a case are marked as unstable in the records of these releases.

    Subjects that are compared with one of those are among them.
    """
    found: set[str] = set()
    for name, records in shelf.items():
        for one in records:
            if release_of(one) == live.releases.get(name) and case in one.lines:
                found |= {*one.lines[case].unstable}
    every = [subject for row in FRAMEWORKS.values() for subject in row.subjects]
    return frozenset(one for one in every if found & {one, *bases(one, every)})


def compare_verdicts(
    live: Iterable[Verdict], replayed: Iterable[Verdict], unstable: frozenset[str]
) -> list[VerdictMismatch]:
    """The verdicts of a case that differ, with those about the same thing in one pair."""
    ours, theirs = (
        [_without_details(one, unstable) for one in lines] for lines in (live, replayed)
    )
    found = []
    left = list(theirs)
    missing = []
    for one in ours:
        if one in left:
            left.remove(one)
        else:
            missing.append(one)
    for one in missing:
        other = next((other for other in left if _verdict_key(other) == _verdict_key(one)), None)
        if other is not None:
            left.remove(other)
        found.append(VerdictMismatch(one, other))
    return found + [VerdictMismatch(None, other) for other in left]


def _without_details(one: Verdict, unstable: frozenset[str]) -> Verdict:
    if one.subject not in unstable:
        return one
    return msgspec.structs.replace(one, wanted="", got="", why="")


def _verdict_key(one: Verdict) -> tuple[str, str | None, str, str]:
    return one.subject, one.step, one.aspect, one.against
