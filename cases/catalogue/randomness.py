"""Which placements draw the numbers of one device, and which devices share numbers?

Each framework has its own numbers, so every right value is a relation between draws. Two layouts
give the same global array (the largest difference is 0). Two devices have no common number (the
count of equal elements is 0). No shard repeats a mask. Initial values of parameters are drawn in
place, as modules do. Refuses to know the numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from cases.catalogue.siblings_meshes import X4, Table, on
from cases.errors import Where
from cases.load import read_case
from cases.model import Case

FAMILY = "random"

SQUARE = {"a": 2, "b": 2}
NARROW = {"a": 1, "b": 4}
STAGES = {"pp": 2, "tp": 2}

# Mesh, placements and shape of a draw. If two devices hold different parts, also their rows or
# columns as (dim, start of one, start of the other, count).
Halves = tuple[int, int, int, int] | None
Drawn = tuple[dict[str, int], list[str], list[int], Halves]
LAYOUTS: tuple[Drawn, ...] = (
    (X4, ["R"], [8, 4], None),
    (X4, ["S(0)"], [8, 4], (0, 0, 2, 2)),
    (X4, ["S(1)"], [8, 4], (1, 0, 1, 1)),
    # No shard is empty, because an error there would hide the numbers.
    (X4, ["S(0)"], [7, 4], (0, 0, 2, 2)),
    (SQUARE, ["S(0)", "R"], [8, 4], (0, 0, 4, 4)),
    (SQUARE, ["S(0)", "S(1)"], [8, 4], (0, 0, 4, 4)),
    (SQUARE, ["S(0)", "S(0)"], [8, 4], (0, 0, 2, 2)),
    (NARROW, ["S(0)", "R"], [8, 4], None),
    (NARROW, ["R", "S(0)"], [8, 4], (0, 0, 2, 2)),
)


def cases(exhaustive: bool) -> Iterator[Case]:
    """The family."""
    del exhaustive
    for make in (_initial, _whole, _generators, _seeds, _later, _stages, _dropout, _slopes):
        for table in make():
            # An error in a generated table names this module.
            raw: Table = {"mesh": X4, **table}
            made = read_case(raw, __file__, Where(__file__, raw["id"]))
            yield Case(made.question, made.expectation, FAMILY, made.file, tags=made.tags)


def _name(places: list[str], mesh: dict[str, int], shape: list[int]) -> str:
    """``x4-s0``, with ``-n7`` if the first dim is 7 and not 8."""
    axes = ".".join(f"{axis}{size}" for axis, size in mesh.items())
    text = f"{axes}-" + ".".join(re.sub(r"[()]", "", place.lower()) for place in places)
    return text if shape[0] == 8 else f"{text}-n{shape[0]}"


def _two(of: str, halves: Halves) -> list[str]:
    """Steps for p and q, the parts of a draw on two devices."""
    assert halves is not None
    dim, one, other, size = halves
    return [f"f = redistribute({of}, P())"] + [
        f"{name} = slice(f, axis={dim}, start={start}, stop={start + size})"
        for name, start in (("p", one), ("q", other))
    ]


def _apart(of: str, halves: Halves) -> list[str]:
    """Steps for n, the number of equal elements in two devices' parts of a draw."""
    return [*_two(of, halves), "n = count_nonzero(equal(p, q))"]


def _off(one: str, other: str) -> str:
    """The step for d, the largest difference between two draws."""
    return f"d = max(abs({one} - {other}))"


def _table(
    id: str,
    layout: Drawn,
    program: list[str],
    right: dict[str, Any],
    *tags: str,
) -> Table:
    """A case with u or v in a layout, and w, the same replicated. The draws are a, b and c.

    u and w have no element 0, so that every 0 comes from dropout.
    """
    mesh, places, shape, _ = layout
    values = (np.arange(math.prod(shape)) + 1).reshape(shape).tolist()
    inputs = {
        "u": on(shape, places, values=values), "v": on(shape, places),
        "w": on(shape, ["R"] * len(mesh), values=values),
    }  # fmt: skip
    drawn = [found for step in program if (found := _DRAWN.match(step))]
    return {
        "id": f"{id}-{_name(places, mesh, shape)}",
        "mesh": mesh,
        "inputs": _used(inputs, program),
        "program": program,
        "to": {one[1]: inputs[one[2]]["placements"] for one in drawn},
        "check": [*(name for name in "abc" if f"{name} = " in " ".join(program)), *right],
        "right": right,
        "tags": list(tags),
    }


