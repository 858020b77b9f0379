"""Can all meshes of a training framework be views of one world? Degrees, views and weights.

Views, sizes and points are from https://github.com/pytorch/torchtitan/pull/1660, where every mesh
is a view of a world with one axis. Refuses to know what frameworks do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec

from cases.errors import Where
from cases.load import read_case
from cases.model import Case

FAMILY = "parallel_dims"
SOURCE = "https://github.com/pytorch/torchtitan/pull/1660"

Table = dict[str, Any]

# The sizes of each degree. dp_shard gets the rest of the world.
_DEGREES = {
    "pp": (1, 2), "dp_replicate": (1, 2), "cp": (1, 2), "tp": (1, 2, 4), "ep": (1, 2, 4, 8),
    "etp": (1, 2, 4),
}  # fmt: skip


class Degrees(msgspec.Struct, frozen=True):
    """The parallel degrees of a world. ``etp``, the tensor parallelism of experts, is 1 or ``tp``.

    Raises:
        ValueError: the degrees do not fit the world, or the experts do not fit the devices.
    """

    world: int
    pp: int = 1
    dp_replicate: int = 1
    dp_shard: int = -1
    cp: int = 1
    tp: int = 1
    ep: int = 1
    etp: int = 1

    def __post_init__(self) -> None:
        others = self.pp * self.dp_replicate * self.cp * self.tp
        if self.dp_shard == -1 and self.world % others == 0:
            # All that is left of the world.
            msgspec.structs.force_setattr(self, "dp_shard", self.world // others)
        if self.dp_shard * others != self.world:
            raise ValueError(f"degrees that multiply to {others}, of a world of {self.world}")
        if self.etp not in (1, self.tp):
            raise ValueError(f"etp {self.etp}, which is neither 1 nor tp")
        if (self.fsdp * self.tp) % (self.etp * self.ep):
            raise ValueError(f"{self.ep} experts' groups of {self.etp} over {self.fsdp * self.tp}")

    @property
    def batch(self) -> int:
        """The number of devices that split a batch."""
        return self.dp_replicate * self.dp_shard

    @property
    def fsdp(self) -> int:
        """The number of devices that split a dense weight, besides tp."""
        return self.dp_shard * self.cp

    @property
    def efsdp(self) -> int:
        """The number of devices that split an expert's weight, besides ep and etp."""
        return self.fsdp * self.tp // (self.etp * self.ep)

    @property
    def name(self) -> str:
        """``p1.r2.s2.c1.t2.e2.x1``: pp, dp_replicate, dp_shard, cp, tp, ep, etp."""
        sizes = (self.pp, self.dp_replicate, self.dp_shard, self.cp, self.tp, self.ep, self.etp)
        return ".".join(f"{letter}{size}" for letter, size in zip("prsctex", sizes, strict=True))

    def views(self) -> dict[str, dict[str, int]]:
        """For each view of the world its axes, outermost first."""
        pp, rep = {"pp": self.pp}, {"dp_replicate": self.dp_replicate}
        cp, tp = {"cp": self.cp}, {"tp": self.tp}
        return {
            "data": pp | {"batch": self.batch} | cp | tp,
            "dense": pp | rep | {"fsdp": self.fsdp} | tp,
            "sparse": pp | rep | {"efsdp": self.efsdp, "ep": self.ep, "etp": self.etp},
            "storage": pp | rep | {"dp_shard": self.dp_shard} | cp | tp,
            "forward": pp | {"dp": self.batch} | cp | tp,
        }


def all_degrees(world: int) -> list[Degrees]:
    """All degrees with the family's sizes that fit a world."""
    found = []
    for sizes in itertools.product(*_DEGREES.values()):
        try:
            found.append(Degrees(world, **dict(zip(_DEGREES, sizes, strict=True))))
        except ValueError:
            continue
    return found


def covering_degrees(world: int) -> list[Degrees]:
    """A selection that covers every possible pair of sizes of two degrees."""

    def pairs(one: Degrees) -> set[tuple[str, ...]]:
        parts = one.name.split(".")
        return set(itertools.combinations(parts, 2))

    waiting, found = all_degrees(world), []
    missing = set().union(*map(pairs, waiting))
    while missing:
        best = max(waiting, key=lambda one: len(pairs(one) & missing))
        found.append(best)
        missing -= pairs(best)
    return found


