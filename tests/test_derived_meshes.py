"""What a derived mesh is: what each device sees of it, what lies on it, and how a case says so."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.reference.evaluate import evaluate
from adapters.reference.meshes import observe
from cases.arrays import unpack
from cases.catalogue import parallel_dims
from cases.catalogue.parallel_dims import Degrees
from cases.load import load
from cases.mesh_derivation import are_equal, as_derived, derive_all, meshes_of_tensors
from cases.model import STACKED_AXIS, Case, Layout, Mesh, MeshStep, mesh


def _case(tmp_path: Path, *lines: str, on: str = "{ x = 4 }") -> Case:
    file = tmp_path / "cases.toml"
    file.write_text("\n".join(['[[case]]\nid = "a"', f"mesh = {on}", *lines]))
    (case,) = load(file)
    return case


def _array(given: object) -> list[Any]:
    assert given is not None
    return unpack(given).tolist()  # type: ignore[arg-type, no-any-return]


MESH_STEPS = """
mesh_steps = [
  ["qr", "mesh_flatten", ["q", "r"]],
  ["s", "mesh_slice", ["r", "p"]],
  ["m", "mesh_slice", ["p", "qr"]],
  ["u", "mesh_unflatten", ["r"], { axes = { r0 = 3, r1 = 1 } }],
  ["j", "mesh_concatenate", ["s", "q"]],
]
"""


def test_derived_meshes_index_every_position(tmp_path: Path) -> None:
    """Slices pick axes, flattens join them row-major, unflattens split, concatenates add."""
    case = _case(tmp_path, MESH_STEPS, on="{ p = 2, q = 2, r = 3 }")
    made = derive_all(case.question.mesh, case.question.mesh_steps)
    assert {name: grid.mesh.axes for name, grid in made.items()} == {
        "qr": (("qr", 6),),
        "s": (("r", 3), ("p", 2)),
        "m": (("p", 2), ("qr", 6)),
        "u": (("p", 2), ("q", 2), ("r0", 3), ("r1", 1)),
        "j": (("r", 3), ("p", 2), ("q", 2)),
    }
    places = {
        name: tuple(
            int(np.ravel_multi_index(grid.coordinate(position), grid.mesh.shape))
            for position in range(12)
        )
        for name, grid in made.items()
    }
    assert places == {
        "qr": tuple(range(6)) * 2,
        "s": (0, 2, 4, 0, 2, 4, 1, 3, 5, 1, 3, 5),
        "m": tuple(range(12)),
        "u": tuple(range(12)),
        "j": (0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11),
    }
    assert made["s"].seen(4) == (3, 9, 4, 10, 5, 11)
    assert made["qr"].axes["qr"][4] == (0, 1, 2, 3, 4, 5)
    assert case.question.check == ("qr", "s", "m", "u", "j")


def test_grids_that_devices_see_stand_by_device_number(tmp_path: Path) -> None:
    """Of a derived mesh the first grid listed is device 0's, wherever device 0 lies."""
    case = _case(
        tmp_path,
        "devices = [3, 1, 0, 2]",
        'mesh_steps = [["m", "mesh_slice", ["b"]]]',
        "meshes.m = [[0, 2], [3, 1], [0, 2], [3, 1]]",
        on="{ a = 2, b = 2 }",
    )
    assert [_array(one) for one in case.expectation.meshes["m"]] == [[3, 1], [3, 1], [0, 2], [0, 2]]


def test_a_result_is_laid_out_on_the_mesh_of_its_operand(tmp_path: Path) -> None:
    """What comes of an input on a derived mesh names the axes of that mesh."""
    case = _case(
        tmp_path,
        'mesh_steps = [["m", "mesh_unflatten", ["x"], { axes = { u = 2, v = 2 } }]]',
        'inputs.x = { shape = [4], placements = { u = "S(0)" }, view = "m" }',
        'program = ["y = add(x, 1)", "z = redistribute(y, v=S(0))"]',
    )
    assert case.question.steps[1].to == Layout((("v",),))


def test_an_input_on_a_derived_mesh_is_cut_by_it(tmp_path: Path) -> None:
    """Layouts of a view name its axes, and each position's shard is its own in the view."""
    case = _case(
        tmp_path,
        'mesh_steps = [["v", "mesh_slice", ["b"]]]',
        'inputs.x = { shape = [3], placements = ["S(0)"], view = "v", '
        "per_device = [[1, 2], [3], [1, 2], [3]] }",
        'inputs.p = { shape = [2], placements = ["P(sum)"], view = "v", values = 5 }',
        'program = ["y = redistribute(x, b=R)"]',
        on="{ a = 2, b = 2 }",
    )
    x, p = case.question.inputs
    assert (x.view, x.layout) == ("v", Layout((("b",),)))
    assert p.per_device is not None
    assert p.per_device[:2] == p.per_device[2:]
    assert (unpack(p.per_device[0]) + unpack(p.per_device[1])).tolist() == [5, 5]
    assert case.question.steps[0].to == Layout(((),))


