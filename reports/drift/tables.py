"""What do the tables over all releases show? How much changed, and which imports work."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from reports.drift.interface_changes import is_class_attribute
from reports.drift.model import CHANGE_KINDS, ChangeKind, DriftFinding, FrameworkHistory, Upgrade
from reports.formatting import format_releases, group_releases


def format_records(story: FrameworkHistory) -> str:
    """The recorded releases, and where their records were made."""
    every = [one.release for one in story.releases]
    where: dict[str, list[str]] = {}
    for one in story.releases:
        place = f"Python {one.python}, {one.platform}, {one.count:,} questions"
        where.setdefault(place, []).append(one.release)
    return "; ".join(f"{format_releases(every, some)} ({place})" for place, some in where.items())


class ChangeCounts(msgspec.Struct, frozen=True):
    """How much changed in an upgrade: findings by kind, and the cases that they are in."""

    border: Upgrade
    findings: dict[ChangeKind, int]
    cases: dict[ChangeKind, int]
    silent: int


def count_changes(story: FrameworkHistory) -> list[ChangeCounts]:
    """The counts of each upgrade, the newest first."""
    rows = []
    for border in reversed(story.borders):
        own = [one for one in story.findings if one.newer == border.newer]
        by_kind = {kind: [one for one in own if one.kind == kind] for kind in CHANGE_KINDS}
        rows.append(
            ChangeCounts(
                border,
                {kind: len(found) for kind, found in by_kind.items()},
                {kind: _cases(found) for kind, found in by_kind.items()},
                _cases([one for one in by_kind["value"] if one.silent]),
            )
        )
    return rows


def _cases(found: Sequence[DriftFinding]) -> int:
    return len({case for finding in found for case in finding.cases})


def count_left_out(border: Upgrade) -> tuple[int, int, int]:
    """How much is no drift: questions not asked in both, unstable answers, steps not seen."""
    return len(border.apart), len(border.unstable), len(border.unseen)


class Availability(msgspec.Struct, frozen=True):
    """Since and until which release a public name is there, and in which releases it warns."""

    path: str
    since: str
    until: str
    warns: str


def find_availability(story: FrameworkHistory) -> tuple[list[Availability], list[str]]:
    """The public names that are not in every release or warn in some; and all others.

    An attribute of a class is among them only if an adapter or a recipe uses it.
    """
    listed = [one.release for one in story.releases if one.listed]
    classes = {one.path for one in story.imports if one.kind == "class"}
    rows, always = [], []
    for one in story.imports:
        member = is_class_attribute(one.path) or one.path.rpartition(".")[0] in classes
        if not one.releases or (member and not one.used):
            continue
        if list(one.releases) == listed and not one.warns:
            always.append(one.path)
            continue
        first, last = one.releases[0], one.releases[-1]
        left = "" if last == listed[-1] else f"{last}; removed in {listed[listed.index(last) + 1]}"
        whole = len(group_releases(listed, one.releases)) == 1
        gaps = "" if whole else format_releases(listed, one.releases)
        rows.append(
            Availability(
                one.path,
                gaps or (f"{first} or before" if first == listed[0] else first),
                left or "still there",
                f"{format_releases(listed, one.warns)}: {one.warning}" if one.warns else "",
            )
        )
    return rows, always