def cases(exhaustive: bool) -> Iterator[Case]:
    """The family on a world of 8, and as dry runs on worlds up to 512."""
    degrees = all_degrees(8) if exhaustive else covering_degrees(8)
    tables = itertools.chain(
        *(views(one) for one in degrees),
        *(weights(one) for one in (degrees if exhaustive else _TRIED)),
        _points(),
        *(views(one, "dry run") for one in _LARGE),
        weights(_LARGE[-1], "dry run", 1024),
    )
    for table in tables:
        yield case_of(table)


def case_of(table: Table) -> Case:
    """The case of a table. An error in the table names this module."""
    case = read_case({"source": SOURCE, **table}, __file__, Where(__file__, table["id"]))
    return msgspec.structs.replace(case, family=FAMILY)


# Degrees for weights. Each axis that splits a weight has more than one device.
_TRIED = (
    Degrees(8, dp_replicate=2, tp=2, ep=2),
    Degrees(8, cp=2, tp=2, ep=2, etp=2),
    Degrees(8, pp=2, tp=2, ep=4),
)
# Larger than the machine.
_LARGE = (
    Degrees(64, dp_replicate=2, cp=2, tp=4, ep=8, etp=4),
    Degrees(256, pp=2, tp=8, ep=32),
    Degrees(512, pp=4, dp_replicate=2, cp=2, tp=8, ep=16),
)


def _base(degrees: Degrees, *names: str, real: bool = False) -> Table:
    """A world with a fake group, and the views of it called ``names``.

    Groups of disabled axes (of size 1) are also fake unless ``real`` is set.
    """
    world = {"axes": {"world": degrees.world}, "fake": ["world"]}
    steps = [["world", "mesh_unflatten", ["w"], world]]
    for name, axes in degrees.views().items():
        if name in names:
            disabled = [axis for axis, size in axes.items() if size == 1 and not real]
            steps.append(_view(name, axes, disabled))
    return {"mesh": {"w": degrees.world}, "mesh_steps": steps}


def _view(name: str, axes: dict[str, int], fake: list[str]) -> list[Any]:
    return [name, "mesh_unflatten", ["world"], {"of": "world", "axes": axes, "fake": fake}]


_LOSS = ["loss", "mesh_flatten", ["batch", "cp"], {"of": "data"}]


def views(degrees: Degrees, mode: str = "real") -> Iterator[Table]:
    """Every view of one world: the grid, coordinate and groups of every device in each.

    Also the meshes that training uses: the loss mesh of two flattened axes, and slices of two.
    """
    table = _base(degrees, *degrees.views())
    table["mesh_steps"] += [
        _LOSS,
        ["hybrid", "mesh_slice", ["dp_replicate", "fsdp"], {"of": "dense"}],
        ["experts_hybrid", "mesh_slice", ["dp_replicate", "efsdp"], {"of": "sparse"}],
        ["experts", "mesh_slice", ["ep", "etp"], {"of": "sparse"}],
    ]
    yield {**table, "id": f"views-{degrees.name}", "mode": mode}


def weights(degrees: Degrees, mode: str = "real", width: int = 8) -> Iterator[Table]:
    """A dense, a hybrid and an expert weight on their meshes, each with one change of layout.

    ``width``: the size of a weight's dims. There are enough experts for each device to have one.
    """
    name = degrees.name
    dense, sparse = _base(degrees, "dense"), _base(degrees, "sparse")
    shard = [["m", "mesh_slice", ["fsdp", "tp"], {"of": "dense"}]]
    hybrid = [["m", "mesh_slice", ["dp_replicate", "fsdp"], {"of": "dense"}]]
    experts = [["m", "mesh_slice", ["efsdp", "ep", "etp"], {"of": "sparse"}]]
    common: Table = {"mode": mode, "check": ["x", "y"]}

    def table(kind: str, on: Table, steps: list[Any], x: Table, program: str) -> Table:
        return {
            **on, **common, "id": f"{kind}-{name}", "mesh_steps": on["mesh_steps"] + steps,
            "inputs": {"x": {"view": "m", **x}}, "program": [program],
        }  # fmt: skip

    square = {"shape": [width, width]}
    # fsdp splits the rows and tp the columns. Rows are gathered before use.
    yield table(
        "dense", dense, shard, {**square, "placements": ["S(0)", "S(1)"]},
        "y = redistribute(x, fsdp=R, tp=S(1))",
    )  # fmt: skip
    # Both split the rows, tp outermost, because FSDP shards colwise parallel weights further.
    yield table(
        "dense-rows", dense, shard, {**square, "spec": "P(('tp', 'fsdp'))"},
        "y = redistribute(x, P('tp'))",
    )  # fmt: skip
    # A weight, replicated over dp_replicate, is gathered. Its gradient is reduce-scattered.
    yield table(
        "hybrid", dense, hybrid, {**square, "placements": ["R", "S(0)"]},
        "y = redistribute(x, dp_replicate=R, fsdp=R)",
    )  # fmt: skip
    yield table(
        "hybrid-gradient", dense, hybrid, {**square, "placements": ["P(sum)", "P(sum)"]},
        "y = redistribute(x, dp_replicate=R, fsdp=S(0))",
    )  # fmt: skip
    # ep splits the experts, efsdp the rows of each, and etp the columns.
    yield table(
        "expert", sparse, experts,
        {"shape": [degrees.ep, width, width], "spec": "P('ep', 'efsdp', 'etp')"},
        "y = redistribute(x, P('ep', None, 'etp'))",
    )  # fmt: skip