# The result and the operand of a step that draws.
_DRAWN = re.compile(r"(\w+) = (?:inplace_\w+|dropout)\((\w+),")


def _used(inputs: Table, program: list[str]) -> Table:
    """The inputs that a program uses."""
    text = " ".join(program)
    return {name: one for name, one in inputs.items() if re.search(rf"\b{name}\b", text)}


def _initial() -> Iterator[Table]:
    """A parameter that is drawn in place in a layout, and the same replicated."""
    for op, layouts in (
        ("uniform", LAYOUTS), ("normal", (LAYOUTS[1], LAYOUTS[5])),
    ):  # fmt: skip
        for layout in layouts:
            program = [
                f"a = inplace_{op}(v, seed=3)",
                f"b = inplace_{op}(w, seed=3)",
                _off("a", "b"),
            ]
            right: dict[str, Any] = {"d": 0}
            if layout[3] is not None:
                program += _apart("a", layout[3])
                right["n"] = 0
            yield _table(f"init-{op}", layout, program, right, "init")


def _whole() -> Iterator[Table]:
    """Draws the whole array and then splits it, so that the layout cannot change the numbers."""
    for at in (1, 2, 3, 5):
        layout = LAYOUTS[at]
        _, places, shape, halves = layout
        listed = ", ".join(map(repr, places))
        program = [
            f"a = random_uniform(shape={shape}, seed=3, whole=true, placements=[{listed}])",
            "b = inplace_uniform(w, seed=3)", _off("a", "b"), *_apart("a", halves),
        ]  # fmt: skip
        yield _table("whole", layout, program, {"d": 0, "n": 0}, "whole")


def _generators() -> Iterator[Table]:
    """Generators that are not the default. Only JAX has several."""
    for impl in ("philox4x32", "rbg", "unsafe_rbg"):
        draw = f"random_uniform(shape=[8, 4], seed=3, impl='{impl}', placements=['{{}}'])"
        program = [f"a = {draw.format('S(0)')}", f"b = {draw.format('R')}", _off("a", "b"),
                   *_apart("a", LAYOUTS[1][3])]  # fmt: skip
        yield _table(f"generator-{impl.replace('_', '-')}", LAYOUTS[1], program,
                     {"d": 0, "n": 0}, "generator")  # fmt: skip


def _seeds() -> Iterator[Table]:
    """The same seed gives the same numbers. Another seed or a later draw shares none of them."""
    layout = LAYOUTS[1]
    first = "a = inplace_uniform(v, seed=3)"
    count = "n = count_nonzero(equal(a, c))"
    for word, second, last, right in (
        ("twice", "c = inplace_uniform(v, seed=3)", "d = max(abs(a - c))", {"d": 0}),
        ("another", "c = inplace_uniform(v, seed=4)", count, {"n": 0}),
        ("draws", "c = inplace_uniform(v, seed=3, draw=1)", count, {"n": 0}),
    ):
        yield _table(f"seed-{word}", layout, [first, second, last], right, "seed")
    # An earlier draw has another seed, so that an ignored seed shows.
    heeded = ["a = inplace_uniform(v, seed=1)", "b = inplace_uniform(w, seed=3, seeding='mesh')",
              "c = inplace_uniform(w, seed=3, seeding='mesh')", _off("b", "c")]  # fmt: skip
    yield _table("seed-mesh", layout, heeded, {"d": 0}, "seed")
    own = ["a = inplace_uniform(v, seed=3, seeding='generator')",
           "b = inplace_uniform(w, seed=3, seeding='generator')", _off("a", "b"),
           *_apart("a", layout[3])]  # fmt: skip
    yield _table("seed-generator", layout, own, {"d": 0, "n": 0}, "seed")


def _later() -> Iterator[Table]:
    """A replicated draw does not depend on the layout of an earlier draw."""
    for at in (1, 3):
        program = [
            "a = inplace_uniform(v, seed=3)", "b = inplace_uniform(w, seed=3, draw=1)",
            "o = inplace_uniform(w, seed=3)", "c = inplace_uniform(w, seed=3, draw=1)",
            _off("b", "c"),
        ]  # fmt: skip
        yield _table("later", LAYOUTS[at], program, {"d": 0}, "later")


