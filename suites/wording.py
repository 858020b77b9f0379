"""How is what was seen told to a person? Places, layouts, collectives and observations as text.

The only module in which observations become text. Nothing here is ever read back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from adapters.answer import Collective, End, format_end
from cases.arrays import Array
from cases.layout import coordinate
from cases.model import Case, Foreign, Layout, Mesh
from cases.notation import format_both_notations
from suites import observation as seen
from suites.array_difference import EXACT, difference, format_array
from suites.observation import Fired, Observation, total_bytes
from suites.tensors import FULL, mesh_of, result_name
from suites.verdict import Finding, Verdict


class ObservationText(msgspec.Struct, frozen=True):
    """An observation as text: what is wanted, what was got, where it first shows, and more."""

    wanted: str = ""
    got: str = ""
    where: str = ""
    more: str = ""


def format_position(mesh: Mesh, position: int) -> str:
    """A mesh position in words: device and coordinate."""
    where = ", ".join(f"{axis}={index}" for axis, index in coordinate(mesh, position).items())
    return f"device {mesh.devices[position]} ({where})"


def format_reported_layout(layout: Layout | Foreign | None, mesh: Mesh) -> str:
    """A reported layout in both notations."""
    if layout is None:
        return "no layout"
    return layout.text if isinstance(layout, Foreign) else format_both_notations(layout, mesh)


def format_collectives(collectives: Iterable[Collective]) -> str:
    """Collectives as a person writes them: ``2 all-gather(a), all-reduce(a,b)``."""
    counted = Counter(f"{one.kind}({','.join(one.axes) or '?'})" for one in collectives)
    return ", ".join(f"{n} {what}" if n > 1 else what for what, n in counted.items()) or "none"


def format_counts(counts: Mapping[str, int]) -> str:
    """Numbers of collectives by kind: ``2 all-gather, 1 all-reduce``."""
    return ", ".join(f"{n} {kind}" for kind, n in counts.items()) or "none"


def format_collectives_with_bytes(fired: Fired) -> str:
    """Collectives with the bytes that the busiest device receives: ``all-gather(a), 96 B``."""
    return f"{format_collectives(fired)}, {total_bytes(fired):,.0f} B" if fired else "none"


def format_factor(fired: Fired, by: Fired) -> str:
    """How the bytes of a plan compare with those of another, up to the name of the other."""
    ours, theirs = total_bytes(fired), total_bytes(by)
    if ours == theirs:
        return "as many bytes as"
    if theirs == 0:
        return f"{ours:,.0f} B more than"
    if ours > theirs:
        return f"{ours / theirs:.3g} times the bytes of"
    if ours == 0:
        return f"{theirs:,.0f} B less than"
    return f"{theirs / ours:.3g} times fewer bytes than"


def describe_observation(one: Observation, mesh: Mesh) -> ObservationText:
    """An observation of a tensor on ``mesh``."""
    match one:
        case seen.WrongValue(wanted, got, position, allowed, _):
            rank = "every rank" if position is None else format_position(mesh, position)
            return ObservationText(
                format_array(wanted),
                format_array(got),
                f"on {rank}: {difference(wanted, got, allowed)}",
            )
        case seen.WrongDtype(wanted, got):
            return ObservationText(f"dtype {wanted}", f"dtype {got}")
        case seen.WrongShape(wanted, got):
            return ObservationText(f"shape {list(wanted)}", f"shape {list(got)}")
        case seen.WrongShard(position, wanted, got):
            return _describe_shard(format_position(mesh, position), wanted, got)
        case seen.WrongOffset(position, wanted, got):
            return ObservationText(
                f"begins at {list(wanted)}",
                f"begins at {list(got)}",
                format_position(mesh, position),
            )
        case seen.WrongMesh(position, wanted, got):
            return _describe_shard(format_position(mesh, position), wanted, got)
        case seen.WrongLayout(wanted, got):
            return ObservationText(
                format_reported_layout(wanted, mesh), format_reported_layout(got, mesh)
            )
        case seen.OtherLayout(theirs, ours):
            return ObservationText(
                format_reported_layout(theirs, mesh), format_reported_layout(ours, mesh)
            )
        case seen.RanksDiffer(reports, position, first, other):
            if position is None or first is None or other is None:
                return ObservationText("one report from all ranks", "; ".join(reports))
            wanted_text = f"{format_array(first)} as on {format_position(mesh, 0)}"
            return ObservationText(
                wanted_text, format_array(other), format_position(mesh, position)
            )
        case seen.OtherRedistributionPlan(_, implied, fired, cheapest):
            more = f"{format_factor(fired, implied)} the implied plan"
            if cheapest is not None and cheapest != implied:
                more += f"; the cheapest is {format_collectives_with_bytes(cheapest)}"
            return ObservationText(
                format_collectives_with_bytes(implied),
                format_collectives_with_bytes(fired),
                more=more,
            )
        case seen.BrokenContract(_, implied, fired, lacking, extra):
            parts = [("lacking", lacking), ("not in the parallel plan", extra)]
            more = "; ".join(
                f"{what}: {format_operand_bytes(some)}" for what, some in parts if some
            )
            more += f"; {format_factor(fired, implied)} the parallel plan"
            return ObservationText(
                format_operand_bytes(implied), format_operand_bytes(fired), more=more
            )
        case seen.WrongCount(counts, fired):
            return ObservationText(
                format_counts(counts), format_counts(Counter(c.kind for c in fired))
            )
        case seen.TooMany(enough, fired):
            return ObservationText(
                f"no more than {format_counts(enough)}", format_collectives(fired)
            )
        case seen.CountersDisagree(why, fired):
            return ObservationText(
                "counters that fit what happened", format_collectives(fired) if fired else why
            )
        case seen.Missing(field):
            return ObservationText(_FIELDS.get(field, field), "nothing: it is not in the answer")
        case seen.Ended(end):
            return ObservationText("an answer", format_ending(end))
        case seen.NotRefused(got):
            return ObservationText("a refusal", "a mesh" if got is None else format_array(got))
        case seen.DryRunDiffers(differences):
            return _describe_differences(differences, "with data")
        case seen.Changed(differences):
            return _describe_differences(differences, "in the record")


def format_ending(end: End) -> str:
    """How an answer ended, in a few words; it says so if only materialising failed."""
    step: str = getattr(end, "step", "")
    said = format_end(end)
    if not step.endswith(FULL):
        return said
    return said.replace(f" at {step}:", f" while {result_name(step)} was gathered:", 1)


def _describe_differences(some: tuple[seen.Difference, ...], where: str) -> ObservationText:
    wanted = "; ".join(f"{one.what} {where}: {one.before}" for one in some)
    return ObservationText(wanted, "; ".join(f"{one.what} now: {one.after}" for one in some))


def format_plan_table(one: seen.OtherRedistributionPlan | seen.BrokenContract) -> list[str]:
    """What was implied, what would be cheapest and what was fired, a line each with its bytes."""
    if isinstance(one, seen.OtherRedistributionPlan):
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
    text = (
        format_collectives
        if isinstance(one, seen.OtherRedistributionPlan)
        else format_operand_bytes
    )
    said = [
        (name, text(some), f"{total_bytes(some):,.0f} B" if some else "") for name, some in rows
    ]
    lines = [f"{name:<10}{cost:>9}   {what}" for name, what, cost in said]
    at = next(at for at, (name, _) in enumerate(rows) if name == "fired")
    lines[at] += f"    {format_factor(one.fired, one.implied)} {noun}"
    return lines


def format_tolerated(finding: Finding, mesh: Mesh) -> str:
    """What differs and fails nothing, in a line: how grave, what, and where."""
    one, at, severity = finding.observation, finding.step or "the whole program", finding.severity
    match one:
        case None:
            text = f"{finding.aspect} at {at}"
        case seen.OtherLayout(theirs, ours):
            text = f"{at} is {format_reported_layout(ours, mesh)}, in {finding.against} "
            text += format_reported_layout(theirs, mesh)
        case seen.OtherRedistributionPlan(_, implied, fired, _) | seen.BrokenContract(
            _, implied, fired, _, _
        ):
            noun = (
                "the implied plan"
                if isinstance(one, seen.OtherRedistributionPlan)
                else "the parallel plan"
            )
            told = format_collectives_with_bytes(fired)
            text = f"{at} fires {told}, {format_factor(fired, implied)} {noun}"
        case seen.Ended(end):
            text = format_ending(end)
        case _:
            said = describe_observation(one, mesh)
            text = f"{finding.aspect} at {at}: wanted {said.wanted}, got {said.got}"
    text = text if len(text) <= _MAX_TOLERATED else text[:_MAX_TOLERATED].rpartition(" ")[0] + " …"
    return f"{severity}: {text}"


# The longest text of what fails nothing.
_MAX_TOLERATED = 150

_FIELDS = {
    "full": "a global value", "shards": "local shards", "offsets": "the offsets of the shards",
    "layout": "a layout", "collectives": "counted collectives", "result": "this result",
}  # fmt: skip


def format_operand_bytes(fired: Fired) -> str:
    """Collectives with the bytes of their operands: ``all-gather(fsdp) of 512 B``."""
    found: Counter[str] = Counter()
    for one in fired:
        found[f"{one.kind}({','.join(one.axes) or '?'})"] += one.bytes
    return ", ".join(f"{what} of {n:,} B" for what, n in found.items() if n) or "none"


def _describe_shard(
    where: str, wanted: Array | tuple[int, ...], got: Array | tuple[int, ...]
) -> ObservationText:
    if isinstance(wanted, Array) and isinstance(got, Array):
        off = difference(wanted, got, EXACT)
        return ObservationText(
            format_array(wanted), format_array(got), f"{where}: {off}" if off else where
        )
    return ObservationText(
        f"a shard of shape {_shape(wanted)}", f"one of shape {_shape(got)}", where
    )


def _shape(one: Array | tuple[int, ...]) -> str:
    return str(list(one.shape if isinstance(one, Array) else one))


def make_verdict(
    finding: Finding, case: Case, subject: str, cause: str | None = None, why: str = "",
    known: bool = False,
) -> Verdict:  # fmt: skip
    """The verdict line of a finding about a subject's answer to a case.

    ``cause``: the id of what explains it; ``known``: whether that excuses it.
    """
    said = ObservationText(got=finding.got)
    if finding.observation is not None:
        said = describe_observation(finding.observation, mesh_of(case, result_name(finding.step)))
    if finding.aspect == "meshes" and isinstance(finding.observation, seen.WrongOffset):
        wanted, got = finding.observation.wanted, finding.observation.got
        said = ObservationText(f"coordinate {list(wanted)}", f"coordinate {list(got)}", said.where)
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
    return describe_observation(finding.observation, mesh_of(case, result_name(finding.step))).where
