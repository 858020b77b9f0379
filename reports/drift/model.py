"""What is a change, and what is a finding? Data that the comparisons make and the pages show.

Knows neither how answers are compared nor how anything is printed.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

ChangeKind = Literal[
    "value", "layout", "count", "rounding", "memory", "refusal", "support", "default", "name",
    "signature", "printed",
]  # fmt: skip

# In the order of consequence.
CHANGE_KINDS: tuple[ChangeKind, ...] = get_args(ChangeKind)

KIND_MEANINGS: dict[ChangeKind, str] = {
    "value": "a number, a shape or a dtype became another",
    "layout": "another layout is reported, and with it other shards, offsets and collectives",
    "count": "other collectives are fired: kinds, axes, bytes, forward or backward",
    "rounding": "a number changed within the tolerance of its op, and counts as the same",
    "memory": "the most bytes that a plan says one device holds",
    "refusal": "an error, a crash or a hang came, went or reads otherwise",
    "support": "a thing that the release or the route has, or has not",
    "default": "a default that matters",
    "name": "a public name is new, gone, moved or deprecated",
    "signature": "a public name is called otherwise",
    "printed": "a placement, a mesh or a spec prints otherwise",
}

# What a number was and is, where it is known which is right; gravest first.
CorrectnessChange = Literal["broken", "wrong otherwise", "", "mended"]
CORRECTNESS_CHANGES: tuple[CorrectnessChange, ...] = get_args(CorrectnessChange)


class Change(msgspec.Struct, frozen=True):
    """One thing that one release does otherwise than the one before.

    ``subject``: who answers, or the framework for its public interface. ``case``: the id, or the
    public name. ``step``: the input or result, "y/full" for materialising y, "" for the whole.
    ``where``: the op or kind of program that it is in. ``pattern``: what it has in common with
    other changes, "all-gather → all-to-all". ``before`` and ``after``: in full, for people.
    ``silent``: of a value, layout or count, that the program ran to its end in both releases, so
    nothing told the user.
    ``counts``: of a layout, the collectives that changed with it, before and after.
    ``family``: what kind of op it is in. ``weight``: how much it breaks among changes of its kind:
    the less, the more.
    """

    kind: ChangeKind
    subject: str
    case: str
    step: str
    where: str
    pattern: str
    before: str
    after: str
    silent: bool = False
    turn: CorrectnessChange = ""
    counts: tuple[tuple[str, str], ...] = ()
    family: str = ""
    weight: int = 0


class Upgrade(msgspec.Struct, frozen=True):
    """All that lies between two consecutive releases of one framework.

    ``changes``: every difference of the answers that both have, and of the public interface.
    ``asked``: how many questions both were asked, word for word. ``apart``: ids of those that
    only one was asked, or each in another wording: no drift. ``unstable``: (case, subject) whose
    answer differs from run to run in one of the two: no drift. ``unseen``: (case, subject, step)
    whose collectives one of the two cannot show. ``listed``: the interface of both is known.
    """

    framework: str
    older: str
    newer: str
    changes: tuple[Change, ...]
    asked: int = 0
    apart: tuple[str, ...] = ()
    unstable: tuple[tuple[str, str], ...] = ()
    unseen: tuple[tuple[str, str, str], ...] = ()
    listed: bool = False


class DriftFinding(msgspec.Struct, frozen=True):
    """Changes of one border that are alike, with the smallest case that shows them.

    ``id``: eight hex digits that stay for as long as the finding is the same. ``places``: the
    ops, or kinds of program, that it is in. ``changes``: the smallest first, then by case.
    """

    id: str
    framework: str
    older: str
    newer: str
    kind: ChangeKind
    subject: str
    pattern: str
    places: tuple[str, ...]
    changes: tuple[Change, ...]

    @property
    def smallest(self) -> Change:
        """The change whose case is the smallest."""
        return self.changes[0]

    @property
    def silent(self) -> bool:
        """Whether nothing told the user; it is so of all its changes or of none."""
        return self.smallest.silent

    @property
    def cases(self) -> tuple[str, ...]:
        """The ids of its cases, or its public names, each once."""
        return tuple(dict.fromkeys(change.case for change in self.changes))

    @property
    def with_counts(self) -> int:
        """In how many of its changes of a layout the collectives changed with it."""
        return sum(bool(change.counts) for change in self.changes)


class Release(msgspec.Struct, frozen=True):
    """One release, as its record's header has it.

    ``unseen``: ways in which it hides collectives, a sentence each. ``listed``: its public
    interface is known.
    """

    framework: str
    release: str
    python: str
    platform: str
    unseen: tuple[str, ...]
    count: int
    listed: bool = False


class ImportableName(msgspec.Struct, frozen=True):
    """In which releases a public name is there; ``warns``: in which it warns, and how."""

    path: str
    kind: str
    used: bool
    releases: tuple[str, ...]
    warns: tuple[str, ...] = ()
    warning: str = ""


class FrameworkHistory(msgspec.Struct, frozen=True):
    """One framework through all its releases, oldest first.

    ``findings``: border by border, newest border last, the most consequential first in each.
    """

    framework: str
    releases: tuple[Release, ...]
    borders: tuple[Upgrade, ...]
    findings: tuple[DriftFinding, ...]
    imports: tuple[ImportableName, ...] = ()