def _points() -> Iterator[Table]:
    """The other points of the discussion, with one case for each."""
    small, wide = Degrees(8, dp_replicate=2, tp=2, ep=2), Degrees(8, cp=2, tp=2, ep=2)
    yield from _refused()
    yield from _size_one()
    yield from _equal(small)
    yield from _several(small, wide)


def _refused() -> Iterator[Table]:
    """Invalid degrees, whose product is not the size of the world."""
    for word, axes in (
        ("few", {"pp": 1, "dp_replicate": 1, "fsdp": 2, "tp": 2}),
        ("many", {"pp": 2, "dp_replicate": 2, "fsdp": 2, "tp": 2}),
        ("odd", {"pp": 1, "dp_replicate": 1, "fsdp": 3, "tp": 2}),
    ):
        on = _base(Degrees(8))
        steps = [*on["mesh_steps"], _view("dense", axes, [])]
        yield {**on, "id": f"degrees-too-{word}", "mesh_steps": steps, "refused": "dense"}


def _size_one() -> Iterator[Table]:
    """Degrees of 1. DTensor's meshes have such an axis, and no collective uses it."""
    for word, degrees, axes, before, after in (
        ("hybrid", Degrees(8, tp=2), ["dp_replicate", "fsdp"], ["P(sum)", "S(0)"],
         "dp_replicate=R, fsdp=S(0)"),
        ("tp", Degrees(8, dp_replicate=2), ["fsdp", "tp"], ["S(0)", "S(1)"], "fsdp=S(0), tp=R"),
        ("fsdp", Degrees(8, dp_replicate=2, tp=4), ["fsdp", "tp"], ["S(0)", "S(1)"],
         "fsdp=R, tp=S(1)"),
        ("scatter", Degrees(8, tp=2), ["dp_replicate", "fsdp"], ["P(sum)", "S(1)"],
         "dp_replicate=S(0), fsdp=S(1)"),
    ):  # fmt: skip
        on = _base(degrees, "dense", real=True)
        yield {
            **on, "id": f"one-{word}-{degrees.name}",
            "mesh_steps": [*on["mesh_steps"], ["m", "mesh_slice", axes, {"of": "dense"}]],
            "inputs": {"x": {"shape": [8, 8], "view": "m", "placements": before}},
            "program": [f"y = redistribute(x, {after})"], "counts": {"y": {}},
        }  # fmt: skip
    # Without disabled axes, the mesh has the same devices.
    degrees = Degrees(8, tp=2)
    on = _base(degrees, "dense", real=True)
    steps = [
        ["enabled", "mesh_slice", ["fsdp", "tp"], {"of": "dense"}],
        ["all", "mesh_slice", ["pp", "dp_replicate", "fsdp", "tp"], {"of": "dense"}],
        ["disabled", "mesh_slice", ["pp"], {"of": "dense"}],
    ]
    yield {**on, "id": f"one-left-out-{degrees.name}", "mesh_steps": on["mesh_steps"] + steps}


