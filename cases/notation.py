"""How is a layout written? In DTensor placements and in JAX PartitionSpecs, read and printed.

Placements have partial, but only strided shards keep an order of mesh axes inside a dim.
A PartitionSpec keeps the order, but its only partial is `unreduced`. Each refuses, with the
reason, what it cannot express. Refuses to know which indices a device holds.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from cases.layout import reduction_order
from cases.model import REDUCTIONS, Layout, Mesh

_PLACEMENT = re.compile(
    r"\s*(?:(?P<r>R)|(?P<s>S)\s*\(\s*(?P<dim>-?\d{1,9})\s*\)"
    r"|(?P<ss>SS|_S)\s*\(\s*(?P<sdim>-?\d{1,9})\s*,\s*(?:sf=)?(?P<factor>\d{1,9})\s*\)"
    r"|(?P<p>P)(?:\s*\(\s*(?P<op>\w+)\s*\))?)\s*"
)


class NotationError(ValueError):
    """A layout that cannot be read or written: what was found, and what is wanted.

    ``axis`` is the mesh axis whose placement is at fault, None if it is not a single one.
    """

    def __init__(self, found: str, wanted: str, axis: str | None = None):
        super().__init__(f"found {found}, wanted {wanted}")
        self.found = found
        self.wanted = wanted
        self.axis = axis


def from_placements(placements: Sequence[str], mesh: Mesh, ndim: int) -> Layout:
    """The layout that one placement per mesh axis describes.

    A placement is ``R``, ``S(d)``, ``P(op)`` or ``SS(d,f)``. The last is DTensor's strided shard:
    its axis comes after later mesh axes whose sizes multiply to f. Dims may be negative.

    Raises:
        NotationError: a placement is malformed, or no axis order has its split factor.
    """
    if len(placements) != len(mesh.layout_axes):
        raise NotationError(
            f"{len(placements)} placement{'' if len(placements) == 1 else 's'}",
            f"one for each of the {len(mesh.layout_axes)} mesh axes {', '.join(mesh.layout_axes)}",
        )
    dims: list[list[str]] = [[] for _ in range(ndim)]
    partial: list[tuple[str, str]] = []
    # From the last mesh axis to the first: a split factor counts axes that are already placed.
    for axis, text in reversed(list(zip(mesh.layout_axes, placements, strict=True))):
        read = _PLACEMENT.fullmatch(text)
        if read is None:
            raise NotationError(repr(text), "R, S(dim), SS(dim,factor) or P(reduction)", axis)
        if read["p"]:
            op = read["op"] or "sum"
            if op not in REDUCTIONS:
                raise NotationError(f"reduction {op!r}", "one of " + ", ".join(REDUCTIONS), axis)
            partial.insert(0, (axis, op))
        elif not read["r"]:
            dim = int(read["dim"] or read["sdim"])
            if not -ndim <= dim < ndim:
                raise NotationError(repr(text), f"a dim of a {ndim}-d tensor", axis)
            _insert(dims[dim % ndim], axis, int(read["factor"] or 1), mesh, text)
    return Layout(tuple(map(tuple, dims)), tuple(partial))


def _insert(order: list[str], axis: str, factor: int, mesh: Mesh, text: str) -> None:
    before = 1
    for place in range(len(order) + 1):
        if before == factor:
            order.insert(place, axis)
            return
        before *= mesh[order[place]] if place < len(order) else 1
    inner = ", ".join(f"{name}={mesh[name]}" for name in order) or "none"
    raise NotationError(
        f"{text} for axis {axis}",
        f"a factor that is a product of leading later axes of the same dim ({inner})",
        axis,
    )


def from_mapping(placements: Mapping[str, str], mesh: Mesh, ndim: int) -> Layout:
    """The layout of ``{axis: placement}``, where a missing axis replicates.

    Raises:
        NotationError: the mesh does not have an axis, or a placement is malformed.
    """
    for axis in placements:
        if axis not in mesh.layout_axes:
            raise NotationError(f"axis {axis!r}", "one of " + ", ".join(mesh.layout_axes))
    return from_placements([placements.get(axis, "R") for axis in mesh.layout_axes], mesh, ndim)


@lru_cache(maxsize=4096)
def from_spec(text: str, mesh: Mesh, ndim: int) -> Layout:
    """The layout that a PartitionSpec describes: ``P('dp', ('tp', 'ep'), None)``.

    ``unreduced={'tp'}`` is a pending sum. Missing trailing dims are not split.

    Raises:
        NotationError: it is no PartitionSpec, or does not fit the mesh or the tensor.
    """
    wanted = (
        "a PartitionSpec such as P('dp', None) or P(unreduced={'tp'}); placements are a list, one"
        " for each mesh axis, or a table by axis"
    )
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or ast.unparse(call.func) not in ("P", "PartitionSpec"):
            raise ValueError
        entries = [ast.literal_eval(entry) for entry in call.args]
        keywords = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
        unreduced = keywords.pop("unreduced", set())
        if keywords or not isinstance(unreduced, set | frozenset | tuple | list):
            raise ValueError
        dims = tuple(
            () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)
            for entry in entries
        )
        # A set of axes has no order, but an entry must have one.
        if any(isinstance(entry, set | dict | bytes) for entry in entries):
            raise ValueError
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise NotationError(repr(text), wanted) from None
    if len(dims) > ndim:
        raise NotationError(f"{len(dims)} entries in {text}", f"at most {ndim}, one per dim")
    layout = Layout(
        dims + ((),) * (ndim - len(dims)),
        tuple((axis, "sum") for axis in mesh.layout_axes if axis in unreduced),
    )
    seen: set[str] = set()
    for axis in [axis for axes in layout.dims for axis in axes] + sorted(map(str, unreduced)):
        if axis not in mesh.layout_axes:
            raise NotationError(f"axis {axis!r}", "one of " + ", ".join(mesh.layout_axes))
        if axis in seen:
            raise NotationError(f"axis {axis!r} used twice", "each axis at most once")
        seen.add(axis)
    return layout


def to_placements(layout: Layout, mesh: Mesh) -> tuple[str, ...]:
    """One placement per mesh axis. An axis order that is not the mesh's becomes strided shards.

    Raises:
        NotationError: the order of pending reductions is not the mesh's, and they do not commute.
    """
    placements = dict.fromkeys(mesh.layout_axes, "R")
    in_order = tuple(sorted(layout.partial, key=lambda pending: mesh.names.index(pending[0])))
    if reduction_order(layout.partial) != reduction_order(in_order):
        order = ", ".join(axis for axis, _ in layout.partial)
        raise NotationError(f"reductions due in the order {order}", "the order of the mesh axes")
    for axis, op in layout.partial:
        placements[axis] = f"P({op})"
    for dim, axes in enumerate(layout.dims):
        for place, axis in enumerate(axes):
            factor = 1
            for outer in axes[:place]:
                if mesh.names.index(outer) > mesh.names.index(axis):
                    factor *= mesh[outer]
            placements[axis] = f"S({dim})" if factor == 1 else f"SS({dim},{factor})"
    return tuple(placements.values())


def to_spec(layout: Layout) -> str:
    """The PartitionSpec of a layout, without trailing dims that are not split.

    Raises:
        NotationError: a pending reduction is not a sum, and JAX has no other.
    """
    others = sorted({op for _, op in layout.partial} - {"sum"})
    if others:
        raise NotationError(f"pending {', '.join(others)}", "pending sums only (unreduced)")
    entries = ["None" if not axes else _entry(axes) for axes in layout.dims]
    while entries and entries[-1] == "None":
        entries.pop()
    if layout.partial:
        entries.append("unreduced={" + ", ".join(repr(axis) for axis, _ in layout.partial) + "}")
    return f"P({', '.join(entries)})"


def _entry(axes: tuple[str, ...]) -> str:
    return repr(axes[0]) if len(axes) == 1 else f"({', '.join(map(repr, axes))})"


def format_both_notations(layout: Layout, mesh: Mesh) -> str:
    """The layout in both notations, for people: ``[S(0), R]  =  P('dp')``."""
    sides = []
    try:
        sides.append(f"[{', '.join(to_placements(layout, mesh))}]")
    except NotationError as error:
        sides.append(f"(no placements: {error.found})")
    try:
        sides.append(to_spec(layout))
    except NotationError as error:
        sides.append(f"(no PartitionSpec: {error.found})")
    return "  =  ".join(sides)
