"""If a public report shows a fault for one op or size, are other ops and sizes right?

One function for each kind of fault, in the notation of case files. Each case has its kind as a tag.
Refuses to know the reports, which `fault_kinds` lists.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import msgspec

from cases.catalogue.siblings_meshes import MAKERS, X4, Table, on
from cases.errors import Where
from cases.load import read_case
from cases.model import Case

FAMILY = "siblings"


def cases(exhaustive: bool) -> Iterator[Case]:
    """The family, in the order of kinds."""
    del exhaustive
    for kind, make in _MAKERS.items():
        for table in make():
            # An error in a generated table names this module.
            raw = {"mesh": X4, **table, "tags": [kind]}
            raw["id"] = f"{kind}.{table['id']}"
            made = read_case(raw, __file__, Where(__file__, raw["id"]))
            yield msgspec.structs.replace(made, family=FAMILY)


def _scalar() -> Iterator[Table]:
    for reduction, (word, text) in itertools.product(
        ("sum", "mean", "max", "prod"),
        (("add", "s + 10"), ("left", "10 - s"), ("times", "s * 3"), ("over", "s / 4"),
         ("under", "12 / s"), ("most", "maximum(s, 5)"), ("more", "greater(s, 5)")),
    ):  # fmt: skip
        values = [1, 2, 1, 3, 1, 2, 1, 2]
        yield {
            "id": f"{reduction}-{word}",
            "inputs": {"v": on([8], "S(0)", values=values)},
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
                "inputs": {"v": on([2], place, per_device=[[3, 1], [4, 1], [5, 9], [2, 6]])},
                "program": [f"r{i} = {text.format(n)}" for i, n in enumerate((-4, 2, 3))][
                    name in ("power", "remainder") :
                ],
            }


def _cached() -> Iterator[Table]:
    """Two calls of one op that only differ in a parameter."""
    for word, one, other in (
        ("topk", "topk_values(v, k=1)", "topk_values(v, k=3)"),
        ("topk-axis", "topk_values(v, k=2, axis=0)", "topk_values(v, k=2, axis=1)"),
        ("slice", "slice(v, axis=1, start=0, stop=2)", "slice(v, axis=1, start=0, stop=3)"),
        ("sum", "sum(v, axis=0)", "sum(v, axis=1)"), ("max", "max(v, axis=0)", "max(v, axis=1)"),
        ("argmax", "argmax(v, axis=0)", "argmax(v, axis=1)"),
        ("sort", "sort(v, axis=0)", "sort(v, axis=1)"),
        ("cumsum", "cumulative_sum(v, axis=0)", "cumulative_sum(v, axis=1)"),
        ("roll", "roll(v, shift=1, axis=0)", "roll(v, shift=2, axis=1)"),
        ("pad", "pad(v, axis=0, before=1, after=3)", "pad(v, axis=0, before=4, after=4)"),
        ("repeat", "repeat(v, repeats=2, axis=0)", "repeat(v, repeats=3, axis=0)"),
        ("softmax", "softmax(v, axis=0)", "softmax(v, axis=1)"),
        ("index", "index(v, axis=0, index=1)", "index(v, axis=1, index=1)"),
        ("chunk", "chunk(v, chunks=2, part=0, axis=0)", "chunk(v, chunks=4, part=0, axis=0)"),
        ("norm", "vector_norm(v, ord=1)", "vector_norm(v, ord='inf')"),
        ("tril", "tril(v)", "tril(v, diagonal=1)"),
        ("one-hot", "one_hot(k, classes=8)", "one_hot(k, classes=9)"),
    ):  # fmt: skip
        for place in ("S(0)", "S(1)"):
            yield {
                "id": f"{word}-{place[0].lower()}{place[2]}",
                "inputs": {
                    "v": on([8, 4], place, values=[[(7 * i + 3 * j) % 32 for j in range(4)]
                                                   for i in range(8)]),
                    "k": on([8], "S(0)", dtype="int64"),
                },
                "program": [f"p = {one}", f"r = {other}"],
            }  # fmt: skip


def _norm() -> Iterator[Table]:
    held = [[4, -7], [-8, 3], [2, 1], [6, -1]]
    for place, order in itertools.product(("sum", "avg", "max", "min"), (1, 2, "'inf'")):
        yield {
            "id": f"{place}-{str(order).strip(chr(39))}",
            "inputs": {"v": on([2], f"P({place})", per_device=held)},
            "program": [f"r = vector_norm(v, ord={order})"],
        }


def _item() -> Iterator[Table]:
    for reduction in ("sum", "mean", "max", "min", "prod"):
        yield {
            "id": reduction,
            "inputs": {"v": on([8], "S(0)", values=[1, 2, 1, 3, 1, 2, 1, 2])},
            "program": [f"s = {reduction}(v)", "r = item(s)"],
            "check": ["r"],
        }
    yield {"id": "split", "inputs": {"v": on([1], "S(0)")}, "program": ["r = item(v)"]}
    yield {"id": "whole", "inputs": {"v": on([1], "R")}, "program": ["r = item(v)"]}


def _cast() -> Iterator[Table]:
    held = [[1.5, -2.5], [1.5, 0.5], [0.75, 3.5], [0.25, -1.5]]
    for place, dtype in itertools.product(
        ("sum", "avg", "max", "min"), ("int32", "float64", "bfloat16", "bool")
    ):
        yield {
            "id": f"{place}-{dtype}",
            "inputs": {"v": on([2], f"P({place})", per_device=held)},
            "program": [f"r = astype(v, dtype='{dtype}')"],
        }


def _convolution() -> Iterator[Table]:
    mesh = {"a": 2, "b": 2}
    for left, right in (
        (["R", "S(2)"], ["S(0)", "S(1)"]), (["S(2)", "R"], ["S(1)", "S(1)"]),
        (["S(0)", "R"], ["R", "S(2)"]), (["R", "S(2)"], ["R", "S(2)"]),
        (["S(0)", "S(2)"], ["R", "R"]), (["S(0)", "S(1)"], ["R", "S(1)"]),
    ):  # fmt: skip
        names = (".".join(re.sub(r"[()]", "", one.lower()) for one in row) for row in (left, right))
        yield {
            "id": "-".join(names), "mesh": mesh,
            "inputs": {
                "v": on([4, 4, 8], left), "w": on([4, 4, 2], right, values=[[[1, 2]] * 4] * 4),
            },
            "program": ["r = conv1d(v, w)"],
        }  # fmt: skip


def _along() -> Iterator[Table]:
    """Gradients of ops that work along the dim that is split."""
    for word, text in (
        ("cumprod", "cumulative_prod(v, axis=0)"), ("cumsum", "cumulative_sum(v, axis=0)"),
        ("sort", "sort(v, axis=0)"), ("softmax", "softmax(v, axis=0)"),
        ("prod", "prod(v, axis=0)"), ("max", "max(v, axis=0)"), ("flip", "flip(v, axis=0)"),
        ("logsumexp", "logsumexp(v, axis=0)"), ("roll", "roll(v, shift=1, axis=0)"),
    ):  # fmt: skip
        yield {
            "id": word,
            "inputs": {
                "v": on([8], "S(0)", values=[1.5, 2, 1, 3, 2.5, 1.25, 3.5, 0.5]),
                "c": on([8], "R", values=[3, 1, 4, 2, 7, 5, 8, 6]),
            },
            "program": [f"r = {text}", "l = sum(r * c)", "g = grad(l, v)"],
            "check": ["r", "g"],
        }


def _local() -> Iterator[Table]:
    for rows in (8, 6, 5):
        yield {
            "id": f"round-trip-{rows}",
            "inputs": {"v": on([rows, 3], "S(0)")},
            "program": ["a = to_local(v)", "r = from_local(a, placements=['S(0)'])"],
            "check": ["r"],
        }
    for place, times in (("S(0)", "multiply(a, 2)"), ("R", "square(a)")):
        yield {
            "id": f"gradient-{place[0].lower()}",
            "inputs": {"v": on([4], place, values=[1, 2, 3, 4])},
            "program": [
                "a = to_local(v)", f"b = {times}", f"y = from_local(b, placements=['{place}'])",
                "l = sum(y)", "g = grad(l, v)",
            ],
            "check": ["l", "g"],
        }  # fmt: skip
    for mesh, inner in (({"x": 2}, 5), ({"x": 2}, 6), (X4, 6), (X4, 8)):
        yield {
            "id": f"pair-{mesh['x']}-{inner}",
            "mesh": mesh,
            "inputs": {
                "h": on([2, 3], "R"), "w": on([3, inner], "S(1)"), "u": on([inner, 3], "S(0)"),
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
                "inputs": {"v": on(shape, f"S({dim})")},
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
            "inputs": {"v": on([1, 4], "S(0)"), "w": on([4, 4], "R")},
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
                    "inputs": {"v": on([rows, 3], "S(0)")},
                    "program": [f"r = {text}"],
                }


def _irregular() -> Iterator[Table]:
    for sizes in ((1, 2, 2, 3), (2, 3, 4, 5), (4, 2, 2, 2)):
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
            "inputs": {"v": on([rows, 2], "S(0)")},
            "program": ["r = map_shards(v, scale=2, placements=['S(0)'])"],
        }
    yield {
        "id": "columns-6", "inputs": {"v": on([2, 6], "S(1)")},
        "program": ["r = map_shards(v, scale=3, placements=['S(1)'])"],
    }  # fmt: skip
    yield {
        "id": "two-axes", "mesh": {"a": 2, "b": 2}, "inputs": {"v": on([4, 4], ["S(0)", "S(1)"])},
        "program": ["r = map_shards(v, scale=3, placements=['S(0)', 'S(1)'])"],
    }  # fmt: skip


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
            "v": on([8, 8], "S(1)", dtype="int32"),
            "i": on([], "R", dtype="int32", values=start),
            "u": on([3, 8] if dim == 0 else [8, 3], "R", dtype="int32", values=-1),
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
            "inputs": {"v": on([4, 8], places[0]), "w": on([8, 4], places[1])},
            "program": ["p = matmul(v, w)", "r = redistribute(p, x=R)"],
            "to": {"p": ["P(sum)"]},
            "check": ["p", "r"],
        }


def _negative() -> Iterator[Table]:
    for source, target in (("S(-1)", "R"), ("S(-2)", "S(1)"), ("R", "S(-1)"), ("S(-1)", "S(0)")):
        name = re.sub(r"[()]", "", f"{source}-to-{target}".lower()).replace("s-", "sm")
        yield {
            "id": name, "inputs": {"v": on([4, 8], source)},
            "program": [["r", "redistribute", ["v"], {"placements": [target]}]],
        }  # fmt: skip


def _class_parallel() -> Iterator[Table]:
    for word, params in (
        ("mean", ""), ("sum", ", reduction='sum'"), ("none", ", reduction='none'"),
    ):  # fmt: skip
        yield {
            "id": word, "context": "loss_parallel",
            "inputs": {
                "v": on([4, 8], "S(1)", values=[[i * j % 5 for i in range(8)] for j in range(4)]),
                "k": on([4], "R", dtype="int64", values=[0, 3, 7, 2]),
            },
            "program": [f"r = cross_entropy(v, k{params})"],
        }  # fmt: skip


def _replicated() -> Iterator[Table]:
    for text in (
        "sum(v)", "mean(v, axis=0)", "max(v)", "argmax(v, axis=1)", "sort(v)", "softmax(v)",
        "cumulative_sum(v)", "matmul(v, matrix_transpose(v))", "reshape(v, shape=[32])",
        "concat(v, v, axis=0)", "slice(v, axis=0, start=1, stop=4)", "layer_norm(v)",
    ):  # fmt: skip
        yield {
            "id": text.partition("(")[0].replace("_", "-"), "inputs": {"v": on([8, 4], "R")},
            "program": [f"r = {text}"], "check": ["r"], "sufficient": {},
        }  # fmt: skip


_MAKERS = {
    **MAKERS,
    "scalar": _scalar, "cache": _cache, "cached": _cached, "norm": _norm, "item": _item,
    "cast": _cast, "convolution": _convolution,
    "along": _along,
    "local": _local, "regroup": _regroup, "size-1": _size_one, "empty": _empty,
    "irregular": _irregular, "mapped": _mapped,
    "random": _random, "dynamic": _dynamic, "ramp": _ramp,
    "partial-asked": _partial_asked,
    "negative": _negative, "class-parallel": _class_parallel,
    "replicated": _replicated,
}  # fmt: skip
