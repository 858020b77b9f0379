"""What is a change, and what is a finding? Data that comparisons make and pages show."""

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
    "value": "a value, a shape or a dtype changed",
    "layout": "the reported layout changed, and with it shards, offsets and collectives",
    "count": "the collectives changed: their kinds, axes or bytes, forward or backward",
    "rounding": "a value changed within the tolerance of its op, and counts as the same",
    "memory": "the peak bytes of a device in a dry run changed",
    "refusal": "an error, a crash or a hang is new, is gone, or has another message",
    "support": "the release or the route began or ceased to support something",
    "default": "a default that matters changed",
    "name": "a public name is new, gone, moved or deprecated",
    "signature": "the signature of a public name changed",
    "printed": "a placement, a mesh or a spec prints differently",
}

# Whether a value was right and is right, where that is known; gravest first.
CorrectnessChange = Literal["broken", "still wrong", "", "mended"]
CORRECTNESS_CHANGES: tuple[CorrectnessChange, ...] = get_args(CorrectnessChange)


class Change(msgspec.Struct, frozen=True):
    """One thing that changed from one release to the next.

    ``subject``: who answers, or the framework for its public interface. ``case``: the id, or the
    public name. ``step``: the input or result, "y/full" for materialising y, "" for the whole
    program. ``where``: the op or kind of program. ``pattern``: what it has in common with other
    changes, "all-gather → all-to-all". ``before`` and ``after``: in full, for people. ``silent``:
    a value, layout or count changed in a program that finished in both releases. ``counts``: the
    collectives that changed with a layout, before and after. ``family``: the family of the op.
    ``weight``: orders changes of one kind; the least breaks most.
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
    """Everything that changed between two consecutive releases of one framework.

    ``changes``: every difference of the answers that both have, and of the public interface.
    ``asked``: how many questions were asked of both, in the same words. ``apart``: ids of the
    others. ``unstable``: (case, subject) whose answer differs from run to run in one of the two.
    ``unseen``: (case, subject, step) whose collectives one of the two cannot show. None of these
    three is drift. ``listed``: the interface of both is known.
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
    """Similar changes of one upgrade.

    ``id``: eight hex digits that stay while the finding is the same. ``places``: its ops, or kinds
    of program. ``changes``: the one of the smallest case first, then by case.
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
        """Whether nothing told the user; all its changes are silent, or none is."""
        return self.smallest.silent

    @property
    def cases(self) -> tuple[str, ...]:
        """The ids of its cases, or its public names, each once."""
        return tuple(dict.fromkeys(change.case for change in self.changes))

    @property
    def with_counts(self) -> int:
        """In how many of its changes the collectives changed together with the layout."""
        return sum(bool(change.counts) for change in self.changes)


class Release(msgspec.Struct, frozen=True):
    """One release, as its record's header has it.

    ``unseen``: sentences that say which collectives it hides. ``listed``: its interface is known.
    """

    framework: str
    release: str
    python: str
    platform: str
    unseen: tuple[str, ...]
    count: int
    listed: bool = False


class ImportableName(msgspec.Struct, frozen=True):
    """The releases that have a public name, and those in which it warns (``warns``)."""

    path: str
    kind: str
    used: bool
    releases: tuple[str, ...]
    warns: tuple[str, ...] = ()
    warning: str = ""


class FrameworkHistory(msgspec.Struct, frozen=True):
    """One framework through all its releases, oldest first.

    ``findings``: upgrade by upgrade, the newest last; in each the gravest first.
    """

    framework: str
    releases: tuple[Release, ...]
    borders: tuple[Upgrade, ...]
    findings: tuple[DriftFinding, ...]
    imports: tuple[ImportableName, ...] = ()