def _equal(degrees: Degrees) -> Iterator[Table]:
    """Two views with the same axes are equal meshes."""
    on, axes = _base(degrees, "dense"), degrees.views()["dense"]
    steps = [
        _view("again", axes, []),
        ["m", "mesh_slice", ["dp_replicate", "fsdp"], {"of": "dense"}],
        ["n", "mesh_slice", ["dp_replicate", "fsdp"], {"of": "dense"}],
        ["o", "mesh_slice", ["dp_replicate", "fsdp"], {"of": "again"}],
        ["views", "mesh_equal", ["dense", "again"]],
        ["slices", "mesh_equal", ["m", "n"]],
        ["of_views", "mesh_equal", ["m", "o"]],
    ]
    yield {
        **on, "id": f"equal-{degrees.name}", "mesh_steps": on["mesh_steps"] + steps,
        "check": ["views", "slices", "of_views"],
    }  # fmt: skip


def _several(small: Degrees, wide: Degrees) -> Iterator[Table]:
    """Meshes of several axes, sliced from a flattened mesh or concatenated from two views."""
    storage = wide.views()["storage"]
    yield {
        "id": f"slices-of-a-flattened-{wide.name}", "mesh": storage,
        "mesh_steps": [
            ["fsdp", "mesh_flatten", ["dp_shard", "cp"]],
            ["hybrid", "mesh_slice", ["dp_replicate", "fsdp"]],
            ["shard", "mesh_slice", ["fsdp", "tp"]],
        ],
    }  # fmt: skip
    # The two axes are flattened, unflattened into other axes, and sliced.
    on = _base(small, "dense")
    yield {
        **on, "id": f"slices-of-an-unflattened-{small.name}",
        "mesh_steps": [
            *on["mesh_steps"],
            ["rest", "mesh_flatten", ["fsdp", "tp"], {"of": "dense"}],
            ["turned", "mesh_unflatten", ["rest"], {"of": "rest", "axes": {"efsdp": 2, "ep": 2}}],
            ["ep_only", "mesh_slice", ["ep"], {"of": "turned"}],
        ],
    }  # fmt: skip
    for word, degrees, parts in (
        ("replicate-and-efsdp", small, (("dense", "dp_replicate"), ("sparse", "efsdp"))),
        ("replicate-and-ep", small, (("storage", "dp_replicate"), ("sparse", "ep"))),
        ("batch-and-tp", wide, (("data", "batch"), ("dense", "tp"))),
    ):
        on = _base(degrees, *dict.fromkeys(view for view, _ in parts))
        slices = [[f"m_{axis}", "mesh_slice", [axis], {"of": view}] for view, axis in parts]
        join = ["joined", "mesh_concatenate", [f"m_{axis}" for _, axis in parts]]
        yield {
            **on, "id": f"joined-{word}-{degrees.name}",
            "mesh_steps": [*on["mesh_steps"], *slices, join],
        }  # fmt: skip
    # fsdp and ep share devices, so they cannot form one mesh.
    on = _base(small, "dense", "sparse")
    yield {
        **on, "id": f"joined-fsdp-and-ep-{small.name}", "refused": "joined",
        "mesh_steps": [
            *on["mesh_steps"],
            ["m_fsdp", "mesh_slice", ["fsdp"], {"of": "dense"}],
            ["m_tp", "mesh_slice", ["tp"], {"of": "dense"}],
            ["m_ep", "mesh_slice", ["ep"], {"of": "sparse"}],
            ["joined", "mesh_concatenate", ["m_fsdp", "m_tp", "m_ep"]],
        ],
    }  # fmt: skip
    # The sum of the losses of all devices with a part of the batch.
    on = _base(wide, "data")
    yield {
        **on, "id": f"loss-{wide.name}",
        "mesh_steps": [*on["mesh_steps"], _LOSS],
        "inputs": {"x": {"shape": [2], "view": "loss", "placements": ["P(sum)"]}},
        "program": ["y = redistribute(x, loss=R)"],
    }  # fmt: skip
    # Stored over dp_shard and cp, used over both flattened. The shards do not move.
    on = _base(wide, "storage", "dense")
    yield {
        **on, "id": f"stored-and-used-{wide.name}",
        "inputs": {
            "x": {"shape": [8, 8], "view": "storage", "spec": "P(('dp_shard', 'cp'), 'tp')"}
        },
        "program": [
            "l = to_local(x)", "y = from_local(l, view='dense', spec=\"P('fsdp', 'tp')\")",
            "z = redistribute(y, P(None, 'tp'))",
        ],
        "check": ["x", "y", "z"],
    }  # fmt: skip
