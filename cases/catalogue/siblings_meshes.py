"""Are results right on other meshes and layouts than in public reports? See `siblings`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

Table = dict[str, Any]

X4 = {"x": 4}


def on(shape: list[int], place: str | list[str], **more: Any) -> Table:
    """An input of this shape, with one placement or one for each mesh axis."""
    places = [place] if isinstance(place, str) else place
    return {"shape": shape, "placements": places, **more}


def _order() -> Iterator[Table]:
    mesh = {"a": 2, "b": 2}
    rows = ["SS(0,2)", "S(0)"]
    for word, text in (
        ("softmax", "softmax(v, axis=0)"), ("cumsum", "cumulative_sum(v, axis=0)"),
        ("sort", "sort(v, axis=0)"), ("slice", "slice(v, axis=0, start=2, stop=5)"),
        ("flip", "flip(v, axis=0)"), ("sum", "sum(v, axis=0)"), ("max", "max(v, axis=0)"),
        ("argmax", "argmax(v, axis=0)"), ("matmul", "matmul(w, v)"), ("add", "add(v, u)"),
        ("transpose", "matrix_transpose(v)"), ("reshape", "reshape(v, shape=[16])"),
        ("gather", "redistribute(v, a=R, b=R)"),
    ):  # fmt: skip
        yield {
            "id": word, "mesh": mesh,
            "inputs": {
                "v": on([8, 2], rows), "w": on([2, 8], ["S(1)", "S(1)"]),
                "u": on([8, 2], ["S(0)", "S(0)"]),
            },
            "program": [f"r = {text}"],
        }  # fmt: skip


def _devices() -> Iterator[Table]:
    for order in itertools.permutations(range(4)):
        name = ".".join(map(str, order))
        common = {"devices": list(order), "mesh": X4}
        yield {
            **common, "id": f"split-{name}", "inputs": {"v": on([4, 2], "R")},
            "program": ["s = redistribute(v, x=S(0))", "r = redistribute(s, x=R)"],
            "check": ["s", "r"],
        }  # fmt: skip
    for order in ((3, 2, 1, 0), (0, 2, 1, 3), (2, 3, 0, 1)):
        name = ".".join(map(str, order))
        for word, program in (
            ("sum", ["r = sum(v, axis=0)"]),
            ("scatter", ["s = sum(v, axis=1)", "r = redistribute(s, x=R)"]),
            ("matmul", ["r = matmul(v, w)"]),
            ("exchange", ["r = redistribute(v, x=S(1))"]),
        ):
            yield {
                "id": f"{word}-{name}", "devices": list(order),
                "inputs": {"v": on([4, 4], "S(0)"), "w": on([4, 4], "S(1)")}, "program": program,
                "check": ["r"],
            }  # fmt: skip


def _two_meshes() -> Iterator[Table]:
    order = [0, 2, 1, 3]
    for word, text in (("add", "add(v, w)"), ("matmul", "matmul(v, w)")):
        yield {
            "id": word, "mesh": {"a": 2, "b": 2},
            "inputs": {
                "v": on([4, 4], ["S(0)", "S(1)"]),
                "w": on([4, 4], ["S(0)", "S(1)"], devices=order),
            },
            "program": [f"r = {text}"],
        }  # fmt: skip


def _hybrid() -> Iterator[Table]:
    for replicas, shards in ((2, 4), (4, 2), (1, 4), (4, 1)):
        yield {
            "id": f"r{replicas}-s{shards}", "mesh": {"r": replicas, "s": shards},
            "inputs": {"v": on([8, 3], ["S(0)", "S(0)"]), "w": on([3, 8], ["R", "S(1)"])},
            "program": [
                "u = redistribute(w, r=R, s=R)", "y = matmul(v, u)", "l = sum(y)", "g = grad(l, w)",
                "h = redistribute(g, r=R, s=S(1))",
            ],
            "check": ["h"],
        }  # fmt: skip


def _derived() -> Iterator[Table]:
    for sizes in ((2, 4), (4, 2), (2, 2, 2)):
        axes = dict(zip("abc", sizes))
        grid = np.arange(8).reshape(sizes).tolist()
        yield {
            "id": f"unflatten-{'x'.join(map(str, sizes))}", "mesh": {"w": 8},
            "mesh_steps": [["m", "mesh_unflatten", ["w"], {"axes": axes}]],
            "check": ["m"], "meshes": {"m": [grid] * 8},
        }  # fmt: skip
    whole = np.arange(8).reshape(2, 2, 2)
    for kept in ("a", "b", "c", "ab", "bc", "ac"):
        grids = []
        for at in np.ndindex(2, 2, 2):
            index = tuple(slice(None) if one in kept else i for one, i in zip("abc", at))
            grids.append(whole[index].tolist())
        for word, made in (("slice", grids), ("flatten", [np.ravel(g).tolist() for g in grids])):
            yield {
                "id": f"{word}-{kept}", "mesh": {"a": 2, "b": 2, "c": 2},
                "mesh_steps": [["m", f"mesh_{word}", list(kept), {}]],
                "check": ["m"], "meshes": {"m": made},
            }  # fmt: skip


def _state() -> Iterator[Table]:
    mesh = {"a": 2, "b": 2}
    for word, text in (
        ("gather", "redistribute(v, a=R, b=R)"), ("exchange", "redistribute(v, a=S(1), b=S(0))"),
        ("sum", "sum(v)"),
    ):  # fmt: skip
        for when in ("", "v"):
            yield {
                "id": f"{word}-{'after' if when else 'before'}", "mesh": mesh,
                "inputs": {"v": on([4, 4], ["S(0)", "S(0)" if word == "gather" else "S(1)"])},
                "mesh_steps": [["ab", "mesh_flatten", ["a", "b"], {"after": when}]],
                "program": [f"r = {text}"], "check": ["r"],
            }  # fmt: skip


def _relabel() -> Iterator[Table]:
    for one, other in itertools.permutations(("sum", "avg", "max", "min"), 2):
        yield {
            "id": f"{one}-{other}",
            "inputs": {"v": on([2], f"P({one})", per_device=[[4, -7], [-8, 3], [2, 1], [6, -1]])},
            "program": [f"r = redistribute(v, x=P({other}))"],
        }


MAKERS = {
    "order": _order, "devices": _devices, "two-meshes": _two_meshes, "hybrid": _hybrid,
    "derived": _derived, "state": _state, "relabel": _relabel,
}  # fmt: skip
