"""How does a tensor differ between two releases? Its layout and its values, not its collectives."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from adapters.answer import Observed
from cases.layout import are_equivalent
from cases.model import Layout, Mesh
from reports.drift.answer_pair import AnswerPair, make_change
from reports.drift.array_changes import (
    Arrays,
    allowed_between_releases,
    compare_correctness,
    first_difference,
)
from reports.drift.model import Change, ChangeKind
from reports.drift.patterns import layout_pattern
from reports.formatting import format_axes
from suites.tensors import mesh_of
from suites.truth import Truth
from suites.wording import format_reported_layout

NOT_SHOWN = "not shown"


def layout_differs(one: Observed, other: Observed) -> bool:
    """Whether a tensor has another layout, or is on another mesh."""
    return one.layout != other.layout or one.mesh != other.mesh


def layout_changes(pair: AnswerPair, one: Observed, other: Observed) -> list[Change]:
    """Changes of the layout and mesh, of offsets, and of what else an answer says of a layout."""
    mesh, theirs = (seen.mesh or mesh_of(pair.case, seen.name) for seen in (one, other))
    found = []

    def add(pattern: str, before: str, after: str) -> None:
        found.append(make_change(pair, "layout", one.name, pattern, before, after))

    if layout_differs(one, other):
        pattern = "on another mesh"
        if mesh == theirs:
            same = _have_same_shards(mesh, one, other)
            pattern = layout_pattern(mesh, one.layout, other.layout) + ", same shards" * same
        add(pattern, _format_layout(one, mesh), _format_layout(other, theirs))
    else:
        if one.offsets != other.offsets:
            add("offsets", *_format_sides(one.offsets, other.offsets))
        if one.local != other.local:
            add("local shape", *_format_sides(one.local, other.local))
    if one.note != other.note:
        add("the note on the layout", one.note or "nothing", other.note or "nothing")
    if one.disagreements != other.disagreements:
        before, after = (
            "; ".join(seen.disagreements) or "nothing differs" for seen in (one, other)
        )
        add("differences between ranks", before, after)
    return found


def _format_sides(*sides: tuple[object, ...] | None) -> Iterator[str]:
    for side in sides:
        parts = (str(list(part) if isinstance(part, tuple) else part) for part in side or ())
        yield NOT_SHOWN if side is None else ", ".join(parts)


def _format_layout(seen: Observed, mesh: Mesh) -> str:
    text = format_reported_layout(seen.layout, mesh)
    if seen.mesh is None:
        return text
    return f"{text} on {format_axes(mesh)} of devices {list(mesh.devices)}"


def _have_same_shards(mesh: Mesh, one: Observed, other: Observed) -> bool:
    left, right = one.layout, other.layout
    if not isinstance(left, Layout) or not isinstance(right, Layout) or one.shape != other.shape:
        return False
    return left.ndim == right.ndim == len(one.shape) and are_equivalent(
        mesh, left, right, one.shape
    )


def value_changes(
    pair: AnswerPair, one: Observed, other: Observed, known: Callable[[], Truth]
) -> list[Change]:
    """Changes of the global value, dtype or shape; or of the shards of an unchanged layout.

    ``known``: gives the truth about the case, which is slow and needed only where values differ.
    """
    name, found = one.name, list[Change]()
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        before, after = (f"{seen.dtype}{list(seen.shape)}" for seen in (one, other))
        pattern = "another shape" if one.dtype == other.dtype else f"{one.dtype} → {other.dtype}"
        return [make_change(pair, "value", name, pattern, before, after)]
    if pair.older.end == pair.newer.end:
        # Otherwise the end says why.
        for what, left, right in (
            ("global value", one.full, other.full),
            ("shards", one.shards, other.shards),
        ):
            before, after = _format_presence(left), _format_presence(right)
            if before != after:
                found.append(
                    make_change(pair, "support", name, f"{what} {before} → {after}", before, after)
                )
    # In another layout the shards differ anyway.
    stays = not layout_differs(one, other)
    if one.full == other.full and (one.shards == other.shards or not stays):
        return found
    truth, mesh = known(), one.mesh or mesh_of(pair.case, name)
    close = allowed_between_releases(pair.case, truth, name)
    whole = first_difference(mesh, close, one.full, other.full)
    parts = first_difference(mesh, close, one.shards or (), other.shards or ()) if stays else None
    if whole is not None and whole.far:
        turn = compare_correctness(truth, one, other)
        return [*found, make_change(pair, "value", name, "", whole.before, whole.after, turn)]
    if parts is not None and parts.far:
        owed = isinstance(one.layout, Layout) and one.layout.partial
        kind: ChangeKind = "layout" if owed else "value"
        pattern = "another split of the same sum" if owed else "on single devices"
        found.append(make_change(pair, kind, name, pattern, parts.before, parts.after))
    near = next((off for off in (whole, parts) if off is not None and not off.far), None)
    if near is not None:
        found.append(make_change(pair, "rounding", name, one.dtype, near.before, near.after))
    return found


def _format_presence(arrays: Arrays | None) -> str:
    if not arrays:
        return NOT_SHOWN
    absent = sum(array is None for array in arrays)
    return "shown" if not absent else f"shown except {absent} of {len(arrays)}"
