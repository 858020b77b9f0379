"""How does a tensor differ between two releases? How it lies, and what it holds.

Counts of collectives and how a program ended are not its business.
"""

from __future__ import annotations

from collections.abc import Callable

from adapters.answer import Observed
from cases.layout import same
from cases.model import Layout, Mesh
from reports.drift.model import Change, Kind
from reports.drift.numbers import Arrays, allowed, apart, turn
from reports.drift.pair import Pair, change
from reports.drift.patterns import moved
from suites.tensors import mesh_of
from suites.truth import Truth
from suites.wording import layout_text as said

NOT_SHOWN = "not shown"


def moves(one: Observed, other: Observed) -> bool:
    """Whether a tensor lies otherwise: in another layout, or on another mesh."""
    return one.layout != other.layout or one.mesh != other.mesh


def laid(pair: Pair, one: Observed, other: Observed) -> list[Change]:
    """How a tensor lies: its layout and mesh first, then offsets and what else is said of it."""
    mesh, theirs = (seen.mesh or mesh_of(pair.case, seen.name) for seen in (one, other))
    found = []

    def add(pattern: str, before: str, after: str) -> None:
        found.append(change(pair, "layout", one.name, pattern, before, after))

    if moves(one, other):
        pattern = moved(mesh, one.layout, other.layout) if mesh == theirs else "on another mesh"
        if mesh == theirs and _alike(mesh, one, other):
            pattern += ", same shards"
        add(pattern, _said(one, mesh), _said(other, theirs))
    else:
        if one.offsets != other.offsets:
            add("offsets", *_of(one.offsets, other.offsets))
        if one.local != other.local:
            add("local shape", *_of(one.local, other.local))
    if one.note != other.note:
        add("what is noted", one.note or "nothing", other.note or "nothing")
    if one.disagreements != other.disagreements:
        before, after = ("; ".join(seen.disagreements) or "alike" for seen in (one, other))
        add("what ranks report", before, after)
    return found


def _of(*sides: tuple[object, ...] | None) -> tuple[str, str]:
    one, other = (
        NOT_SHOWN if side is None else ", ".join(str(_listed(part)) for part in side)
        for side in sides
    )
    return one, other


def _listed(part: object) -> object:
    return list(part) if isinstance(part, tuple) else part


def _said(seen: Observed, mesh: Mesh) -> str:
    text = said(seen.layout, mesh)
    if seen.mesh is None:
        return text
    axes = ", ".join(f"{name}={size}" for name, size in mesh.axes)
    return f"{text} on {axes} of devices {list(mesh.devices)}"


def _alike(mesh: Mesh, one: Observed, other: Observed) -> bool:
    left, right = one.layout, other.layout
    if not isinstance(left, Layout) or not isinstance(right, Layout) or one.shape != other.shape:
        return False
    return left.ndim == right.ndim == len(one.shape) and same(mesh, left, right, one.shape)


def valued(pair: Pair, one: Observed, other: Observed, known: Callable[[], Truth]) -> list[Change]:
    """A change of the global value, dtype or shape; or of shards alone, where the layout stayed.

    ``known``: the truth about the case, which is only asked for where numbers differ.
    """
    name, found = one.name, list[Change]()
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        before, after = (f"{seen.dtype}{list(seen.shape)}" for seen in (one, other))
        pattern = "another shape" if one.dtype == other.dtype else f"{one.dtype} → {other.dtype}"
        return [change(pair, "value", name, pattern, before, after)]
    if pair.older.end == pair.newer.end:
        # Else how it ended says why.
        for what, left, right in (
            ("global value", one.full, other.full),
            ("shards", one.shards, other.shards),
        ):
            before, after = _shown(left), _shown(right)
            if before != after:
                found.append(
                    change(pair, "support", name, f"{what} {before} → {after}", before, after)
                )
    # Where it lies otherwise, its shards are others too.
    stays = not moves(one, other)
    if one.full == other.full and (one.shards == other.shards or not stays):
        return found
    truth, mesh = known(), one.mesh or mesh_of(pair.case, name)
    close = allowed(pair.case, truth, name)
    whole = apart(mesh, close, one.full, other.full)
    parts = apart(mesh, close, one.shards or (), other.shards or ()) if stays else None
    if whole is not None and whole.far:
        texts = whole.before, whole.after
        return [*found, change(pair, "value", name, "", *texts, turn(truth, one, other))]
    if parts is not None and parts.far:
        owed = isinstance(one.layout, Layout) and one.layout.partial
        kind: Kind = "layout" if owed else "value"
        pattern = "addends dealt out otherwise" if owed else "on a device alone"
        found.append(change(pair, kind, name, pattern, parts.before, parts.after))
    near = next((off for off in (whole, parts) if off is not None and not off.far), None)
    if near is not None:
        found.append(change(pair, "rounding", name, one.dtype, near.before, near.after))
    return found


def _shown(arrays: Arrays | None) -> str:
    if not arrays:
        return NOT_SHOWN
    absent = sum(array is None for array in arrays)
    return "shown" if not absent else f"shown but for {absent} of {len(arrays)}"
