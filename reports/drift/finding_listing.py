"""Which cases are in a finding? For ``--finding``: all of them, with before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cases.errors import nearest_name
from cases.model import Case
from reports.drift.model import DriftFinding, FrameworkHistory
from reports.drift.wording import case_name, format_extent, format_places, title


class UnknownId(Exception):
    """There is no such case or finding; the message has the ids that are spelt most like it."""

    def __init__(self, what: str, id: str, near: Sequence[str]):
        super().__init__(f"no {what} is called {id!r}; the nearest: {', '.join(near) or 'none'}")


def list_finding(
    id: str, stories: Sequence[FrameworkHistory], known: Mapping[str, Case]
) -> list[str]:
    """A finding and its changes, a few lines each. ``known``: the catalogue, by id.

    Raises:
        Unknown: there is none with this id.
    """
    found = {one.id: one for story in stories for one in story.findings}
    if id not in found:
        raise UnknownId("finding", id, [near for near in [nearest_name(id, found)] if near])
    return list(_format_finding(found[id], known))


def _format_finding(one: DriftFinding, known: Mapping[str, Case]) -> list[str]:
    silent = ", silent" if one.silent else ""
    where = f" in {format_places(one)}" if format_places(one) else ""
    lines = [
        f"{one.id}  {one.framework} {one.older} → {one.newer}  {one.kind}{silent}  {one.subject}",
        f"  {title(one)}{where}, {format_extent(one)}",
    ]
    for change in one.changes:
        lines += [
            "",
            "  " + " at ".join(filter(None, (case_name(change.case, known), change.step))),
        ]
        for before, after in ((change.before, change.after), *change.counts):
            lines += [f"    before  {before}", f"    after   {after}"]
    return lines
