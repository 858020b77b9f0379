"""Where a public report shows one op or one size: does the rest of its kind behave?

A function per kind of fault, in the notation of case files. Each case is tagged with the report
whose kind it is of; `KINDS` says which cases of other families are of that kind too.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from cases.errors import Where
from cases.load import read_case
from cases.model import Case

FAMILY = "siblings"

Table = dict[str, Any]


class Kind(msgspec.Struct, frozen=True):
    """A kind of fault: the reports that show it, what it is, and patterns of case ids.

    ``patterns``: cases of other families that are of the kind as well, as `fnmatch` has them.
    """

    reports: tuple[str, ...]
    what: str
    patterns: tuple[str, ...] = ()


KINDS: dict[str, Kind] = {
    "scalar": Kind(
        ("public/dtensor/T01",), "a Python number meets a pending reduction",
        ("add.number-x4-p", "subtract.number-left-x4-p", "multiply.number-x4-p",
         "divide.number*-x4-p", "maximum.number-x4-p", "power.number-x4-p",
         "greater.number-x4-p", "inplace_add.number-x4-p"),
    ),
    "cache": Kind(("public/dtensor/T02",), "one op with several numbers, one after the other"),
    "mean-loss": Kind(
        ("public/dtensor/T04",), "a mean-type loss over uneven shards",
        ("*_loss.mean-x4-*-n[57]", "binary_cross_entropy*.mean-x4-*-n[57]",
         "kl_div.mean-x4-*-n[57]", "cross_entropy.mean-x4-*-n[57]", "mean*-n[57]"),
    ),
    "denominator": Kind(
        ("public/dtensor/T06",), "rows that do not count make the denominator differ by shard",
        ("nll_loss.*ignored*", "nll_loss.weighted*", "cross_entropy.*ignored*",
         "cross_entropy.weighted*"),
    ),
    "norm": Kind(("public/dtensor/T09",), "a norm of what owes a reduction",
                 ("vector_norm*-x4-p",)),
    "item": Kind(("public/dtensor/T10",), "one number of what owes a reduction"),
    "cast": Kind(("public/dtensor/T12",), "a cast of what owes a reduction",
                 ("astype.*-x4-p",)),
    "local": Kind(("public/dtensor/T15", "public/dtensor/T35"),
                  "local tensors taken out and put back"),
    "selecting": Kind(
        ("public/dtensor/T16", "public/dtensor/T17"), "the gradient of what selects elements",
        ("topk_values*-by-*", "sort*-by-*", "take*-by-*", "max*-by-*", "index*-by-*",
         "slice*-by-*", "embedding*-by-*"),
    ),
    "regroup": Kind(
        ("public/dtensor/T19", "public/dtensor/C09", "public/jax/J32"),
        "reshaping a dim that is split", ("reshape*", "flatten*"),
    ),
    "slicing": Kind(
        ("public/dtensor/T20", "public/jax/J03", "public/jax/J06", "public/jax/J44"),
        "slicing the dim that is split",
        ("slice*-x4-s*", "index*-x4-s*", "split-x4-s*", "chunk-x4-s*", "roll*-x4-s*", "flip-x4-s*"),
    ),
    "size-1": Kind(("public/dtensor/T23",), "a split dim of one element is stretched or dropped"),
    "convolution": Kind(
        ("public/dtensor/T24", "public/jax/J22"), "a convolution of what is split",
        ("conv1d*", "conv2d*"),
    ),
    "arg": Kind(
        ("public/dtensor/T25", "public/jax/J10", "public/jax/J11"),
        "positions along the dim that is split",
        ("argmax*-x4-*", "argmin*-x4-*", "max_with_index*-x4-*", "argsort*-x4-*",
         "topk_*-x4-*"),
    ),
    "writing": Kind(
        ("public/dtensor/T27", "public/jax/J07", "public/jax/J08", "public/jax/J36",
         "public/jax/E8"),
        "writing at positions into what is split",
        ("index_put*", "scatter*", "set_slice*", "assign_slice*", "masked_fill*"),
    ),
    "empty": Kind(("public/dtensor/T31",), "an op meets an empty shard", ("*-n5",)),
    "uneven": Kind(
        ("public/dtensor/T32", "public/dtensor/M07", "public/dtensor/M08"),
        "uneven shards change hands", ("x4-*-5x3", "x4-*-7x*", "x4-*-3x*"),
    ),
    "irregular": Kind(("public/dtensor/T33",), "shards whose sizes are no chunks"),
    "mapped": Kind(("public/dtensor/T34",), "a function mapped over uneven shards"),
    "order": Kind(
        ("public/dtensor/T38", "public/dtensor/T39"),
        "axes split a dim in another order than the mesh's",
        ("a2.b2-s0f2*", "a2.b2-s1f2*"),
    ),
    "devices": Kind(
        ("public/dtensor/T41", "public/jax/M1", "public/jax/M3"),
        "a mesh whose devices are not in order",
        ("x4-d*",),
    ),
    "relabel": Kind(("public/dtensor/T43",), "one pending reduction made another"),
    "random": Kind(("public/dtensor/T44",), "random numbers under a placement"),
    "two-pending": Kind(
        ("public/dtensor/C01", "public/jax/J13", "public/jax/J13c"), "two axes owe a sum",
        ("a2.b2-p.p-to-*",),
    ),
    "exchange": Kind(
        ("public/dtensor/C03", "public/jax/E2"), "two axes exchange their dims",
        ("a2.b2-s0.s1-to-s1.s0", "a2.b2-s1.s0-to-s0.s1"),
    ),
    "dynamic": Kind(
        ("public/jax/J04c", "public/jax/J05", "public/jax/J05b"),
        "a slice whose start is data, in range and beyond", ("dynamic_*",),
    ),
    "joining": Kind(("public/jax/J01",), "arrays split on the dim along which they are joined",
                    ("concat*", "stack*")),
    "ramp": Kind(("public/jax/J20",), "a ramp built split"),
    "partial-asked": Kind(
        ("public/jax/J15", "public/jax/J17"), "a contraction asked to owe its sum"),
    "batch": Kind(("public/jax/J37",), "linear algebra with the batch split",
                  ("inv-*", "cholesky-*", "solve-*", "det-*")),
    "along": Kind(
        ("public/jax/J34", "public/jax/J35", "public/jax/E4", "public/jax/E6"),
        "work along a dim that is not split",
        ("cumulative_*-x4-s0", "fft-x4-s0", "softmax-x4-s0", "take_along_axis-x4-s0-s0"),
    ),
    "lookup": Kind(("public/jax/E7b", "public/jax/E11"), "rows looked up in a table that is split",
                   ("take-*", "embedding*")),
    "two-meshes": Kind(("public/jax/J45",), "arrays of two meshes of the same devices"),
}  # fmt: skip

_X4 = {"x": 4}


def cases(exhaustive: bool) -> Iterator[Case]:
    """The family, kind by kind."""
    del exhaustive
    for kind, make in _MAKERS.items():
        for table in make():
            # A generated table is of this module, and says so where it is wrong.
            raw = {"mesh": _X4, **table, "tags": [kind]}
            raw["id"] = f"{kind}.{table['id']}"
            made = read_case(raw, __file__, Where(__file__, raw["id"]))
            yield msgspec.structs.replace(made, family=FAMILY)


def _x(shape: list[int], place: str | list[str], **more: Any) -> Table:
    places = [place] if isinstance(place, str) else place
    return {"shape": shape, "placements": places, **more}


def _scalar() -> Iterator[Table]:
    for reduction, (word, text) in itertools.product(
        ("sum", "mean", "max", "prod"),
        (("add", "s + 10"), ("left", "10 - s"), ("times", "s * 3"), ("over", "s / 4"),
         ("under", "12 / s"), ("most", "maximum(s, 5)"), ("more", "greater(s, 5)")),
    ):  # fmt: skip
        values = [1, 2, 1, 3, 1, 2, 1, 2]
        yield {
            "id": f"{reduction}-{word}",
            "inputs": {"v": _x([8], "S(0)", values=values)},
            "program": [f"s = {reduction}(v)", f"r = {text}"],
            "check": ["r"],
        }


def _cache() -> Iterator[Table]:
    for name, text in (
        ("multiply", "multiply(v, {})"), ("divide", "divide(v, {})"), ("add", "add(v, {})"),
        ("subtract", "subtract({}, v)"), ("maximum", "maximum(v, {})"), ("power", "power(v, {})"),
        ("remainder", "remainder(v, {})"),
    ):  # fmt: skip
        for place in ("P(sum)", "P(avg)", "P(max)"):
            yield {
                "id": f"{name}-{place[2:-1]}",
                "inputs": {"v": _x([2], place, per_device=[[3, 1], [4, 1], [5, 9], [2, 6]])},
                "program": [f"r{i} = {text.format(n)}" for i, n in enumerate((-4, 2, 3))][
                    name in ("power", "remainder") :
                ],
            }


def _norm() -> Iterator[Table]:
    held = [[4, -7], [-8, 3], [2, 1], [6, -1]]
    for place, order in itertools.product(("sum", "avg", "max", "min"), (1, 2, "'inf'")):
        yield {
            "id": f"{place}-{str(order).strip(chr(39))}",
            "inputs": {"v": _x([2], f"P({place})", per_device=held)},
            "program": [f"r = vector_norm(v, ord={order})"],
        }


def _item() -> Iterator[Table]:
    for reduction in ("sum", "mean", "max", "min", "prod"):
        yield {
            "id": reduction,
            "inputs": {"v": _x([8], "S(0)", values=[1, 2, 1, 3, 1, 2, 1, 2])},
            "program": [f"s = {reduction}(v)", "r = item(s)"],
            "check": ["r"],
        }
    yield {"id": "split", "inputs": {"v": _x([1], "S(0)")}, "program": ["r = item(v)"]}
    yield {"id": "whole", "inputs": {"v": _x([1], "R")}, "program": ["r = item(v)"]}


def _cast() -> Iterator[Table]:
    held = [[1.5, -2.5], [1.5, 0.5], [0.75, 3.5], [0.25, -1.5]]
    for place, dtype in itertools.product(
        ("sum", "avg", "max", "min"), ("int32", "float64", "bfloat16", "bool")
    ):
        yield {
            "id": f"{place}-{dtype}",
            "inputs": {"v": _x([2], f"P({place})", per_device=held)},
            "program": [f"r = astype(v, dtype='{dtype}')"],
        }


def _local() -> Iterator[Table]:
    for rows in (8, 6, 5):
        yield {
            "id": f"round-trip-{rows}",
            "inputs": {"v": _x([rows, 3], "S(0)")},
            "program": ["a = to_local(v)", "r = from_local(a, placements=['S(0)'])"],
            "check": ["r"],
        }
    for place, times in (("S(0)", "multiply(a, 2)"), ("R", "square(a)")):
        yield {
            "id": f"gradient-{place[0].lower()}",
            "inputs": {"v": _x([4], place, values=[1, 2, 3, 4])},
            "program": [
                "a = to_local(v)", f"b = {times}", f"y = from_local(b, placements=['{place}'])",
                "l = sum(y)", "g = grad(l, v)",
            ],
            "check": ["l", "g"],
        }  # fmt: skip
    for mesh, inner in (({"x": 2}, 5), ({"x": 2}, 6), (_X4, 6), (_X4, 8)):
        yield {
            "id": f"pair-{mesh['x']}-{inner}",
            "mesh": mesh,
            "inputs": {
                "h": _x([2, 3], "R"), "w": _x([3, inner], "S(1)"), "u": _x([inner, 3], "S(0)"),
            },
            "program": [
                "a = matmul(h, w)", "b = to_local(a)", "c = from_local(b, placements=['S(1)'])",
                "r = matmul(c, u)",
            ],
            "check": ["r"],
        }  # fmt: skip


def _regroup() -> Iterator[Table]:
    for shape, target in (
        ([6, 2], [12]), ([5, 2], [10]), ([7, 2], [14]), ([3, 4], [12]), ([2, 6], [12]),
        ([1, 2], [1, 2]), ([1, 2], [2]), ([8], [2, 4]), ([8], [4, 2]), ([12], [3, 4]),
        ([6], [6, 1]), ([6], [2, 3]), ([4, 4], [2, 8]), ([8, 4], [2, 2, 8]),
    ):  # fmt: skip
        for dim in range(len(shape)):
            names = "x".join(map(str, shape)), "x".join(map(str, target))
            yield {
                "id": f"s{dim}-{names[0]}-to-{names[1]}",
                "inputs": {"v": _x(shape, f"S({dim})")},
                "program": [f"r = reshape(v, shape={target})"],
            }


def _size_one() -> Iterator[Table]:
    for word, text in (
        ("broadcast", "broadcast_to(v, shape=[4, 4])"), ("squeeze", "squeeze(v, axis=0)"),
        ("add", "add(v, w)"), ("sum", "sum(v, axis=0)"), ("repeat", "repeat(v, repeats=4, axis=0)"),
        ("concat", "concat(v, w, axis=0)"), ("expand", "expand_dims(v, axis=0)"),
        ("matmul", "matmul(w, matrix_transpose(v))"), ("index", "index(v, axis=0, index=0)"),
        ("softmax", "softmax(v, axis=0)"), ("max", "max(v, axis=0)"),
    ):  # fmt: skip
        yield {
            "id": word,
            "inputs": {"v": _x([1, 4], "S(0)"), "w": _x([4, 4], "R")},
            "program": [f"r = {text}"],
        }


def _empty() -> Iterator[Table]:
    for word, text in (
        ("max", "max(v)"), ("min", "min(v)"), ("argmax", "argmax(v)"), ("any", "any(v > 3)"),
        ("mean", "mean(v)"), ("var", "var(v)"), ("norm-inf", "vector_norm(v, ord='inf')"),
        ("logsumexp", "logsumexp(v)"), ("prod", "prod(v)"), ("sort", "sort(v, axis=0)"),
        ("topk", "topk_values(v, k=1, axis=0)"), ("softmax", "softmax(v, axis=0)"),
        ("cumsum", "cumulative_sum(v, axis=0)"),
    ):  # fmt: skip
        for rows in (3, 2, 1):
            if word != "any":
                yield {
                    "id": f"{word}-{rows}",
                    "inputs": {"v": _x([rows, 3], "S(0)")},
                    "program": [f"r = {text}"],
                }


def _irregular() -> Iterator[Table]:
    for sizes in ((1, 2, 2, 3), (2, 3, 4, 5), (3, 0, 1, 4), (4, 2, 2, 2), (0, 0, 4, 4)):
        held, start = [], 0
        for size in sizes:
            held.append(list(range(start, start + size)))
            start += size
        for word, text in (
            ("gather", "redistribute(v, x=R)"), ("double", "v * 2"), ("sum", "sum(v)"),
        ):  # fmt: skip
            yield {
                "id": f"{word}-{'.'.join(map(str, sizes))}",
                "inputs": {
                    "v": {"declared_shape": [start], "placements": ["S(0)"], "per_device": held}
                },
                "program": [f"r = {text}"],
                "check": ["r"],
            }


def _mapped() -> Iterator[Table]:
    for rows in (8, 7, 6, 5, 3):
        yield {
            "id": f"rows-{rows}",
            "inputs": {"v": _x([rows, 2], "S(0)")},
            "program": ["r = map_shards(v, scale=2, placements=['S(0)'])"],
        }
    yield {
        "id": "columns-6", "inputs": {"v": _x([2, 6], "S(1)")},
        "program": ["r = map_shards(v, scale=3, placements=['S(1)'])"],
    }  # fmt: skip
    yield {
        "id": "two-axes", "mesh": {"a": 2, "b": 2}, "inputs": {"v": _x([4, 4], ["S(0)", "S(1)"])},
        "program": ["r = map_shards(v, scale=3, placements=['S(0)', 'S(1)'])"],
    }  # fmt: skip


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
                "v": _x([8, 2], rows), "w": _x([2, 8], ["S(1)", "S(1)"]),
                "u": _x([8, 2], ["S(0)", "S(0)"]),
            },
            "program": [f"r = {text}"],
        }  # fmt: skip


def _devices() -> Iterator[Table]:
    for order in itertools.permutations(range(4)):
        name = ".".join(map(str, order))
        common = {"devices": list(order), "mesh": _X4}
        yield {
            **common, "id": f"split-{name}", "inputs": {"v": _x([4, 2], "R")},
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
                "inputs": {"v": _x([4, 4], "S(0)"), "w": _x([4, 4], "S(1)")}, "program": program,
                "check": ["r"],
            }  # fmt: skip


def _relabel() -> Iterator[Table]:
    for one, other in itertools.permutations(("sum", "avg", "max", "min"), 2):
        yield {
            "id": f"{one}-{other}",
            "inputs": {"v": _x([2], f"P({one})", per_device=[[4, -7], [-8, 3], [2, 1], [6, -1]])},
            "program": [f"r = redistribute(v, x=P({other}))"],
        }


def _random() -> Iterator[Table]:
    for op, (one, other) in itertools.product(
        ("random_uniform", "random_normal"),
        (("R", "S(0)"), ("R", "S(1)"), ("S(0)", "S(1)"), ("S(0)", "S(0)")),
    ):
        yield {
            "id": re.sub(r"[()]", "", f"{op.removeprefix('random_')}-{one}-{other}".lower()),
            "program": [
                f"p = {op}(shape=[8, 4], seed=3, placements=['{one}'])",
                f"q = {op}(shape=[8, 4], seed=3, placements=['{other}'])",
                "r = max(abs(p - q))",
            ],
            "check": ["r"],
            "right": {"r": 0},
        }  # fmt: skip


def _dynamic() -> Iterator[Table]:
    for dim, start in itertools.product((0, 1), (0, 3, 5, 6, 8, 20)):
        inputs = {
            "v": _x([8, 8], "S(1)", dtype="int32"),
            "i": _x([], "R", dtype="int32", values=start),
            "u": _x([3, 8] if dim == 0 else [8, 3], "R", dtype="int32", values=-1),
        }
        yield {
            "id": f"read-{dim}-{start}", "inputs": {k: inputs[k] for k in "vi"},
            "program": [f"r = dynamic_slice(v, i, size=3, axis={dim})"],
        }  # fmt: skip
        yield {
            "id": f"write-{dim}-{start}", "inputs": inputs,
            "program": [f"r = dynamic_update_slice(v, u, i, axis={dim})"],
        }  # fmt: skip


def _ramp() -> Iterator[Table]:
    for dtype, n in (
        ("uint8", 248), ("int8", 120), ("int16", 300), ("int32", 64), ("int64", 64),
        ("float32", 64), ("float64", 12), ("bfloat16", 200), ("float32", 6),
    ):  # fmt: skip
        yield {
            "id": f"{dtype}-{n}",
            "program": [f"r = arange(n={n}, dtype='{dtype}', placements=['S(0)'])"],
        }
    for place in ("R", "S(0)", "S(1)"):
        yield {
            "id": f"full-{place[:1].lower()}{place[2:3]}",
            "program": [f"r = full(shape=[8, 4], value=2.5, placements=['{place}'])"],
        }


def _partial_asked() -> Iterator[Table]:
    for word, places in (
        ("both", ("S(1)", "S(0)")), ("left", ("S(1)", "R")), ("right", ("R", "S(0)")),
        ("neither", ("R", "R")),
    ):  # fmt: skip
        yield {
            "id": f"matmul-{word}",
            "inputs": {"v": _x([4, 8], places[0]), "w": _x([8, 4], places[1])},
            "program": ["p = matmul(v, w)", "r = redistribute(p, x=R)"],
            "to": {"p": ["P(sum)"]},
            "check": ["p", "r"],
        }


def _two_meshes() -> Iterator[Table]:
    order = [0, 2, 1, 3]
    for word, text in (("add", "add(v, w)"), ("matmul", "matmul(v, w)")):
        yield {
            "id": word, "mesh": {"a": 2, "b": 2},
            "inputs": {
                "v": _x([4, 4], ["S(0)", "S(1)"]),
                "w": _x([4, 4], ["S(0)", "S(1)"], devices=order),
            },
            "program": [f"r = {text}"],
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
                "inputs": {"v": _x([4, 4], ["S(0)", "S(0)" if word == "gather" else "S(1)"])},
                "mesh_steps": [["ab", "mesh_flatten", ["a", "b"], {"after": when}]],
                "program": [f"r = {text}"], "check": ["r"],
            }  # fmt: skip


_MAKERS = {
    "scalar": _scalar, "cache": _cache, "norm": _norm, "item": _item, "cast": _cast,
    "local": _local, "regroup": _regroup, "size-1": _size_one, "empty": _empty,
    "irregular": _irregular, "mapped": _mapped, "order": _order, "devices": _devices,
    "relabel": _relabel, "random": _random, "dynamic": _dynamic, "ramp": _ramp,
    "partial-asked": _partial_asked, "two-meshes": _two_meshes, "state": _state,
}  # fmt: skip
KINDS["state"] = Kind((), "a mesh is flattened before, or after a tensor was made")
