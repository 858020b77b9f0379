"""How is a finding said to a person? Its title, where it is, and its smallest case.

Plain text, for both pages and the command line; markup is theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cases.errors import format_count
from cases.model import Case, slug
from reports.drift.interface_changes import short_name
from reports.drift.model import CorrectnessChange, DriftFinding
from suites.failure import format_mesh_step
from suites.failure import format_step as step_said
from suites.tensors import mesh_of

_TURNS: dict[CorrectnessChange, str] = {
    "broken": "was right, is wrong",
    "wrong otherwise": "was wrong, is wrong otherwise",
    "mended": "was wrong, is right",
    "": "",
}
_MOST_PLACES = 5
# How much of what two long texts have in common is shown before they differ.
_LEAD = 40
INTERFACE_KINDS = ("default", "name", "signature", "printed")


def title(finding: DriftFinding) -> str:
    """What changed, in a few words."""
    match finding.kind:
        case "value":
            parts = [_TURNS[finding.smallest.turn], finding.pattern]
            return ", ".join(filter(None, parts)) or "another value"
        case "rounding":
            return f"last bits of {finding.pattern}"
        case "memory":
            return f"{finding.pattern} bytes at most on a device"
        case "layout" if finding.with_counts:
            number = finding.with_counts
            all_ = number == len(finding.changes)
            return f"{finding.pattern}; collectives too{'' if all_ else f', in {number}'}"
    return finding.pattern or finding.smallest.case


def format_places(finding: DriftFinding) -> str:
    """The ops that it is in, or names without their modules; the first few of many."""
    if finding.kind not in INTERFACE_KINDS:
        return _first_few(finding.places)
    if finding.kind in ("printed", "default") and not finding.pattern:
        return ""
    return _first_few(list(dict.fromkeys(map(short_name, finding.cases))))


def _first_few(texts: Sequence[str]) -> str:
    more = len(texts) - _MOST_PLACES
    return ", ".join(texts[:_MOST_PLACES]) + (f" and {more} more" if more > 0 else "")


def format_extent(finding: DriftFinding) -> str:
    """How many cases, or names, it is in."""
    if finding.kind in INTERFACE_KINDS:
        return format_count(len(finding.cases), "name")
    return format_count(len(finding.cases), "case")


def case_name(change_case: str, known: Mapping[str, Case]) -> str:
    """A case as `-k` and `--case` take it; of the interface, the name itself."""
    return slug(change_case) if change_case in known else change_case


def format_step(case: Case, step: str) -> str:
    """The mesh of a case, and the step of its program; "" for the whole."""
    question, name = case.question, step.removesuffix("/full").partition("/")[0]
    mesh = ", ".join(f"{axis}={size}" for axis, size in question.mesh.axes)
    said = [step_said(one, mesh_of(case, one.result)) for one in question.steps
            if one.result == name]  # fmt: skip
    said += [format_mesh_step(one) for one in question.mesh_steps if one.result == name]
    if step.endswith("/full"):
        said.append("materialised")
    return "; ".join([mesh, *(" ".join(one.split()) for one in said)])


def shorten(text: str, most: int) -> str:
    """A text that is not longer than ``most``, with a sign where it goes on."""
    return text if len(text) <= most else text[: most - 2].rstrip() + " …"


def shorten_pair(before: str, after: str, most: int) -> tuple[str, str]:
    """Two texts, cut to ``most``, from a little before they first differ if that is far on."""
    if max(len(before), len(after)) > most:
        same = next(
            (i for i, (one, other) in enumerate(zip(before, after)) if one != other),
            min(len(before), len(after)),
        )
        start = max(0, same - _LEAD)
        if start:
            before, after = f"… {before[start:]}", f"… {after[start:]}"
    return shorten(before, most), shorten(after, most)
