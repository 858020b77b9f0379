"""What is an answer? Everything an adapter saw while a framework worked on one question.

An answer is data. It can be saved, compared and shown where no framework is installed.
It does not say whether anything is right.
"""

from __future__ import annotations

import msgspec

from cases.arrays import Array
from cases.model import CollectiveKind, Foreign, Layout, Mesh, Pass


class Collective(msgspec.Struct, frozen=True):
    """One collective of one step.

    ``axes``: the mesh axes that it runs over, in mesh order; empty if its groups are not those of
    any axes. ``group``: devices per group. ``bytes``: size of the local operand on the device where
    it is largest. ``pass_`` "update" is an optimiser's step. ``in_loop``: it is in a loop body, and
    is counted once.
    """

    kind: CollectiveKind
    axes: tuple[str, ...]
    group: int
    bytes: int
    pass_: Pass = "forward"
    in_loop: bool = False


class Observed(msgspec.Struct, frozen=True):
    """What an adapter saw of one input or result.

    ``shards`` and ``offsets``: one per mesh position, None where the framework gives none.
    ``full``: the materialised global result, once if every rank got the same, else one per mesh
    position. ``collectives`` fired by the step itself, ``full_collectives`` by materialising it;
    None where the route cannot tell. ``disagreements``: what ranks report differently apart from
    the values, a sentence each. ``note``: what the framework says beyond a layout, such as JAX's
    ``reduced``. ``local``: in a dry run, the shape of the largest shard.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    layout: Layout | Foreign | None = None
    shards: tuple[Array | None, ...] | None = None
    offsets: tuple[tuple[int, ...] | None, ...] | None = None
    full: tuple[Array, ...] = ()
    collectives: tuple[Collective, ...] | None = None
    full_collectives: tuple[Collective, ...] | None = None
    disagreements: tuple[str, ...] = ()
    note: str = ""
    mesh: Mesh | None = None
    local: tuple[int, ...] | None = None


class Done(msgspec.Struct, frozen=True, tag=True):
    """The program ran to its end."""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The framework raised: exception type, first line, and the step (or input) at fault."""

    error: str
    line: str
    step: str


class Unsupported(msgspec.Struct, frozen=True, tag=True):
    """The release, the route or the adapter cannot do this."""

    why: str
    step: str = ""


class Crashed(msgspec.Struct, frozen=True, tag=True):
    """A process died: how (signal or exit code), which rank, and the end of what it printed."""

    how: str
    rank: int | None = None
    output: str = ""


class Hung(msgspec.Struct, frozen=True, tag=True):
    """No answer by the deadline, or a rank raised while others waited for it in a collective.

    ``raised`` is what the first rank to raise raised, if one did; ``stacks`` holds one text
    per rank, "" for a rank that had finished.
    """

    why: str
    step: str = ""
    raised: str = ""
    stacks: tuple[str, ...] = ()


End = Done | Refused | Unsupported | Crashed | Hung


class Answer(msgspec.Struct, frozen=True, tag=True):
    """One subject's answer to one question.

    ``seen``: the checked inputs and results that were reached, in program order. ``program``:
    collectives of the whole program, if the route compiles it as one. ``complaints``:
    contradictions that the adapter's own cross-checks of its counters found. ``apart``: a sentence
    for each rank that ended in another way than the lowest rank that raised. ``peak``: in a dry
    run, the most bytes that one device holds while the program runs, with inputs and all that was
    made before; None if nothing tells.
    """

    question: str
    subject: str
    end: End
    seen: tuple[Observed, ...] = ()
    program: tuple[Collective, ...] | None = None
    complaints: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    peak: int | None = None

    def __getitem__(self, name: str) -> Observed:
        """What the answer shows of ``name``; KeyError if that was not reached."""
        for observed in self.seen:
            if observed.name == name:
                return observed
        raise KeyError(name)


def format_end(end: End) -> str:
    """How an answer ended, in a few words."""
    match end:
        case Done():
            return "done"
        case Refused(error, line, step):
            return f"refused at {step}: {error}: {line}"
        case Unsupported(why, step):
            return f"unsupported{f' at {step}' if step else ''}: {why}"
        case Crashed(how):
            return f"crashed: {how}"
        case Hung(why, step):
            return f"hung{f' at {step}' if step else ''}: {why}"


def received_bytes(collective: Collective) -> float:
    """Bytes that the busiest device receives, from kind, operand size and group size alone.

    With b the local operand and g the group: all-gather (g-1)*b, all-to-all and
    reduce-scatter b*(g-1)/g, all-reduce 2*b*(g-1)/g, permute, broadcast and scatter b.
    """
    b, g = collective.bytes, collective.group
    match collective.kind:
        case "all-gather" | "gather":
            return (g - 1) * b
        case "all-to-all" | "reduce-scatter":
            return b * (g - 1) / g
        case "all-reduce":
            return 2 * b * (g - 1) / g
        case "collective-permute" | "broadcast" | "scatter":
            return b
