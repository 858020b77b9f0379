"""Which cases are in a finding? All of them, each with its before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cases.errors import nearest
from cases.model import Case
from reports.drift.model import Finding, Story
from reports.drift.words import extent, named, places, title


class Unknown(Exception):
    """Nothing is called so: what it is, the id, and the ids that are spelt most like it."""

    def __init__(self, what: str, id: str, near: Sequence[str]):
        super().__init__(f"no {what} is called {id!r}; the nearest: {', '.join(near) or 'none'}")


def listed(id: str, stories: Sequence[Story], known: Mapping[str, Case]) -> list[str]:
    """A finding and its changes, a few lines each. ``known``: the catalogue, by id.

    Raises:
        Unknown: there is none with this id.
    """
    found = {one.id: one for story in stories for one in story.findings}
    if id not in found:
        raise Unknown("finding", id, [near for near in [nearest(id, found)] if near])
    return list(_told(found[id], known))


def _told(one: Finding, known: Mapping[str, Case]) -> list[str]:
    silent = ", silent" if one.silent else ""
    where = f" in {places(one)}" if places(one) else ""
    lines = [
        f"{one.id}  {one.framework} {one.older} → {one.newer}  {one.kind}{silent}  {one.subject}",
        f"  {title(one)}{where}, {extent(one)}",
    ]
    for change in one.changes:
        lines += ["", "  " + " at ".join(filter(None, (named(change.case, known), change.step)))]
        for before, after in ((change.before, change.after), *change.counts):
            lines += [f"    before  {before}", f"    after   {after}"]
    return lines
