"""Mesh steps that are malformed in one way each, and the line with which each is refused."""

from __future__ import annotations

from tests.bad_cases import GRID, X

# ruff: noqa: E501
# A row is a name, what it changes in `CASE`, and the whole line after the file's name.
# fmt: off

NOTHING: dict[str, str | None] = {"inputs.x": None, "program": None}

MESHES: dict[str, tuple[dict[str, str | None], str]] = {
    "unknown mesh op": (
        {"mesh_steps": '[["m", "mesh_flaten", ["x"], {}]]'},
        "case \"a\": mesh_steps[0][1]: found 'mesh_flaten', wanted a mesh op: mesh_slice, mesh_flatten, mesh_unflatten, mesh_concatenate, mesh_equal"),
    "mesh step of an unknown axis": (
        {"mesh_steps": '[["m", "mesh_slice", ["q"], {}]]'},
        "case \"a\": mesh_steps[0][2][0]: found axis 'q', wanted one of x"),
    "mesh step named like an axis": (
        {"mesh_steps": '[["x", "mesh_slice", ["x"], {}]]'},
        "case \"a\": mesh_steps[0][0]: found 'x' again, wanted a name not taken"),
    "mesh step cut short": (
        {"mesh_steps": '[["m", "mesh_slice"]]'},
        'case "a": mesh_steps[0]: found 2 parts, wanted [result, op, axes] or [result, op, axes, {…}]'),
    "unflatten that does not multiply": (
        {"mesh_steps": '[["m", "mesh_unflatten", ["x"], { axes = { a = 2, b = 3 } }]]'},
        "case \"a\": mesh_steps[0][3].axes: found sizes that multiply to 6, wanted 4, the size of axis 'x'"),
    "unflatten without axes": (
        {"mesh_steps": '[["m", "mesh_unflatten", ["x"]]]'},
        'case "a": mesh_steps[0][3]: found no axes, wanted the new axes with their sizes'),
    "mesh from one of another size": (
        {"mesh_steps": '[["m", "mesh_slice", ["w"], { from = { w = 8 } }]]'},
        'case "a": mesh_steps[0][3].from: found 8 devices, wanted 4, the size of the case\'s mesh'),
    "mesh from one that does not give it": (
        {"mesh_steps": '[["m", "mesh_slice", ["w"], { from = { w = 4 } }]]'},
        'case "a": mesh_steps[0]: found a mesh w=4, wanted the case\'s mesh x=4, which this step has to make'),
    "slice of an axis and one flattened of it": (
        {"mesh_steps": '[["all", "mesh_flatten", ["dp", "tp"]], ["m", "mesh_slice", ["dp", "all"]]]', **GRID, "inputs.x": X},
        'case "a": mesh_steps[1][2][1]: found \'all\', which overlaps an earlier axis, wanted distinct axes'),
    "flatten of an axis and one flattened of it": (
        {"mesh_steps": '[["all", "mesh_flatten", ["dp", "tp"]], ["m", "mesh_flatten", ["all", "tp"]]]', **GRID, "inputs.x": X},
        'case "a": mesh_steps[1][2][1]: found \'tp\', which overlaps an earlier axis, wanted distinct axes'),
    "unflatten of two axes": (
        {"mesh_steps": '[["m", "mesh_unflatten", ["dp", "tp"], { axes = { a = 4 } }]]', **GRID, "inputs.x": X},
        'case "a": mesh_steps[0][2]: found 2 axes, wanted one axis'),
    "unflatten into an axis that is there": (
        {"mesh_steps": '[["m", "mesh_unflatten", ["dp"], { axes = { tp = 2 } }]]', **GRID, "inputs.x": X},
        "case \"a\": mesh_steps[0][3].axes: found axis 'tp' again, wanted each axis once"),
    "axis concatenated twice": (
        {"mesh_steps": '[["m", "mesh_slice", ["x"]], ["n", "mesh_concatenate", ["m", "x"]]]'},
        "case \"a\": mesh_steps[1][2][1]: found axis 'x' again, wanted each axis once"),
    "input named like a mesh step": (
        {"mesh_steps": '[["m", "mesh_slice", ["x"]]]', "inputs.m": '{ shape = [8], spec = "P()" }'},
        'case "a": inputs.m: found the name of a mesh step, wanted a name not taken'),
    "result named like a mesh step": (
        {"mesh_steps": '[["y", "mesh_slice", ["x"]]]'},
        "case \"a\": program[0]: found 'y' again, wanted a new name for the result"),
    "view of no mesh": (
        {"inputs.x": '{ shape = [8], spec = "P()", view = "m" }'},
        "case \"a\": inputs.x.view: found 'm', wanted the result of a mesh step: there is none"),
    # Steps on steps, and steps that are to be refused.
    "mesh step on one that is not there": (
        {"mesh_steps": '[["m", "mesh_slice", ["x"], { of = "n" }]]'},
        "case \"a\": mesh_steps[0][3].of: found 'n', wanted an earlier mesh step: there is none"),
    "mesh step on a later one": (
        {"mesh_steps": '[["m", "mesh_slice", ["x"], { of = "n" }], ["n", "mesh_slice", ["x"]]]'},
        "case \"a\": mesh_steps[0][3].of: found 'n', wanted an earlier mesh step: there is none"),
    "mesh step on two": (
        {"mesh_steps": '[["n", "mesh_slice", ["x"]], ["m", "mesh_slice", ["x"], { of = "n", from = { x = 4 } }]]'},
        'case "a": mesh_steps[1][3]: found both from and of, wanted one of them'),
    "axis that the mesh of a mesh step has not": (
        {"mesh_steps": '[["m", "mesh_slice", ["dp"]], ["n", "mesh_slice", ["tp"], { of = "m" }]]', **GRID, "inputs.x": X},
        "case \"a\": mesh_steps[1][2][0]: found axis 'tp', wanted one of dp"),
    "axis sliced twice": (
        {"mesh_steps": '[["m", "mesh_slice", ["x", "x"]]]'},
        "case \"a\": mesh_steps[0][2][1]: found axis 'x' again, wanted each axis once"),
    "concatenation of axes that overlap": (
        {"mesh_steps": '[["m", "mesh_flatten", ["dp", "tp"]], ["n", "mesh_concatenate", ["m", "dp"]]]', **GRID, "inputs.x": X},
        "case \"a\": mesh_steps[1][2][1]: found 'dp', which overlaps an earlier axis, wanted distinct axes"),
    "comparison of three": (
        {"mesh_steps": '[["m", "mesh_slice", ["x"]], ["n", "mesh_equal", ["m", "m", "m"]]]'},
        'case "a": mesh_steps[1][2]: found 3 names, wanted two derived meshes'),
    "comparison with an axis": (
        {"mesh_steps": '[["m", "mesh_slice", ["x"]], ["n", "mesh_equal", ["m", "x"]]]'},
        "case \"a\": mesh_steps[1][2][1]: found 'x', wanted an earlier mesh step: m"),
    "comparison as a view": (
        {"mesh_steps": '[["m", "mesh_slice", ["x"]], ["n", "mesh_equal", ["m", "m"]]]', "inputs.x": '{ shape = [8], spec = "P()", view = "n" }'},
        "case \"a\": inputs.x.view: found 'n', wanted the result of a mesh step: m"),
    "input named like a comparison": (
        {"mesh_steps": '[["m", "mesh_slice", ["x"]], ["y", "mesh_equal", ["m", "m"]]]'},
        'case "a": mesh_steps[1][0]: found the name of an input or result, wanted a name not taken'),
    "fake axis that is not new": (
        {"mesh_steps": '[["m", "mesh_unflatten", ["x"], { axes = { a = 4 }, fake = ["x"] }]]'},
        "case \"a\": mesh_steps[0][3].fake[0]: found axis 'x', wanted a new axis: a"),
    "fake axis of a slice": (
        {"mesh_steps": '[["m", "mesh_slice", ["x"], { fake = ["x"] }]]'},
        "case \"a\": mesh_steps[0][3]: found key 'fake', wanted a known key: from, of, after"),
    "refused though right": (
        {"mesh_steps": '[["m", "mesh_slice", ["x"]]]', "refused": '"m"', **NOTHING},
        'case "a": mesh_steps[0]: found a valid mesh step, wanted an invalid one, because refused names it'),
    "refused though not the last": (
        {"mesh_steps": '[["m", "mesh_slice", ["q"]], ["n", "mesh_slice", ["x"]]]', "refused": '"m"', **NOTHING},
        "case \"a\": mesh_steps: found refused 'm', wanted the last mesh step: 'n'"),
    "refused without mesh steps": (
        {"refused": '"m"', **NOTHING},
        "case \"a\": mesh_steps: found refused 'm', wanted the last mesh step: there is none"),
    "refused and a comparison": (
        {"mesh_steps": '[["m", "mesh_slice", ["x"]], ["n", "mesh_equal", ["m", "m"]]]', "refused": '"n"', **NOTHING},
        'case "a": mesh_steps[1]: found a valid mesh step, wanted an invalid one, because refused names it'),
    "refused and a program": (
        {"mesh_steps": '[["m", "mesh_slice", ["q"]]]', "refused": '"m"', "inputs.x": None},
        'case "a": found both refused and program, wanted one of them'),
    # Moves between meshes.
    "move to no view": (
        {"program": '["y = redistribute(x, view=\'m\', x=R)"]'},
        "case \"a\": program[0]: found 'm', wanted the result of a mesh step: there is none"),
    "view of an op that takes none": (
        {"mesh_steps": '[["m", "mesh_slice", ["x"]]]', "program": '["y = sum(x, view=\'m\')"]'},
        "case \"a\": program[0]: found parameter 'view', wanted a parameter of sum: axis, keepdims"),
    "move by axes of the mesh that is left": (
        {"mesh_steps": '[["m", "mesh_unflatten", ["x"], { axes = { a = 2, b = 2 } }]]', "program": '["y = redistribute(x, view=\'m\', x=R)"]'},
        "case \"a\": program[0]: found axis 'x', wanted one of a, b"),
}
