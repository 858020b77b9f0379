"""Which changes are similar? Those with the same pattern: before and after without the case.

A pattern has no axes, dims, sizes or names of ops; the change itself has them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from adapters.answer import Collective
from cases.model import Foreign, Layout, Mesh
from cases.notation import NotationError, to_placements

Fired = Sequence[Collective]

# What a message says about its case: quoted and bracketed texts, dotted names, numbers.
_CASE_SPECIFIC = (
    re.compile(r"(?<!\w)'[^']*'|\"[^\"]*\"|`[^`]*`"),
    re.compile(r"\[[^\[\]]*\]|\{[^{}]*\}|\([^()]*\)|<[^<>]*>"),
    re.compile(r"\b\w+(?:\.\w+)+\b"),
    re.compile(r"-?\b\d[\d.,]*\b"),
    # "rule for sub is not implemented"
    re.compile(r"(?<=\bfor )[\w-]+(?= (?:is|was|does|has)\b)"),
)
_LONGEST = 70


def message_pattern(text: str) -> str:
    """A message without what it says about its case: ``Operator … does not have a strategy``."""
    for pattern in _CASE_SPECIFIC:
        last = ""
        while last != text:
            last, text = text, pattern.sub("…", text)
    text = re.sub(r"…(?:[\s,;:]*…)+", "…", " ".join(text.split()))
    return text if len(text) <= _LONGEST else text[:_LONGEST].rstrip() + " …"


def layout_pattern(
    mesh: Mesh, older: Layout | Foreign | None, newer: Layout | Foreign | None
) -> str:
    """How a layout changed on its axes: ``P(sum) → R, S → S of another dim``."""
    sides = [_axis_placements(mesh, layout) for layout in (older, newer)]
    if isinstance(sides[0], str) or isinstance(sides[1], str):
        words = [side if isinstance(side, str) else "a layout" for side in sides]
        return " → ".join(words)
    ways = set()
    for one, other in zip(*sides):
        if one != other:
            same = one.kind == other.kind
            ways.add(f"{one.kind} → {other.kind}{' of another dim' if same else ''}")
    return ", ".join(sorted(ways)) or "in another order"


class _AxisPlacement(msgspec.Struct, frozen=True):
    """What a tensor is along one mesh axis: sharded, partial or replicated.

    ``stride``: what the axes of the dim that come before it, and later in the mesh, multiply to.
    """

    kind: str
    dim: int = 0
    stride: int = 1


def _axis_placements(
    mesh: Mesh, layout: Layout | Foreign | None
) -> tuple[_AxisPlacement, ...] | str:
    if layout is None:
        return "no layout"
    if isinstance(layout, Foreign):
        return message_pattern(layout.text)
    try:
        to_placements(layout, mesh)
    except NotationError:
        return "reductions in an order that placements lack"
    found = dict.fromkeys(mesh.layout_axes, _AxisPlacement("R"))
    found |= {axis: _AxisPlacement(f"P({op})") for axis, op in layout.partial}
    order = {axis: place for place, axis in enumerate(mesh.names)}
    for dim, axes in enumerate(layout.dims):
        for place, axis in enumerate(axes):
            outer = [mesh[one] for one in axes[:place] if order[one] > order[axis]]
            stride = math.prod(outer)
            found[axis] = _AxisPlacement("S" if stride == 1 else "SS", dim, stride)
    return tuple(found.values())


def collectives_pattern(older: Fired, newer: Fired) -> str:
    """How the kinds of collectives changed in each pass: ``all-gather → all-to-all``."""
    passes = ("forward", "backward", "update")
    parts = []
    for one in passes:
        sides = [[c for c in fired if c.pass_ == one] for fired in (older, newer)]
        if Counter(sides[0]) != Counter(sides[1]):
            parts.append(("" if one == "forward" else f"{one}: ") + _kinds_pattern(*sides))
    return "; ".join(parts) or "in another order"


def _kinds_pattern(older: Fired, newer: Fired) -> str:
    left, right = (Counter(one.kind for one in side) for side in (older, newer))
    lost, gained = ", ".join(sorted(left - right)), ", ".join(sorted(right - left))
    if lost and gained:
        return f"{lost} → {gained}"
    if lost:
        return f"fewer {lost}" if newer else f"{lost} → none"
    if gained:
        return f"more {gained}" if older else f"none → {gained}"
    for what in ("axes", "group", "bytes", "in_loop"):
        if Counter((one.kind, getattr(one, what)) for one in older) != Counter(
            (one.kind, getattr(one, what)) for one in newer
        ):
            kinds = ", ".join(sorted({one.kind for one in (*older, *newer)}))
            return f"{kinds} with other {what.replace('in_loop', 'loops')}"
    return "in other combinations"


def format_collectives(collectives: Iterable[Collective]) -> str:
    """Collectives in the order fired: ``2 all-gather(a) of 64 B, update: all-reduce(a) of 8 B``."""
    parts, last = [], "forward"
    for one, alike in groupby(collectives):
        number = len(list(alike))
        text = f"{number} " if number > 1 else ""
        text += f"{one.kind}({','.join(one.axes) or '?'}) of {one.bytes:,} B"
        if not one.axes:
            text += f" in groups of {one.group}"
        if one.in_loop:
            text += " in a loop"
        parts.append(text if one.pass_ == last else f"{one.pass_}: {text}")
        last = one.pass_
    return ", ".join(parts) or "none"