def _stages() -> Iterator[Table]:
    """A seed for each index along the distinct axes, which split dim 0."""
    for mesh, places, shape, axes in (
        (STAGES, ["S(0)", "R"], [2, 4, 4], "['pp']"),
        (STAGES, ["S(0)", "S(1)"], [2, 4, 4], "['pp']"),
        (X4, ["S(0)"], [4, 8], "['x']"),
        (X4, ["R"], [4, 8], "['x']"),
    ):
        program = [
            f"a = inplace_uniform(v, seed=3, distinct={axes})", "f = redistribute(a, P())",
            "p = index(f, axis=0, index=0)", "q = index(f, axis=0, index=1)",
            "n = count_nonzero(equal(p, q))",
        ]  # fmt: skip
        right: dict[str, Any] = {"n": 0}
        if places[-1] == "S(1)":
            program += ["s = slice(p, axis=0, start=0, stop=2)",
                        "t = slice(p, axis=0, start=2, stop=4)",
                        "m = count_nonzero(equal(s, t))"]  # fmt: skip
            right["m"] = 0
        table = _table("distinct", (mesh, places, shape, None), program, right, "distinct")
        yield {**table, "id": table["id"].removesuffix(f"-n{shape[0]}")}


def _dropout() -> Iterator[Table]:
    """A share of elements is kept and scaled. The mask depends on no layout and does not repeat."""
    for at in (0, 1, 2, 4, 5):
        mesh, places, _, _ = LAYOUTS[at]
        halves = {1: (0, 0, 4, 4), 2: (1, 0, 2, 2), 4: (0, 0, 8, 8), 5: (0, 0, 8, 8)}.get(at)
        layout = (mesh, places, [16, 8], halves)
        program = [
            "a = dropout(u, p=0.5, seed=3)", "b = dropout(w, p=0.5, seed=3)", _off("a", "b"),
            # Each element becomes 0 or twice its value.
            "e = max(minimum(abs(a), abs(a - 2 * u)))",
        ]  # fmt: skip
        right: dict[str, Any] = {"d": 0, "e": 0}
        if halves is not None:
            program += [*_two("a", halves),
                        "m = count_nonzero(not_equal(not_equal(p, 0), not_equal(q, 0)))",
                        "g = greater(m, 0)"]  # fmt: skip
            right["g"] = True
        yield _masked("dropout", layout, program, right)
    # Three standard deviations of the share of 1024 elements on one of four devices.
    program = ["a = dropout(u, p=0.75, seed=3)",
               "s = mean(astype(not_equal(a, 0), dtype='float32'))",
               "k = less(abs(s - 0.25), 0.04)"]  # fmt: skip
    yield _masked("dropout-share", (X4, ["S(0)"], [64, 64], None), program, {"k": True})
    program = ["a = dropout(u, p=0.5, seed=3)", "c = dropout(u, p=0.5, seed=3, draw=1)",
               "m = count_nonzero(not_equal(a, c))", "g = greater(m, 0)"]  # fmt: skip
    yield _masked("dropout-draws", (X4, ["S(0)"], [16, 8], None), program, {"g": True})


def _masked(
    id: str,
    layout: Drawn,
    program: list[str],
    right: dict[str, Any],
) -> Table:
    """Like `_table`, for dropout. The id has no sizes."""
    table = _table(id, layout, program, right, "dropout")
    return {**table, "id": table["id"].removesuffix(f"-n{layout[2][0]}")}


def _slopes() -> Iterator[Table]:
    """The gradient has the mask of the result: g * u equals y * w."""
    for at in (0, 1, 5):
        mesh, places, _, _ = LAYOUTS[at]
        program = [
            "y = dropout(u, p=0.5, seed=3)", "l = sum(y * w)", "g = grad(l, u)",
            # The finite differences of the reference are not exact.
            "k = less(max(abs(g * u - y * w)), 0.001)",
        ]  # fmt: skip
        table = _masked("dropout-gradient", (mesh, places, [8, 4], None), program, {"k": True})
        yield {**table, "check": ["y", "g", "k"], "tags": ["dropout", "gradient"]}
    owed = {"id": "dropout-x4-p", "inputs": {"u": on([2, 2], "P(sum)")}, "check": ["y", "d"],
            "program": ["y = dropout(u, p=0.5, seed=3)", "z = redistribute(u, P())",
                        "d = max(minimum(abs(y), abs(y - 2 * z)))"],
            "right": {"d": 0}, "tags": ["dropout"]}  # fmt: skip
    yield owed
