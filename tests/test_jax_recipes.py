"""Does JAX train as the recipes say: same numbers as on one device, and what does it send?

Every question goes through a real worker process.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from adapters.answer import Answer, Done, Unsupported
from cases.arrays import unpack
from cases.layout import are_equivalent, coordinates, index_ranges, offset
from cases.model import Layout, Mesh, Question, Recipe, mesh
from cases.recipes import RECIPES, recipe_of, sizes_of
from cases.recipes.layouts import observed_names, tensor_layouts, unsharded_names
from cases.recipes.meaning import forward, loss
from cases.recipes.parameter_values import LEARNING_RATE, all_arrays
from tests.jax_client import EXPLICIT, IMPLIED, JIT, Client, kinds, value
from tests.toys.jax_wrong_plans import HYBRID


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One worker for the module."""
    made = Client(tmp_path_factory.mktemp("worker"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A worker whose plans have mistakes, and which has a recipe more."""
    made = Client(tmp_path_factory.mktemp("wrong"), "tests.toys.jax_wrong_plans")
    yield made
    made.close()


def _asked(name: str, *sizes: int) -> Question:
    row = RECIPES[name]
    on = mesh(dict(zip(row.axes, sizes, strict=True)))
    return Question(
        "q", on, check=(*observed_names(row), *unsharded_names(row)), recipe=Recipe(name)
    )


_KEPT: dict[tuple[Client, bytes], Answer] = {}


def _answer(client: Client, asked: Question) -> Answer:
    """Asked once: to compile takes long."""
    key = client, msgspec.json.encode(asked)
    if key not in _KEPT:
        (_KEPT[key],) = client.ask(asked, JIT)
    answer = _KEPT[key]
    assert answer.end == Done()
    assert answer.complaints == ()
    return answer


def _fired(answer: Answer) -> Counter[str]:
    """How often each: pass, kind, axes, bytes."""
    assert answer.program is not None
    assert not any(one.in_loop for one in answer.program)
    return Counter(
        f"{one.pass_} {one.kind} {','.join(one.axes)} {one.bytes}" for one in answer.program
    )


MESHES = [
    (name, sizes)
    for name, row in RECIPES.items()
    for sizes in (((2,), (4,)) if len(row.axes) == 1 else ((2, 2),))
]


@pytest.mark.parametrize(("name", "sizes"), MESHES)
def test_a_step_is_that_of_one_device(client: Client, name: str, sizes: tuple[int, ...]) -> None:
    """Result, loss, every gradient and every next parameter, each where the plan has it."""
    asked = _asked(name, *sizes)
    answer, row, on = _answer(client, asked), RECIPES[name], asked.mesh
    assert tuple(seen.name for seen in answer.seen) == asked.check
    for one in unsharded_names(row):
        got, wanted = value(answer[one.removeprefix("plain/")]), value(answer[one])
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12 * np.abs(wanted).max())
    given = tensor_layouts(row, sizes_of(asked), on)
    for one in observed_names(row):
        seen = answer[one]
        at = given.get(one, Layout(((),) * len(seen.shape)))
        assert isinstance(seen.layout, Layout)
        assert are_equivalent(on, seen.layout, at, seen.shape)
        held = index_ranges(on, at, seen.shape)
        assert seen.offsets == tuple(map(offset, held))
        assert seen.shards is not None
        for shard, spans in zip(seen.shards, held, strict=True):
            assert shard is not None
            part = value(seen)[tuple(slice(*span) for span in spans)]
            np.testing.assert_array_equal(unpack(shard), part)


@pytest.mark.parametrize("name", ["mlp-tp", "attention-ring", "block-sp", "head-tp", "moe-ep"])
def test_a_model_means_what_it_means_in_numpy(client: Client, name: str) -> None:
    """On one device: result and loss; parameters move against their gradients."""
    asked = _asked(name, 2)
    answer, row, sizes = _answer(client, asked), recipe_of(asked), sizes_of(asked)
    tensors = all_arrays(row.model, sizes, "float64")
    out = forward(row.model, sizes, tensors)
    np.testing.assert_allclose(value(answer["plain/out"]), out, rtol=1e-12, atol=1e-13)
    wanted = loss(row.model, sizes, tensors, out)
    np.testing.assert_allclose(value(answer["plain/loss"]), wanted, rtol=1e-12)
    for one in observed_names(row):
        if one.startswith("new/"):
            moved = tensors[one[4:]] - LEARNING_RATE * value(answer[f"plain/grad/{one[4:]}"])
            np.testing.assert_allclose(value(answer[f"plain/{one}"]), moved, rtol=1e-12)


# An activation of a block is 4 x 8 x 8 numbers of 8 bytes, 2048 in all. XLA on CPU has no
# reduce-scatter: it reduces all and slices. It reduces the gradient of what several weights use
# once for each of them, not once for their sum.
FIRED = {
    ("mlp-tp", 4): {"forward all-reduce tp 128": 1, "backward all-reduce tp 128": 1},
    ("attention-tp", 4): {
        "forward all-reduce tp 2048": 1,
        # By the input, of wq, wk and wv.
        "backward all-reduce tp 2048": 3,
    },
    ("block-tp", 4): {
        "forward all-reduce tp 2048": 2,
        # Of wq, wk and wv, of w1 and w3.
        "backward all-reduce tp 2048": 5,
    },
    ("block-sp", 4): {
        "forward all-gather tp 512": 2,
        "forward all-reduce tp 2048": 2,
        "forward all-reduce tp 8": 1,
        "backward all-gather tp 512": 2,
        "backward all-reduce tp 2048": 5,
        # The weights of two norms.
        "backward all-reduce tp 64": 2,
    },
    ("block-fsdp", 4): {
        # Norms; wk and wv; wq, wo, w1, w2 and w3: each for each pass, and then reduced.
        "forward all-gather fsdp 16": 2,
        "forward all-gather fsdp 128": 2,
        "forward all-gather fsdp 256": 5,
        "forward all-reduce fsdp 8": 1,
        "backward all-gather fsdp 16": 2,
        "backward all-gather fsdp 128": 2,
        "backward all-gather fsdp 256": 5,
        "backward all-reduce fsdp 64": 2,
        "backward all-reduce fsdp 512": 2,
        "backward all-reduce fsdp 1024": 5,
    },
    ("block-hsdp", 2, 2): {
        "forward all-gather fsdp 32": 2,
        "forward all-gather fsdp 256": 2,
        "forward all-gather fsdp 512": 5,
        "forward all-reduce dp_replicate,fsdp 8": 1,
        "backward all-gather fsdp 32": 2,
        "backward all-gather fsdp 256": 2,
        "backward all-gather fsdp 512": 5,
        # Scattered along fsdp, then summed along dp_replicate; norms along both at once.
        "backward all-reduce fsdp 512": 2,
        "backward all-reduce dp_replicate 256": 2,
        "backward all-reduce fsdp 1024": 5,
        "backward all-reduce dp_replicate 512": 5,
        "backward all-reduce dp_replicate,fsdp 64": 2,
    },
    ("block-fsdp-tp", 2, 2): {
        "forward all-gather tp 512": 2,
        "forward all-reduce tp 1024": 2,
        "forward all-gather fsdp 32": 2,
        "forward all-gather fsdp 128": 2,
        "forward all-gather fsdp 256": 5,
        # The loss, along one axis after the other.
        "forward all-reduce tp 8": 1,
        "forward all-reduce fsdp 8": 1,
        "backward all-gather tp 512": 2,
        "backward all-reduce tp 1024": 5,
        "backward all-gather fsdp 32": 2,
        "backward all-gather fsdp 128": 2,
        "backward all-gather fsdp 256": 5,
        "backward all-reduce tp 64": 2,
        "backward all-reduce fsdp 64": 2,
        "backward all-reduce fsdp 256": 2,
        "backward all-reduce fsdp 512": 5,
    },
    ("head-tp", 4): {
        # What was embedded; of the logits the largest, the sum and the label's.
        "forward all-reduce tp 1024": 1,
        "forward all-reduce tp 128": 3,
        "backward all-reduce tp 1024": 1,
    },
    ("moe-ep", 4): {
        # 4 tokens here, a room for each with each of 4 experts, 4 numbers each.
        "forward all-to-all ep 512": 2,
        "forward all-reduce ep 8": 1,
        "backward all-to-all ep 512": 2,
        "backward all-reduce ep 128": 1,
    },
    ("attention-cp", 4): {
        "forward all-gather cp 512": 2,
        "forward all-gather cp 128": 2,
        "forward all-gather cp 256": 2,
        "forward all-reduce cp 8": 1,
        "backward all-gather cp 128": 2,
        "backward all-gather cp 256": 2,
        "backward all-reduce cp 2048": 2,
        "backward all-reduce cp 512": 2,
        "backward all-reduce cp 1024": 2,
    },
    ("attention-ring", 4): {
        "forward collective-permute cp 512": 2 * 3,
        "forward all-gather cp 128": 2,
        "forward all-gather cp 256": 2,
        "forward all-reduce cp 8": 1,
        # Keys and values once more, and their gradients the other way.
        "backward collective-permute cp 512": 4 * 3,
        "backward all-gather cp 128": 2,
        "backward all-gather cp 256": 2,
        "backward all-reduce cp 512": 2,
        "backward all-reduce cp 1024": 2,
    },
}


@pytest.mark.parametrize("recipe", FIRED, ids=lambda recipe: recipe[0])
def test_what_a_step_sends_is_known(client: Client, recipe: tuple[str, *tuple[int, ...]]) -> None:
    """Kind, axes, bytes and pass of every collective; none is the optimiser's."""
    name, *sizes = recipe
    assert _fired(_answer(client, _asked(name, *sizes))) == FIRED[recipe]


@pytest.mark.parametrize(
    ("name", "sizes", "missing", "extra"),
    [
        (
            "mlp-tp",
            (4,),
            {},
            {"forward all-gather tp 64": 1, "backward all-gather tp 64": 1},
        ),
        (
            "attention-cp",
            (4,),
            {"backward all-gather cp 128": 2, "backward all-gather cp 256": 2},
            {},
        ),
        ("head-tp", (4,), {}, {"update all-gather tp 256": 2}),
    ],
)
def test_a_mistake_in_a_plan_shows_in_what_is_sent(
    client: Client,
    wrong: Client,
    name: str,
    sizes: tuple[int, ...],
    missing: dict[str, int],
    extra: dict[str, int],
) -> None:
    """What is gathered and need not be, or is kept and should not be; the numbers are right."""
    asked = _asked(name, *sizes)
    right, got = _answer(client, asked), _answer(wrong, asked)
    assert (_fired(right) - _fired(got), _fired(got) - _fired(right)) == (missing, extra)
    for one in unsharded_names(RECIPES[name]):
        wanted = value(got[one])
        np.testing.assert_allclose(
            value(got[one.removeprefix("plain/")]), wanted, rtol=1e-12,
            atol=1e-12 * np.abs(wanted).max(),
        )  # fmt: skip


def test_a_new_combination_of_axes_is_a_new_row(
    wrong: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights that FSDP and tensor parallelism split in one dim are gathered along one axis."""
    monkeypatch.setitem(RECIPES, HYBRID.name, HYBRID)
    asked = _asked(HYBRID.name, 2, 2, 2)
    answer = _answer(wrong, asked)
    for one in unsharded_names(HYBRID):
        got, wanted = value(answer[one.removeprefix("plain/")]), value(answer[one])
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12 * np.abs(wanted).max())
    assert {axes for _, axes in kinds(answer.program) if {"fsdp", "tp"} <= set(axes)} == set()


def test_shards_lie_by_mesh_position(client: Client) -> None:
    """Whatever the devices' numbers are."""
    asked = _asked("mlp-tp", 4)
    turned = Mesh(asked.mesh.axes, (2, 0, 3, 1))
    answer = _answer(client, msgspec.structs.replace(asked, mesh=turned))
    seen = answer["grad/up.weight"]
    assert seen.shards is not None
    for where, shard in zip(coordinates(turned), seen.shards, strict=True):
        assert shard is not None
        rows = value(seen)[2 * where["tp"] : 2 * where["tp"] + 2]
        np.testing.assert_array_equal(unpack(shard), rows)
    assert _fired(answer) == FIRED["mlp-tp", 4]


def test_a_plan_has_what_the_step_itself_has(client: Client) -> None:
    """The same layouts and collectives, from shapes alone; nothing of the step on one device."""
    asked = _asked("attention-cp", 4)
    real = _answer(client, asked)
    planned = _answer(client, msgspec.structs.replace(asked, mode="dry run"))
    names = observed_names(RECIPES["attention-cp"])
    assert tuple(seen.name for seen in planned.seen) == names
    assert planned.program == real.program
    assert [seen.layout for seen in planned.seen] == [real[name].layout for name in names]
    assert all(seen.full == () and seen.shards is None for seen in planned.seen)
    held = sum(8 * math.prod(seen.local or ()) for seen in planned.seen)
    assert planned.peak is not None
    assert planned.peak >= held


def test_recipes_are_for_jit_alone(client: Client) -> None:
    """The other routes run steps one by one, or plans of the reference."""
    for answer in client.ask(_asked("mlp-tp", 2), EXPLICIT, IMPLIED):
        assert answer.end == Unsupported("a recipe is one program under jit")