def test_a_mesh_may_itself_be_derived(tmp_path: Path) -> None:
    """With ``from`` the case's mesh is what the step makes of another mesh."""
    steps = '[["m", "mesh_unflatten", ["w"], { axes = { a = 2, b = 2 }, from = { w = 4 } }]]'
    case = _case(tmp_path, f"mesh_steps = {steps}", on="{ a = 2, b = 2 }")
    (step,) = case.question.mesh_steps
    assert step.params == {"axes": {"a": 2, "b": 2}, "from": {"w": 4}}
    assert derive_all(case.question.mesh, (step,))["m"].mesh.axes == case.question.mesh.axes


def test_a_mesh_derives_from_an_earlier_one(tmp_path: Path) -> None:
    """``of`` names the step whose axes are meant, of which there may be more of one name."""
    steps = """
mesh_steps = [
  ["u", "mesh_unflatten", ["w"], { axes = { a = 2, b = 4 } }],
  ["v", "mesh_unflatten", ["w"], { axes = { a = 4, c = 2 } }],
  ["x", "mesh_slice", ["a"], { of = "u" }],
  ["y", "mesh_slice", ["a"], { of = "v" }],
  ["z", "mesh_flatten", ["c", "a"], { of = "v" }],
]
"""
    case = _case(tmp_path, steps, on="{ w = 8 }")
    made = derive_all(case.question.mesh, case.question.mesh_steps)
    assert [made["x"].seen(p) for p in (0, 5)] == [(0, 4), (1, 5)]
    assert [made["y"].seen(p) for p in (0, 5)] == [(0, 2, 4, 6), (1, 3, 5, 7)]
    assert made["z"].seen(0) == (0, 2, 4, 6, 1, 3, 5, 7)
    assert [made["z"].coordinate(p) for p in (0, 1, 2)] == [(0,), (4,), (1,)]


def test_axes_of_two_views_are_one_mesh_where_they_are_apart() -> None:
    """As strides say: 8 devices as 2x4 and as 4x2 have a first and a last axis that are apart."""
    steps = (
        MeshStep("u", "mesh_unflatten", ("w",), {"axes": {"a": 2, "b": 4}}),
        MeshStep("v", "mesh_unflatten", ("w",), {"axes": {"c": 4, "d": 2}}),
        MeshStep("a", "mesh_slice", ("a",), {"of": "u"}),
        MeshStep("b", "mesh_slice", ("b",), {"of": "u"}),
        MeshStep("d", "mesh_slice", ("d",), {"of": "v"}),
        MeshStep("ad", "mesh_concatenate", ("a", "d")),
        MeshStep("bd", "mesh_concatenate", ("b", "d")),
    )
    made = derive_all(mesh({"w": 8}), steps)
    assert [made["ad"].seen(p) for p in (0, 7)] == [(0, 1, 4, 5), (2, 3, 6, 7)]
    assert "bd" not in made


def test_every_group_is_a_part_of_the_world_whatever_its_strides() -> None:
    """By brute force: along an axis of a view, devices differ in its index and in no other."""
    for degrees in parallel_dims.all_degrees(8):
        for axes in degrees.views().values():
            whole = np.arange(8).reshape(tuple(axes.values()))
            step = MeshStep("v", "mesh_unflatten", ("w",), {"axes": dict(axes)})
            (view,) = derive_all(mesh({"w": 8}), (step,)).values()
            for at, place in np.ndenumerate(whole):
                assert view.coordinate(int(place)) == at
                for dim, lines in enumerate(view.axes.values()):
                    line = whole[(*at[:dim], slice(None), *at[dim + 1 :])]
                    assert lines[int(place)] == tuple(line.tolist())


def test_meshes_are_one_by_names_and_devices_alone() -> None:
    """However they were come by; other names, sizes or an order of axes make another."""
    of = mesh({"a": 2, "b": 2})
    steps = (
        MeshStep("s", "mesh_slice", ("a", "b")),
        MeshStep("j", "mesh_concatenate", ("a", "b")),
        MeshStep("t", "mesh_slice", ("b", "a")),
        MeshStep("n", "mesh_unflatten", ("b",), {"axes": {"c": 2}}),
    )
    made = derive_all(of, steps)

    def same(one: str, other: str) -> bool:
        return are_equal(MeshStep("e", "mesh_equal", (one, other)), made)

    assert same("s", "j")
    assert made["s"] == as_derived(of)
    assert not any(same(*pair) for pair in itertools.combinations(("s", "t", "n"), 2))


