"""How is a finding written for people? Its title, where it shows, and its smallest case.

The texts are plain, for both pages and the command line.
"""

from __future__ import annotations

from collections.abc import Mapping

from cases.errors import format_count
from cases.model import Case, slug
from reports.drift.interface_changes import short_name
from reports.drift.model import CorrectnessChange, DriftFinding
from reports.formatting import first_few, format_axes, shorten
from suites import failure
from suites.tensors import mesh_of

_TURNS: dict[CorrectnessChange, str] = {
    "broken": "was right and is now wrong",
    "still wrong": "was wrong and is still wrong, but different",
    "mended": "was wrong and is now right",
    "": "",
}
_MOST_PLACES = 5
# How many characters of two long texts are shown before they differ.
_LEAD = 40
INTERFACE_KINDS = ("default", "name", "signature", "printed")


def title(finding: DriftFinding) -> str:
    """What changed, in a few words."""
    match finding.kind:
        case "value":
            parts = [_TURNS[finding.smallest.turn], finding.pattern]
            return ", ".join(filter(None, parts)) or "the value changed"
        case "rounding":
            return f"last bits of {finding.pattern}"
        case "memory":
            return f"{finding.pattern} peak bytes"
        case "layout" if finding.with_counts:
            number = finding.with_counts
            all_ = number == len(finding.changes)
            return f"{finding.pattern}; collectives too{'' if all_ else f', in {number}'}"
    return finding.pattern or finding.smallest.case


def format_places(finding: DriftFinding) -> str:
    """The first few of the ops that it is in, or of the names, without their modules."""
    if finding.kind not in INTERFACE_KINDS:
        return first_few(finding.places, _MOST_PLACES)
    if finding.kind in ("printed", "default") and not finding.pattern:
        return ""
    return first_few(dict.fromkeys(map(short_name, finding.cases)), _MOST_PLACES)


def format_extent(finding: DriftFinding) -> str:
    """How many cases, or names, it is in."""
    if finding.kind in INTERFACE_KINDS:
        return format_count(len(finding.cases), "name")
    return format_count(len(finding.cases), "case")


def case_name(change_case: str, known: Mapping[str, Case]) -> str:
    """A case's id as `-k` and `--case` take it; for the interface, the public name."""
    return slug(change_case) if change_case in known else change_case


def format_step(case: Case, step: str) -> str:
    """The mesh of a case, and the step of its program; "" for the whole."""
    question, name = case.question, step.removesuffix("/full").partition("/")[0]
    texts = [format_axes(question.mesh)]
    texts += [
        failure.format_step(one, mesh_of(case, one.result))
        for one in question.steps
        if one.result == name
    ]
    texts += [failure.format_mesh_step(one) for one in question.mesh_steps if one.result == name]
    if step.endswith("/full"):
        texts.append("materialised")
    return "; ".join(" ".join(one.split()) for one in texts)


def shorten_pair(before: str, after: str, most: int) -> tuple[str, str]:
    """Two texts of at most ``most`` characters, which begin shortly before they first differ."""
    if max(len(before), len(after)) > most:
        same = next(
            (i for i, (one, other) in enumerate(zip(before, after)) if one != other),
            min(len(before), len(after)),
        )
        start = max(0, same - _LEAD)
        if start:
            before, after = f"… {before[start:]}", f"… {after[start:]}"
    return shorten(before, most), shorten(after, most)
