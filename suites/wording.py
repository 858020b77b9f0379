"""How is what was seen told to a person? Places, layouts, collectives and observations as text.

The only room in which observations become text. Nothing here is ever read back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from adapters.answer import Collective, End, ending
from cases.arrays import Array
from cases.layout import coordinate
from cases.model import Case, Foreign, Layout, Mesh
from cases.notation import both
from suites import observation as seen
from suites.observation import Fired, Observation, volume
from suites.tensors import FULL, bare, mesh_of
from suites.values import EXACT, difference, show
from suites.verdict import Finding, Verdict


class Said(msgspec.Struct, frozen=True):
    """An observation as text: what is wanted, what was got, where it first shows, and more."""

    wanted: str = ""
    got: str = ""
    where: str = ""
    more: str = ""


def place(mesh: Mesh, position: int) -> str:
    """A mesh position in words: device and coordinate."""
    where = ", ".join(f"{axis}={index}" for axis, index in coordinate(mesh, position).items())
    return f"device {mesh.devices[position]} ({where})"


def layout_text(layout: Layout | Foreign | None, mesh: Mesh) -> str:
    """A reported layout in both notations."""
    if layout is None:
        return "no layout"
    return layout.text if isinstance(layout, Foreign) else both(layout, mesh)


def say(collectives: Iterable[Collective]) -> str:
    """Collectives as a person writes them: ``2 all-gather(a), all-reduce(a,b)``."""
    counted = Counter(f"{one.kind}({','.join(one.axes) or '?'})" for one in collectives)
    return ", ".join(f"{n} {what}" if n > 1 else what for what, n in counted.items()) or "none"


def kinds_text(counts: Mapping[str, int]) -> str:
    """Numbers of collectives by kind: ``2 all-gather, 1 all-reduce``."""
    return ", ".join(f"{n} {kind}" for kind, n in counts.items()) or "none"


def bytes_text(fired: Fired) -> str:
    """Collectives with the bytes that the busiest device receives: ``all-gather(a), 96 B``."""
    return f"{say(fired)}, {volume(fired):,.0f} B" if fired else "none"


def factor(fired: Fired, by: Fired) -> str:
    """How the bytes of a plan compare with those of another, up to the name of the other."""
    ours, theirs = volume(fired), volume(by)
    if ours == theirs:
        return "as many bytes as"
    if theirs == 0:
        return f"{ours:,.0f} B more than"
    if ours > theirs:
        return f"{ours / theirs:.3g} times the bytes of"
    if ours == 0:
        return f"{theirs:,.0f} B less than"
    return f"{theirs / ours:.3g} times fewer bytes than"


def say_observation(one: Observation, mesh: Mesh) -> Said:
    """An observation of a tensor on ``mesh``."""
    match one:
        case seen.WrongValue(wanted, got, position, allowed):
            rank = "every rank" if position is None else place(mesh, position)
            return Said(show(wanted), show(got), f"on {rank}: {difference(wanted, got, allowed)}")
        case seen.WrongDtype(wanted, got):
            return Said(f"dtype {wanted}", f"dtype {got}")
        case seen.WrongShape(wanted, got):
            return Said(f"shape {list(wanted)}", f"shape {list(got)}")
        case seen.WrongShard(position, wanted, got):
            return _shard(place(mesh, position), wanted, got)
        case seen.WrongOffset(position, wanted, got):
            return Said(
                f"begins at {list(wanted)}", f"begins at {list(got)}", place(mesh, position)
            )
        case seen.WrongMesh(position, wanted, got):
            return _shard(place(mesh, position), wanted, got)
        case seen.WrongLayout(wanted, got):
            return Said(layout_text(wanted, mesh), layout_text(got, mesh))
        case seen.OtherLayout(theirs, ours):
            return Said(layout_text(theirs, mesh), layout_text(ours, mesh))
        case seen.RanksDiffer(reports, position, first, other):
            if position is None or first is None or other is None:
                return Said("one report from all ranks", "; ".join(reports))
            wanted_text = f"{show(first)} as on {place(mesh, 0)}"
            return Said(wanted_text, show(other), place(mesh, position))
        case seen.OtherPlan(_, implied, fired, cheapest):
            more = f"{factor(fired, implied)} the implied plan"
            if cheapest is not None and cheapest != implied:
                more += f"; the cheapest is {bytes_text(cheapest)}"
            return Said(bytes_text(implied), bytes_text(fired), more=more)
        case seen.BrokenContract(_, implied, fired, lacking, extra):
            parts = [("lacking", lacking), ("not in the parallel plan", extra)]
            more = "; ".join(f"{what}: {totals(some)}" for what, some in parts if some)
            more += f"; {factor(fired, implied)} the parallel plan"
            return Said(totals(implied), totals(fired), more=more)
        case seen.WrongCount(counts, fired):
            return Said(kinds_text(counts), kinds_text(Counter(c.kind for c in fired)))
        case seen.TooMany(enough, fired):
            return Said(f"no more than {kinds_text(enough)}", say(fired))
        case seen.CountersDisagree(why, fired):
            return Said("counters that fit what happened", say(fired) if fired else why)
        case seen.Missing(field):
            return Said(_FIELDS.get(field, field), "nothing: it is not in the answer")
        case seen.Ended(end):
            return Said("an answer", end_text(end))
        case seen.NotRefused(got):
            return Said("a refusal", "a mesh" if got is None else show(got))
        case seen.DryRunDiffers(differences):
            return _differences(differences, "with data")
        case seen.Changed(differences):
            return _differences(differences, "in the record")


def end_text(end: End) -> str:
    """How an answer ended, in a few words; what failed only when it was looked at says so."""
    step: str = getattr(end, "step", "")
    said = ending(end)
    if not step.endswith(FULL):
        return said
    return said.replace(f" at {step}:", f" while {bare(step)} was gathered:", 1)


def _differences(some: tuple[seen.Difference, ...], where: str) -> Said:
    wanted = "; ".join(f"{one.what} {where}: {one.before}" for one in some)
    return Said(wanted, "; ".join(f"{one.what} now: {one.after}" for one in some))


def plan_table(one: seen.OtherPlan | seen.BrokenContract) -> list[str]:
    """What was implied, what would be cheapest and what was fired, a line each with its bytes."""
    if isinstance(one, seen.OtherPlan):
        rows = [("implied", one.implied)]
        if one.cheapest is not None and one.cheapest != one.implied:
            rows.append(("cheapest", one.cheapest))
        rows.append(("fired", one.fired))
        noun = "the implied plan"
    else:
        rows = [("due", one.implied), ("fired", one.fired)]
        rows += [(name, some) for name, some in (("lacking", one.lacking), ("extra", one.extra))
                 if some]  # fmt: skip
        noun = "the parallel plan"
    text = say if isinstance(one, seen.OtherPlan) else totals
    said = [(name, text(some), f"{volume(some):,.0f} B" if some else "") for name, some in rows]
    wide = min(60, max(len(what) for _, what, _ in said))
    lines = [f"{name:<10}{what:<{wide}}  {cost:>9}".rstrip() for name, what, cost in said]
    at = next(at for at, (name, _) in enumerate(rows) if name == "fired")
    lines[at] += f"    {factor(one.fired, one.implied)} {noun}"
    return lines


def told_free(finding: Finding, mesh: Mesh) -> str:
    """What differs and fails nothing, in a line: how grave, what, and where."""
    one, at, severity = finding.observation, finding.step or "the whole program", finding.severity
    match one:
        case None:
            text = f"{finding.aspect} at {at}"
        case seen.OtherLayout(theirs, ours):
            text = f"{at} is {layout_text(ours, mesh)}, in {finding.against} "
            text += layout_text(theirs, mesh)
        case seen.OtherPlan(_, implied, fired, _) | seen.BrokenContract(_, implied, fired, _, _):
            noun = "the implied plan" if isinstance(one, seen.OtherPlan) else "the parallel plan"
            text = f"{at} fires {bytes_text(fired)}, {factor(fired, implied)} {noun}"
        case seen.Ended(end):
            text = end_text(end)
        case _:
            said = say_observation(one, mesh)
            text = f"{finding.aspect} at {at}: wanted {said.wanted}, got {said.got}"
    text = text if len(text) <= _MOST_TOLD else text[:_MOST_TOLD].rpartition(" ")[0] + " …"
    return f"{severity}: {text}"


# The longest text of what fails nothing.
_MOST_TOLD = 150

_FIELDS = {
    "full": "a global value", "shards": "local shards", "offsets": "the offsets of the shards",
    "layout": "a layout", "collectives": "counted collectives", "result": "this result",
}  # fmt: skip


def totals(fired: Fired) -> str:
    """Collectives with the bytes of their operands: ``all-gather(fsdp) of 512 B``."""
    found: Counter[str] = Counter()
    for one in fired:
        found[f"{one.kind}({','.join(one.axes) or '?'})"] += one.bytes
    return ", ".join(f"{what} of {n:,} B" for what, n in found.items() if n) or "none"


def _shard(where: str, wanted: Array | tuple[int, ...], got: Array | tuple[int, ...]) -> Said:
    if isinstance(wanted, Array) and isinstance(got, Array):
        off = difference(wanted, got, EXACT)
        return Said(show(wanted), show(got), f"{where}: {off}" if off else where)
    return Said(f"a shard of shape {_shape(wanted)}", f"one of shape {_shape(got)}", where)


def _shape(one: Array | tuple[int, ...]) -> str:
    return str(list(one.shape if isinstance(one, Array) else one))


def verdict_of(
    finding: Finding, case: Case, subject: str, cause: str | None = None, why: str = "",
    known: bool = False,
) -> Verdict:  # fmt: skip
    """The line of a finding about a subject's answer to a case.

    ``cause``: the id of what explains it; ``known``: whether that excuses it.
    """
    said = Said(got=finding.got)
    if finding.observation is not None:
        said = say_observation(finding.observation, mesh_of(case, bare(finding.step)))
    reasons = [one for one in (finding.why, said.more, why) if one]
    return Verdict(
        case.id,
        finding.step,
        finding.aspect,
        subject,
        finding.against,
        "known" if known else finding.outcome,
        finding.severity,
        cause,
        said.wanted,
        said.got,
        "; ".join(reasons),
    )


def where(finding: Finding, case: Case) -> str:
    """Position and index of the first difference, for the failure text; "" if there is none."""
    if finding.observation is None:
        return ""
    return say_observation(finding.observation, mesh_of(case, bare(finding.step))).where