def test_what_lies_on_a_slice_lies_on_all_slices_side_by_side(tmp_path: Path) -> None:
    """Its shards are listed slice by slice; a result lies where its operand does, or its view."""
    case = _case(
        tmp_path,
        'mesh_steps = [["s", "mesh_slice", ["a"]], ["t", "mesh_slice", ["b"]]]',
        'inputs.x = { shape = [4], placements = ["S(0)"], view = "s" }',
        'program = ["y = redistribute(x, a=R)", "z = redistribute(x, view=\'t\', b=S(0))"]',
        on="{ a = 2, b = 2 }",
    )
    on = meshes_of_tensors(case.question)
    assert on["x"] == on["y"] == Mesh(((STACKED_AXIS, 2), ("a", 2)), (0, 2, 1, 3))
    assert on["z"] == Mesh(((STACKED_AXIS, 2), ("b", 2)), (0, 1, 2, 3))
    assert [step.to for step in case.question.steps] == [Layout(((),)), Layout((("b",),))]


def test_addends_on_a_slice_are_given_by_device(tmp_path: Path) -> None:
    """Listed by position of the case's mesh, kept by position of the mesh that they lie on."""
    case = _case(
        tmp_path,
        'mesh_steps = [["s", "mesh_slice", ["a"]]]',
        'inputs.x = { shape = [1], placements = ["P(sum)"], view = "s", '
        "per_device = [[1], [1], [20], [20]] }",
        on="{ a = 2, b = 2 }",
    )
    (x,) = case.question.inputs
    assert [_array(one) for one in x.per_device or ()] == [[1], [20], [1], [20]]
    assert evaluate(case.question)["x"].tolist() == [21]


def test_a_step_that_is_to_be_refused_makes_nothing(tmp_path: Path) -> None:
    """It is asked of the frameworks like any other, and checked."""
    steps = 'mesh_steps = [["n", "mesh_slice", ["x"]], ["m", "mesh_slice", ["q"]]]'
    case = _case(tmp_path, steps, 'refused = "m"')
    assert case.expectation.refused == "m"
    assert case.question.check == ("n", "m")
    assert [step.result for step in case.question.mesh_steps] == ["n", "m"]
    assert list(derive_all(case.question.mesh, case.question.mesh_steps)) == ["n"]
    assert [seen.name for seen in observe(case.question)] == ["n", "n/x"]


def test_degrees_are_what_is_left_of_the_world() -> None:
    """Sizes of every derived axis, by the formulas of the discussion."""
    one = Degrees(64, pp=2, dp_replicate=2, cp=2, tp=4, ep=2, etp=4)
    assert (one.dp_shard, one.batch, one.fsdp, one.efsdp) == (2, 4, 4, 2)
    assert one.views() == {
        "data": {"pp": 2, "batch": 4, "cp": 2, "tp": 4},
        "dense": {"pp": 2, "dp_replicate": 2, "fsdp": 4, "tp": 4},
        "sparse": {"pp": 2, "dp_replicate": 2, "efsdp": 2, "ep": 2, "etp": 4},
        "storage": {"pp": 2, "dp_replicate": 2, "dp_shard": 2, "cp": 2, "tp": 4},
        "forward": {"pp": 2, "dp": 4, "cp": 2, "tp": 4},
    }
    for sizes in one.views().values():
        assert np.prod(list(sizes.values())) == 64


@pytest.mark.parametrize(
    "sizes", [{"tp": 3}, {"dp_shard": 2}, {"tp": 4, "etp": 2}, {"tp": 2, "etp": 2, "ep": 8}]
)
def test_degrees_that_do_not_fit_are_refused(sizes: dict[str, int]) -> None:
    """Of a world of 8: what does not multiply to it, and experts that there is no room for."""
    with pytest.raises(ValueError, match=r"degrees|etp|experts"):
        Degrees(8, **sizes)


def test_the_covering_degrees_meet_as_all_degrees_do() -> None:
    """Each two sizes of two degrees that fit a world of 8 together stand in some default case."""

    def pairs(found: list[Degrees]) -> set[tuple[str, ...]]:
        return {pair for one in found for pair in itertools.combinations(one.name.split("."), 2)}

    assert pairs(parallel_dims.covering_degrees(8)) == pairs(parallel_dims.all_degrees(8))
    assert len(parallel_dims.covering_degrees(8)) < len(parallel_dims.all_degrees(8)) / 3
