"""Layouts in both notations: what is printed reads back, and what cannot be said is refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from cases.layout import are_equivalent, index_ranges
from cases.model import REDUCTIONS, Layout, Mesh, mesh
from cases.notation import (
    NotationError,
    format_both_notations,
    from_mapping,
    from_placements,
    from_spec,
    to_placements,
    to_spec,
)

MESHES = {
    "x4": mesh({"x": 4}),
    "a2.b3": mesh({"a": 2, "b": 3}),
    "a2.b2": mesh({"a": 2, "b": 2}),
    "a2.b1.c3": mesh({"a": 2, "b": 1, "c": 3}),
    "a2.b2.c2": mesh({"a": 2, "b": 2, "c": 2}),
    "a1.b2.c1": mesh({"a": 1, "b": 2, "c": 1}),
}
GRID = mesh({"a": 2, "b": 2})


def _layouts(on: Mesh, ndim: int) -> Iterator[Layout]:
    """Every layout without pending reductions: each axis in one dim or none, in every order."""
    for placed in itertools.product(range(ndim + 1), repeat=len(on.axes)):
        per_dim = [
            [axis for axis, dim in zip(on.names, placed, strict=True) if dim == d]
            for d in range(ndim)
        ]
        for dims in itertools.product(*(itertools.permutations(axes) for axes in per_dim)):
            yield Layout(tuple(dims))


@pytest.mark.parametrize("on", MESHES.values(), ids=MESHES)
@pytest.mark.parametrize("ndim", [0, 1, 2, 3])
def test_every_layout_reads_back_from_both_notations(on: Mesh, ndim: int) -> None:
    """Placements keep what every position holds; a PartitionSpec keeps the layout itself."""
    shape = (7, 5, 12)[:ndim]
    for layout in _layouts(on, ndim):
        again = from_placements(to_placements(layout, on), on, ndim)
        assert are_equivalent(on, again, layout, shape), layout
        assert index_ranges(on, again, shape) == index_ranges(on, layout, shape)
        assert from_spec(to_spec(layout), on, ndim) == layout


@pytest.mark.parametrize("on", MESHES.values(), ids=MESHES)
def test_every_pending_reduction_reads_back(on: Mesh) -> None:
    """Any reduction may be pending over any axis, in the order of the axes."""
    for ops in itertools.product([None, *REDUCTIONS], repeat=len(on.axes)):
        partial = tuple((axis, op) for axis, op in zip(on.names, ops, strict=True) if op)
        layout = Layout(((), ()), partial)
        assert from_placements(to_placements(layout, on), on, 2) == layout
        if {op for _, op in partial} <= {"sum"}:
            assert from_spec(to_spec(layout), on, 2) == layout


@pytest.mark.parametrize(
    ("layout", "placements", "spec"),
    [
        (Layout((("a",), ("b",))), "[S(0), S(1)]", "P('a', 'b')"),
        (Layout((("a", "b"), ())), "[S(0), S(0)]", "P(('a', 'b'))"),
        (Layout((("b", "a"), ())), "[SS(0,2), S(0)]", "P(('b', 'a'))"),
        (Layout(((), ()), (("b", "sum"),)), "[R, P(sum)]", "P(unreduced={'b'})"),
        (Layout(((), ("a",)), (("b", "sum"),)), "[S(1), P(sum)]", "P(None, 'a', unreduced={'b'})"),
        (Layout(((), ())), "[R, R]", "P()"),
        (
            Layout(((), ()), (("a", "avg"),)),
            "[P(avg), R]",
            "(no PartitionSpec: pending avg)",
        ),
        (
            Layout(((), ()), (("b", "max"), ("a", "sum"))),
            "(no placements: reductions due in the order b, a)",
            "(no PartitionSpec: pending max)",
        ),
    ],
)
def test_layouts_print_in_both_notations(layout: Layout, placements: str, spec: str) -> None:
    """The table of the design: one layout, both notations, or why there is none."""
    assert format_both_notations(layout, GRID) == f"{placements}  =  {spec}"


def test_reductions_that_commute_have_no_order() -> None:
    """A sum and an average pending in either order are said alike; a sum and a maximum are not."""
    layout = Layout(((),), (("b", "sum"), ("a", "avg")))
    assert to_placements(layout, GRID) == ("P(avg)", "P(sum)")
    with pytest.raises(NotationError, match="found reductions due in the order b, a, wanted"):
        to_placements(Layout(((),), (("b", "sum"), ("a", "max"))), GRID)


@pytest.mark.parametrize(
    ("placements", "wanted"),
    [
        (["S(-1)", "R"], Layout(((), ("a",)))),
        (["P", " R "], Layout(((), ()), (("a", "sum"),))),
        (["S( 0 )", "P( max )"], Layout((("a",), ()), (("b", "max"),))),
        (["_S(0, 2)", "S(0)"], Layout((("b", "a"), ()))),
        (["SS(0, sf=2)", "S(0)"], Layout((("b", "a"), ()))),
        (["SS(0, 1)", "S(0)"], Layout((("a", "b"), ()))),
    ],
)
def test_placements_read_in_every_spelling(placements: list[str], wanted: Layout) -> None:
    """Negative dims, blanks, the default reduction, and strided shards however they are spelt."""
    assert from_placements(placements, GRID, 2) == wanted


def test_dims_may_have_several_digits() -> None:
    """Dim 11 of a 12-d tensor is a dim like any other."""
    assert from_placements(["S(11)", "R"], GRID, 12) == Layout(((),) * 11 + (("a",),))


def test_axes_left_out_of_a_mapping_replicate() -> None:
    """A mapping names only the axes that do something."""
    assert from_mapping({"b": "S(1)"}, GRID, 2) == Layout(((), ("b",)))
    assert from_mapping({}, GRID, 2) == Layout(((), ()))


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ("P()", Layout(((), ()))),
        ("PartitionSpec('a')", Layout((("a",), ()))),
        (" P(None, ('b', 'a')) ", Layout(((), ("b", "a")))),
        ("P(['b', 'a'])", Layout((("b", "a"), ()))),
        ("P((), 'a')", Layout(((), ("a",)))),
        ("P('a', unreduced=('b',))", Layout((("a",), ()), (("b", "sum"),))),
        ("P(unreduced={'b', 'a'})", Layout(((), ()), (("a", "sum"), ("b", "sum")))),
    ],
)
def test_specs_read_in_every_spelling(spec: str, wanted: Layout) -> None:
    """Tuples and lists of axes, empty entries, and any collection of unreduced axes."""
    assert from_spec(spec, GRID, 2) == wanted


@pytest.mark.parametrize(
    ("placements", "axis"),
    [
        (["T(0)", "R"], "a"),
        (["R", "S"], "b"),
        (["R", "S()"], "b"),
        (["R", "S(x)"], "b"),
        (["R", "S(2)"], "b"),
        (["R", "S(-3)"], "b"),
        (["S(0) S(1)", "R"], "a"),
        (["S(" + "9" * 5000 + ")", "R"], "a"),
        (["P(median)", "R"], "a"),
        (["SS(0,2)", "R"], "a"),
        (["SS(0,3)", "S(0)"], "a"),
        (["R", "SS(0,2)"], "b"),
        (["r", "R"], "a"),
        (["", "R"], "a"),
        (["R"], None),
        (["R", "R", "R"], None),
    ],
    ids=lambda given: str(given)[:24],
)
def test_placements_that_say_nothing_are_refused(placements: list[str], axis: str | None) -> None:
    """A placement that is none, or does not fit, is refused with the axis at fault."""
    with pytest.raises(NotationError) as refused:
        from_placements(placements, GRID, 2)
    assert refused.value.axis == axis


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "P",
        "'a'",
        "P('a'",
        "Q('a')",
        "jax.P('a')",
        "P('q')",
        "P('a', 'a')",
        "P(('a', 'a'))",
        "P('a', unreduced={'a'})",
        "P(unreduced={'q'})",
        "P(unreduced='a')",
        "P(unreduced=3)",
        "P(unreduced=None)",
        "P(reduced={'a'})",
        "P(None, None, 'a')",
        "P(1)",
        "P({'a', 'b'})",
        "P({'a': 1})",
        "P(b'a')",
        "P(*('a',))",
        "P(**{'unreduced': {'a'}})",
        "P(a)",
        "P((('a',),))",
        "P(('a', None))",
        "P(UNCONSTRAINED)",
        "P('a'); P('b')",
        "P(\0)",
        "P(" + "(" * 5000,
        "P(" + "-" * 5000 + "1)",
        "P" + "()" * 5000,
    ],
    ids=lambda spec: repr(spec)[:24],
)
def test_specs_that_say_nothing_are_refused(spec: str) -> None:
    """What is no PartitionSpec, or does not fit mesh or tensor, is refused; nothing else rises."""
    with pytest.raises(NotationError):
        from_spec(spec, GRID, 2)


def test_an_unknown_axis_of_a_mapping_is_refused() -> None:
    """A mapping may name only axes of the mesh, and the refusal lists them."""
    with pytest.raises(NotationError, match="found axis 'q', wanted one of a, b"):
        from_mapping({"q": "R"}, GRID, 2)


def test_other_reductions_than_sums_have_no_spec() -> None:
    """JAX can say unreduced of sums only; the others are refused by name."""
    with pytest.raises(NotationError, match="found pending max, product, wanted pending sums"):
        to_spec(Layout(((),), (("a", "product"), ("b", "max"))))
