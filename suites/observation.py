"""What can be wrong with an answer, or differ from what was expected? One type for each kind.

Observations are data and compare as data. No code reads text to learn what was seen. `wording`
turns them into text for a person at the very end.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from adapters.answer import Collective, Crashed, End, Hung, Refused, received_bytes
from cases.arrays import Array
from cases.ledger import RedistributionPlanKind
from cases.model import Foreign, Layout, Tolerance

Severity = Literal["wrong", "refused", "route refused", "costly", "free", "documented"]
SEVERITIES: tuple[Severity, ...] = (
    "wrong", "refused", "route refused", "costly", "free", "documented",
)  # fmt: skip

Fired = tuple[Collective, ...]


class WrongValue(msgspec.Struct, frozen=True, tag=True):
    """A global value that is not the right one, on one mesh ``position``, or on all if None.

    ``by_shards``: every shard is what the program's own steps make of that device's shard, so that
    the framework did what it was asked.
    """

    wanted: Array
    got: Array
    position: int | None
    allowed: Tolerance
    by_shards: bool = False


class WrongDtype(msgspec.Struct, frozen=True, tag=True):
    """A dtype that is not the right one."""

    wanted: str
    got: str


class WrongShape(msgspec.Struct, frozen=True, tag=True):
    """A global shape that is not the right one."""

    wanted: tuple[int, ...]
    got: tuple[int, ...]


class WrongShard(msgspec.Struct, frozen=True, tag=True):
    """A local shard on one mesh ``position`` with other elements, or (as ints) another shape."""

    position: int
    wanted: Array | tuple[int, ...]
    got: Array | tuple[int, ...]


class WrongOffset(msgspec.Struct, frozen=True, tag=True):
    """A shard on one mesh ``position`` that is reported to begin at another index."""

    position: int
    wanted: tuple[int, ...]
    got: tuple[int, ...]


class WrongLayout(msgspec.Struct, frozen=True, tag=True):
    """A layout that differs from the one that was asked for, or from that of the parallel plan."""

    wanted: Layout
    got: Layout | Foreign | None


class OtherLayout(msgspec.Struct, frozen=True, tag=True):
    """A layout that nobody asked for, where another framework chose a different one."""

    theirs: Layout | Foreign
    ours: Layout | Foreign


class RanksDiffer(msgspec.Struct, frozen=True, tag=True):
    """Ranks report different things: in words, or the value on the first and on ``position``."""

    reports: tuple[str, ...]
    position: int | None = None
    first: Array | None = None
    other: Array | None = None


class OtherRedistributionPlan(msgspec.Struct, frozen=True, tag=True):
    """Collectives that are neither the implied ones nor explained by a lowering rule."""

    kind: RedistributionPlanKind
    implied: Fired
    fired: Fired
    cheapest: Fired | None = None

    @property
    def more(self) -> bool:
        """Whether it moves more bytes than the implied plan."""
        return total_bytes(self.fired) > total_bytes(self.implied)


class BrokenContract(msgspec.Struct, frozen=True, tag=True):
    """A pass of a training step that fires other collectives than its parallel plan needs.

    ``lacking`` and ``extra``: what no lowering rule accounts for, with all its bytes in one
    collective for each kind and group of axes.
    """

    kind: RedistributionPlanKind
    implied: Fired
    fired: Fired
    lacking: Fired
    extra: Fired

    @property
    def more(self) -> bool:
        """Whether it moves more bytes than the contract, counting what it lacks."""
        return total_bytes(self.fired) > total_bytes(self.implied)


class WrongCount(msgspec.Struct, frozen=True, tag=True):
    """A number of collectives, by kind, that differs from what the case states."""

    wanted: dict[str, int]
    fired: Fired


class TooMany(msgspec.Struct, frozen=True, tag=True):
    """More collectives than the case says suffice."""

    enough: dict[str, int]
    fired: Fired


class CountersDisagree(msgspec.Struct, frozen=True, tag=True):
    """The counted collectives contradict another counter, or the shards before and after."""

    why: str
    fired: Fired = ()


class Missing(msgspec.Struct, frozen=True, tag=True):
    """A field that the route promised and does not show; "result" for all of a result."""

    field: str


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The program did not run to its end."""

    end: Refused | Hung | Crashed


class NotRefused(msgspec.Struct, frozen=True, tag=True):
    """An invalid mesh step that made a mesh."""

    got: Array | None


class WrongMesh(msgspec.Struct, frozen=True, tag=True):
    """The devices of a mesh, or of a group along one of its axes, as one ``position`` sees them."""

    position: int
    wanted: Array
    got: Array


class Difference(msgspec.Struct, frozen=True):
    """Two answers to one question differ in ``what``; both sides in words."""

    what: str
    before: str
    after: str


class DryRunDiffers(msgspec.Struct, frozen=True, tag=True):
    """A dry run shows something else than the same release shows with data."""

    differences: tuple[Difference, ...]


class Changed(msgspec.Struct, frozen=True, tag=True):
    """An answer differs from the record that it is compared with."""

    differences: tuple[Difference, ...]


Observation = (
    WrongValue | WrongDtype | WrongShape | WrongShard | WrongOffset | WrongLayout | OtherLayout
    | RanksDiffer | OtherRedistributionPlan | BrokenContract | WrongCount | TooMany
    | CountersDisagree | Missing | Ended | NotRefused | WrongMesh | DryRunDiffers | Changed
)  # fmt: skip

# How a cause names a kind of observation. Kinds that no cause can explain have no name.
KIND_NAMES: dict[type, str] = {
    WrongValue: "wrong value",
    WrongDtype: "wrong dtype",
    WrongShape: "wrong shape",
    WrongShard: "wrong shard",
    WrongOffset: "wrong offset",
    WrongLayout: "wrong layout",
    RanksDiffer: "ranks differ",
    OtherRedistributionPlan: "other plan",
    BrokenContract: "other plan",
    WrongCount: "wrong count",
    TooMany: "wrong count",
    CountersDisagree: "counters disagree",
    Missing: "missing",
    NotRefused: "not refused",
    WrongMesh: "wrong mesh",
    DryRunDiffers: "dry run differs",
    Refused: "refused",
    Hung: "hung",
    Crashed: "crashed",
}


def kind_name(one: Observation) -> str:
    """How a cause names this kind of observation; "" for a kind that no cause explains."""
    return KIND_NAMES.get(type(one.end) if isinstance(one, Ended) else type(one), "")


def severity_of(one: Observation) -> Severity:
    """How grave an observation is by itself, before the rest of its case is known."""
    match one:
        case OtherLayout():
            return "free"
        case OtherRedistributionPlan():
            return "costly" if one.more else "free"
        case BrokenContract():
            # If a collective that a parallel plan needs is not there, something is not reduced.
            less = total_bytes(one.fired) < total_bytes(one.implied)
            return "costly" if one.more else "wrong" if less else "free"
        case Ended(Refused()):
            return "refused"
        case _:
            return "wrong"


def failed_ending(end: End) -> Ended | None:
    """The observation of an end that is not the program's own."""
    return Ended(end) if isinstance(end, Refused | Hung | Crashed) else None


def total_bytes(fired: Fired) -> float:
    """Bytes that the busiest device receives in all of these collectives."""
    return sum(map(received_bytes, fired))
