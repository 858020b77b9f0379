"""What does a change of layout cost and give? Every source and target on small meshes.

All pairs of R, S(0), S(1) and P(sum) on one axis of 4 and on 2x2. A covering sample (all with
``--exhaustive``) on 2x2x2, 1x4 and 2x4 with 3-d tensors. Also the other reductions, changes of axis
order, uneven sizes and unordered devices. Refuses to know the right collectives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cases.catalogue.build import (
    NO_ELEMENTS,
    all_placements,
    covering_rows,
    layout_name,
    layout_of,
    make_case,
    make_input,
    mesh_name,
    shape_name,
)
from cases.layout import is_even
from cases.model import Case, Layout, Mesh, Step, mesh

FAMILY = "redistribute"

ONE = mesh({"x": 4})
TWO = mesh({"a": 2, "b": 2})
THREE = mesh({"a": 2, "b": 2, "c": 2})
FLAT = mesh({"a": 1, "b": 4})
WIDE = mesh({"a": 2, "b": 4})
PLANE = ("R", "S(0)", "S(1)", "P(sum)")
SPACE = ("R", "S(0)", "S(1)", "S(2)", "P(sum)")


def cases(exhaustive: bool) -> Iterator[Case]:
    """The family. Cases on the same mesh follow one another."""
    yield from _grid(ONE, PLANE, (8, 8))
    yield from _grid(TWO, PLANE, (8, 8))
    for on in (THREE, FLAT, WIDE):
        if exhaustive:
            yield from _grid(on, SPACE, (8, 16, 8))
        else:
            axes = len(on.axes)
            for row in covering_rows(*[SPACE] * (2 * axes)):
                yield change(on, row[:axes], row[axes:], (8, 16, 8))
    yield from _reductions()
    yield from _orders()
    yield from _uneven()
    yield from _devices()


def change(
    on: Mesh,
    source: Sequence[str] | Layout,
    target: Sequence[str] | Layout,
    shape: tuple[int, ...],
    dtype: str = "float32",
) -> Case:
    """One change of layout: x in ``source``, y = redistribute(x) in ``target``."""
    before = source if isinstance(source, Layout) else layout_of(on, source, len(shape))
    after = target if isinstance(target, Layout) else layout_of(on, target, len(shape))
    id = f"{mesh_name(on)}-{layout_name(on, before)}-to-{layout_name(on, after)}"
    if len(shape) == 2 and shape != (8, 8):
        id += f"-{shape_name(shape)}"
    if dtype != "float32":
        id += f"-{dtype}"
    tags = set()
    if not (is_even(on, before, shape) and is_even(on, after, shape)):
        tags.add("uneven")
    if on.devices != tuple(sorted(on.devices)):
        tags.add("device-order")
    if after.partial:
        tags.add("to-partial")
    if any(op != "sum" for _, op in before.partial):
        tags.add("other-reduction")
    return make_case(
        FAMILY, id, on, (make_input("x", on, before, shape, dtype),),
        (Step("y", "redistribute", ("x",), {}, after),), tags=frozenset(tags),
        insensitive=NO_ELEMENTS if 0 in shape else "",
    )  # fmt: skip


def _grid(on: Mesh, placements: Sequence[str], shape: tuple[int, ...]) -> Iterator[Case]:
    for source in all_placements(placements, len(on.axes)):
        for target in all_placements(placements, len(on.axes)):
            yield change(on, source, target, shape)


def _reductions() -> Iterator[Case]:
    for op in ("avg", "max", "min", "product"):
        for target in ("R", "S(0)", "S(1)"):
            yield change(ONE, [f"P({op})"], [target], (8, 8))
        for sources, targets in (
            ((f"P({op})", "S(0)"), ("R", "S(0)")),
            ((f"P({op})", "S(0)"), ("S(1)", "S(0)")),
            ((f"P({op})", f"P({op})"), ("R", "R")),
            ((f"P({op})", f"P({op})"), ("S(0)", "R")),
        ):
            yield change(TWO, sources, targets, (8, 8))
    for mixed in (
        ("P(sum)", "P(max)"), ("P(max)", "P(sum)"), ("P(sum)", "P(avg)"), ("P(min)", "P(max)"),
    ):  # fmt: skip
        for targets in (("R", "R"), ("S(0)", "S(1)")):
            yield change(TWO, mixed, targets, (8, 8))
    for dtype in ("int32", "bfloat16", "float64"):
        for target in ("R", "S(0)"):
            yield change(ONE, ["P(sum)"], [target], (4, 4), dtype)


def _orders() -> Iterator[Case]:
    plain, swapped = Layout((("a", "b"), ())), Layout((("b", "a"), ()))
    columns, swapped_columns = Layout(((), ("a", "b"))), Layout(((), ("b", "a")))
    a, b, whole = Layout((("a",), ())), Layout((("b",), ())), Layout(((), ()))
    apart = Layout((("a",), ("b",)))
    for on, shape in ((TWO, (8, 8)), (WIDE, (16, 16))):
        for source, target in (
            (plain, swapped), (swapped, plain), (swapped, whole), (whole, swapped),
            (swapped, a), (swapped, b), (a, swapped), (b, swapped), (swapped, columns),
            (swapped_columns, swapped), (swapped, apart),
        ):  # fmt: skip
            yield change(on, source, target, shape)
    sources = (
        Layout((("c", "b", "a"), ())), Layout((("b", "c"), ("a",))), Layout((("c",), ("b", "a"))),
    )  # fmt: skip
    targets = Layout((("a", "b", "c"), ())), Layout((("c", "a"), ("b",))), whole
    for source in sources:
        for target in targets:
            yield change(THREE, source, target, (8, 8))


def _uneven() -> Iterator[Case]:
    for shape in ((5, 3), (3, 6), (1, 4), (6, 5), (0, 4)):
        for source, target in (("S(0)", "R"), ("R", "S(0)"), ("S(0)", "S(1)"), ("S(1)", "S(0)")):
            yield change(ONE, [source], [target], shape)
    for shape in ((5, 3), (6, 6), (3, 2)):
        for sources, targets in (
            (("S(0)", "S(0)"), ("R", "R")),
            (("R", "R"), ("S(0)", "S(0)")),
            (("S(0)", "S(1)"), ("S(1)", "S(0)")),
            (("S(0)", "S(0)"), ("S(0)", "R")),
            (("S(0)", "S(0)"), ("S(1)", "S(1)")),
        ):
            yield change(TWO, sources, targets, shape)
    for target in ("R", "S(0)", "S(1)"):
        yield change(ONE, ["P(sum)"], [target], (5, 3))


def _devices() -> Iterator[Case]:
    for order in ((3, 2, 1, 0), (2, 0, 3, 1), (1, 0, 3, 2)):
        on = mesh({"x": 4}, order)
        for source, target in (
            ("S(0)", "R"), ("R", "S(0)"), ("S(0)", "S(1)"), ("P(sum)", "R"), ("P(sum)", "S(0)"),
        ):  # fmt: skip
            yield change(on, [source], [target], (8, 8))
    for order in ((0, 2, 1, 3), (3, 2, 1, 0), (1, 0, 3, 2)):
        on = mesh({"a": 2, "b": 2}, order)
        for sources, targets in (
            (("S(0)", "R"), ("R", "R")),
            (("S(0)", "S(1)"), ("R", "R")),
            (("S(0)", "S(0)"), ("R", "R")),
            (("R", "R"), ("S(0)", "S(1)")),
            (("P(sum)", "S(0)"), ("S(0)", "R")),
        ):
            yield change(on, sources, targets, (8, 8))
