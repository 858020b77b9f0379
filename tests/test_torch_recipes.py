"""Does the torch adapter train? Steps against plain ones, collectives by hand, wrong plans seen."""

from __future__ import annotations

import functools
import zlib
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from adapters.answer import Answer, Collective, Done, Observed, Refused, Unsupported
from adapters.torch_dtensor.task_lines import CHECK_INTERVAL
from cases.arrays import unpack
from cases.layout import index_ranges
from cases.model import Layout, Mesh, Question, Recipe, mesh
from cases.recipes import MODELS, RECIPES, sizes_of
from cases.recipes.layouts import observed_names, tensor_layouts, unsharded_names
from cases.recipes.meaning import forward
from cases.recipes.parameter_values import all_arrays
from tests.torch_worker import Live, addends, question, to

RUNS = [
    (row.name, sizes)
    for row in RECIPES.values()
    for sizes in (((2,), (4,)) if len(row.axes) == 1 else ((2, 2),))
]
# What torch reports otherwise than a plan has it: the gradient of a norm's weight under sequence
# parallelism is each device's own, and that of a split embedding's is whole on every device.
OTHERWISE = {
    ("block-sp", "grad/attention_norm.weight"): Layout(((),), (("tp", "sum"),)),
    ("block-sp", "grad/ffn_norm.weight"): Layout(((),), (("tp", "sum"),)),
    ("head-tp", "grad/tok_embeddings.weight"): Layout(((), ())),
}


def training(name: str, axes: tuple[int, ...], **more: object) -> Question:
    """A recipe on a mesh, with an id by which CommDebugMode counts too."""
    row = RECIPES[name]
    on = mesh(dict(zip(row.axes, axes, strict=True)))
    ids = (f"{name}-{on.shape}-{n}" for n in range(1000))
    known = next(one for one in ids if zlib.crc32(one.encode()) % CHECK_INTERVAL == 0)
    return Question(known, on, recipe=Recipe(name), **more)  # type: ignore[arg-type]


class Asked:
    """A worker that is asked each question once."""

    def __init__(self, live: Live):
        self.live = live
        self.step = functools.cache(lambda name, axes: live.ask(training(name, axes)))


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    worker = Live(tmp_path_factory.mktemp("torch") / "printed")
    yield Asked(worker)
    worker.close()


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("wrong")
    worker = Live(folder / "printed", "tests.toys.wrong_recipes")
    yield worker
    worker.close()


def value(seen: Observed) -> np.ndarray:
    (full,) = seen.full
    return unpack(full)


def off(answer: Answer) -> set[str]:
    """The results and gradients that are not those of the plain step, or differ between ranks."""
    names = [seen.name.removeprefix("plain/") for seen in answer.seen if "plain/" in seen.name]
    return {name for name in names if len(answer[name].full) != 1 or not _alike(answer, name)}


def _alike(answer: Answer, name: str) -> bool:
    return np.allclose(value(answer[name]), value(answer[f"plain/{name}"]), 1e-12, 1e-14)


def fired(answer: Answer, pass_: str) -> list[tuple[str, tuple[str, ...], int]]:
    """Kind, axes and bytes of what was fired in a pass, in order."""
    assert answer.program is not None
    return [(one.kind, one.axes, one.bytes) for one in answer.program if one.pass_ == pass_]


def kinds(answer: Answer, pass_: str) -> dict[str, int]:
    return dict(Counter(kind for kind, _, _ in fired(answer, pass_)))


@pytest.mark.parametrize(("name", "axes"), RUNS)
def test_a_sharded_step_is_the_plain_one(asked: Asked, name: str, axes: tuple[int, ...]) -> None:
    """Result, loss, every gradient and every new parameter, to the last bits of float64."""
    answer = asked.step(name, axes)
    assert answer.end == Done()
    assert answer.complaints == answer.apart == ()
    row = RECIPES[name]
    assert [seen.name for seen in answer.seen] == [*observed_names(row), *unsharded_names(row)]
    assert off(answer) == set()
    # Not because nothing happens: a step moves every parameter.
    for tensor in MODELS[row.model].parameters:
        assert not np.allclose(value(answer[tensor.name]), value(answer[f"new/{tensor.name}"]))


@pytest.mark.parametrize(("name", "axes"), RUNS)
def test_tensors_lie_as_the_plan_has_them(asked: Asked, name: str, axes: tuple[int, ...]) -> None:
    """By what DTensor reports, and by the shards themselves; the plain step lies nowhere."""
    answer, asking = asked.step(name, axes), training(name, axes)
    on, row = asking.mesh, RECIPES[name]
    planned = tensor_layouts(row, sizes_of(asking), on)
    numbers = all_arrays(row.model, sizes_of(asking), "float64")
    for seen in answer.seen:
        if seen.name.startswith("plain/"):
            assert (seen.layout, seen.shards, seen.offsets) == (None, None, None)
            continue
        wanted = planned.get(seen.name, Layout(()))
        assert seen.layout == OTHERWISE.get((name, seen.name), wanted), seen.name
        assert seen.disagreements == ()
        assert seen.shards is not None
        assert seen.collectives is seen.full_collectives is None
        shards = [unpack(shard) for shard in seen.shards if shard is not None]
        if seen.layout.partial:
            np.testing.assert_allclose(sum(shards), value(seen))
            continue
        for held, shard in zip(index_ranges(on, seen.layout, seen.shape), shards, strict=True):
            np.testing.assert_array_equal(shard, value(seen)[tuple(slice(*one) for one in held)])
        if seen.name in numbers:
            np.testing.assert_array_equal(value(seen), numbers[seen.name])


# Sizes in bytes, of float64: activations of [4, 8, 8], a block's 784 parameters, attention's 384,
# the weights of norms.
ACTIVATION = 4 * 8 * 8 * 8
BLOCK = 784 * 8
ATTENTION = 384 * 8
NORM = 8 * 8


def by_hand(name: str, n: int) -> dict[str, list[tuple[str, tuple[str, ...], int]]]:
    """What a step fires on one axis of n devices."""
    (axis,) = RECIPES[name].axes
    ax = (axis,)
    loss = ("all-reduce", ax, 8)
    gather, scatter = ("all-gather", ax, ACTIVATION // n), ("reduce-scatter", ax, ACTIVATION)
    match name:
        case "mlp-tp":
            both = [("all-reduce", ax, 4 * 4 * 8)]
            return {"forward": both, "backward": both, "update": []}
        case "attention-tp" | "block-tp":
            both = [("all-reduce", ax, ACTIVATION)] * (2 if name == "block-tp" else 1)
            return {"forward": both, "backward": both, "update": []}
        case "block-sp":
            both = [gather, scatter, gather, scatter]
            # DTensor leaves the gradients of norms owed, and the optimiser's step pays.
            owed = [("all-reduce", ax, NORM)] * 2
            return {"forward": [*both, loss], "backward": both, "update": owed}
        case "block-fsdp":
            weights = ("all-gather", ax, BLOCK // n)
            return {
                "forward": [weights, loss],
                "backward": [weights, ("reduce-scatter", ax, BLOCK)],
                "update": [],
            }
        case "head-tp":
            # Tokens of [4, 4]: the largest logit, the sum of exponentials, the picked logit.
            per_token = ("all-reduce", ax, 4 * 4 * 8)
            hidden = ("all-reduce", ax, 4 * 4 * 8 * 8)
            return {"forward": [hidden, *[per_token] * 3], "backward": [hidden], "update": []}
        case "moe-ep":
            values = all_arrays("moe", MODELS["moe"].sizes, "float64")
            chosen = np.argmax(values["x"] @ values["router.weight"].T, axis=-1).reshape(n, -1)
            sent = chosen[0].size * 4 * 8
            busiest = max(np.bincount(chosen.ravel() // (4 // n), minlength=n)) * 4 * 8
            back, there = ("all-to-all", ax, int(busiest)), ("all-to-all", ax, sent)
            return {
                "forward": [("all-to-all", ax, 4 * 8), there, back, loss],
                "backward": [there, back, ("all-reduce", ax, 4 * 4 * 8)],
                "update": [],
            }
        case "attention-cp":
            weights = ("all-gather", ax, ATTENTION // n)
            keys = 4 * 8 * 4 * 2 * 8
            return {
                "forward": [weights, *[("all-gather", ax, keys // n)] * 2, loss],
                "backward": [
                    weights, *[("reduce-scatter", ax, keys)] * 2,
                    ("reduce-scatter", ax, ATTENTION),
                ],
                "update": [],
            }  # fmt: skip
        case "attention-ring":
            # Torch's context parallelism is no ring on a CPU: it gathers keys and values, which
            # the model has repeated for each query head, and gathers them again in backward.
            weights = ("all-gather", ax, ATTENTION // n)
            keys = 4 * 8 * 8 * 2 * 8
            gathers = [weights, *[("all-gather", ax, keys // n)] * 2]
            return {
                "forward": [*gathers, loss],
                "backward": [
                    *gathers, *[("reduce-scatter", ax, keys)] * 2,
                    ("reduce-scatter", ax, ATTENTION),
                ],
                "update": [],
            }  # fmt: skip
    raise AssertionError(name)


@pytest.mark.parametrize(("name", "axes"), [run for run in RUNS if len(run[1]) == 1])
def test_a_step_on_one_axis_fires_what_was_worked_out_by_hand(
    asked: Asked, name: str, axes: tuple[int, ...]
) -> None:
    """In this order, with these bytes, in these passes."""
    answer = asked.step(name, axes)
    wanted = by_hand(name, axes[0])
    assert {pass_: fired(answer, pass_) for pass_ in wanted} == wanted
    assert answer.program is not None
    assert {one.group for one in answer.program} == set(axes)


def test_replicas_of_shards_are_summed_after_shards(asked: Asked) -> None:
    """Hybrid: gather and scatter along fsdp, and along dp_replicate sums of what is left."""
    answer = asked.step("block-hsdp", (2, 2))
    weights = ("all-gather", ("fsdp",), BLOCK // 2)
    assert fired(answer, "forward") == [weights, ("all-reduce", ("dp_replicate", "fsdp"), 8)]
    assert fired(answer, "backward") == [
        weights,
        ("reduce-scatter", ("fsdp",), BLOCK),
        ("all-reduce", ("dp_replicate",), BLOCK // 2),
    ]
    assert fired(answer, "update") == []


def test_both_kinds_of_parallelism_keep_to_their_axes(asked: Asked) -> None:
    """Of 784 parameters tp leaves 400 to a device, norms being whole; FSDP pays what norms owe."""
    answer = asked.step("block-fsdp-tp", (2, 2))
    weights = ("all-gather", ("fsdp",), 200 * 8)
    gather, scatter = ("all-gather", ("tp",), 512), ("reduce-scatter", ("tp",), 1024)
    within = [gather, scatter, gather, scatter]
    assert fired(answer, "forward") == [weights, *within, ("all-reduce", ("fsdp", "tp"), 8)]
    assert fired(answer, "backward") == [
        weights, *within, *[("all-reduce", ("tp",), NORM)] * 2,
        ("reduce-scatter", ("fsdp",), 400 * 8),
    ]  # fmt: skip
    assert fired(answer, "update") == []


def test_the_lesson_s_numbers(asked: Asked) -> None:
    """Linear(4 to 8), ReLU, Linear(8 to 4) on [2, 4], tp = 2."""
    asking = training("mlp-tp", (2,))
    answer = asked.live.ask(
        Question(
            "lesson", asking.mesh, recipe=Recipe("mlp-tp", {"batch": 2, "dim": 4, "hidden": 8})
        )
    )
    up, down, out = answer["up.weight"], answer["down.weight"], answer["out"]
    assert (up.shape, up.layout) == ((8, 4), Layout((("tp",), ())))
    assert (down.shape, down.layout) == ((4, 8), Layout(((), ("tp",))))
    assert up.shards is not None
    assert down.shards is not None
    assert {one.shape for one in (*up.shards, *down.shards) if one} == {(4, 4)}
    assert answer.program is not None
    assert [one for one in answer.program if one.pass_ == "forward"] == [
        Collective("all-reduce", ("tp",), 2, 2 * 4 * 8)
    ]
    assert (out.shape, out.note) == ((2, 4), "AsyncCollectiveTensor")


def test_attention_that_is_not_causal_means_what_it_means_in_numpy(asked: Asked) -> None:
    """Every query looks at every key, in context parallelism and on one device."""
    asking = training("attention-ring", (2,))
    answer, sizes = asked.step("attention-ring", (2,)), sizes_of(asking)
    numbers = all_arrays("full-attention", sizes, "float64")
    full, causal = (forward(name, sizes, numbers) for name in ("full-attention", "attention"))
    assert not np.allclose(full, causal)
    for name in ("out", "plain/out"):
        np.testing.assert_allclose(value(answer[name]), full, 1e-12, 1e-14)


def test_context_parallelism_ends_with_its_step(asked: Asked) -> None:
    """In one process after another attention is what it was: a mask works, keys are gathered."""
    for name in ("attention-ring", "attention-cp"):
        planned = asked.live.ask(training(name, (2,), mode="dry run"))
        assert planned.end == Done()
        assert fired(planned, "forward") == by_hand(name, 2)["forward"]


def test_devices_may_be_in_any_order_and_not_all_of_them(asked: Asked) -> None:
    """Positions, not ranks, say who holds what; without the whole world losses go axis by axis.

    Along each axis ranks ascend: others are a known error of torch, whatever lies on the mesh.
    """
    devices = (4, 6, 5, 7)
    axes = (("dp_replicate", 2), ("fsdp", 2))
    answer = asked.live.ask(
        Question("others", Mesh(axes, devices), recipe=Recipe("block-hsdp")), 60
    )
    assert answer.end == Done()
    assert off(answer) == set()
    usual = asked.step("block-hsdp", (2, 2))
    assert answer["attention.wq.weight"].shards == usual["attention.wq.weight"].shards
    assert fired(answer, "backward") == fired(usual, "backward")
    assert fired(answer, "forward")[1:] == [
        ("all-reduce", ("dp_replicate",), 8), ("all-reduce", ("fsdp",), 8),
    ]  # fmt: skip


def test_a_recipe_leaves_no_trace_in_its_world(asked: Asked) -> None:
    """A sum over both axes is two all-reduces before it and after: the axes were not joined."""
    on = mesh({"fsdp": 2, "tp": 2})
    asking = question(
        "sum",
        on,
        [addends("x", "P P", [[1.0], [2.0], [4.0], [8.0]], on)],
        [to("y", "x", "R R", on)],
    )
    before = asked.live.ask(asking)
    ranks = asked.live.ranks()
    assert asked.live.ask(training("block-fsdp-tp", (2, 2))).end == Done()
    assert asked.live.ask(asking) == before
    assert asked.live.ranks() == ranks
    assert [one.axes for one in before["y"].collectives or ()] == [("fsdp",), ("tp",)]


@pytest.mark.parametrize(("name", "axes"), [run for run in RUNS if run[1] != (2,)])
def test_a_plan_is_the_step_without_numbers(asked: Asked, name: str, axes: tuple[int, ...]) -> None:
    """The same collectives, byte for byte, layouts and local shapes. Experts need their tokens."""
    real, planned = asked.step(name, axes), asked.live.ask(training(name, axes, mode="dry run"))
    if name == "moe-ep":
        assert isinstance(planned.end, Unsupported)
        return
    assert planned.end == Done()
    assert planned.program == real.program
    assert planned.complaints == ()
    assert [seen.name for seen in planned.seen] == list(observed_names(RECIPES[name]))
    for seen in planned.seen:
        theirs = real[seen.name]
        assert (seen.layout, seen.shape, seen.dtype) == (theirs.layout, theirs.shape, theirs.dtype)
        assert theirs.shards is not None
        assert theirs.shards[0] is not None
        assert seen.local == theirs.shards[0].shape
    assert planned.peak is not None


def test_a_layer_of_405_billion_on_512_devices(asked: Asked) -> None:
    """Weights of 398,491,648 elements are gathered over fsdp, [1, 8192, 16384] over tp."""
    sizes = {"batch": 64, "seq": 8192, "dim": 16384, "heads": 128, "kv": 8, "head": 128}
    asking = Question(
        "llama", mesh({"fsdp": 64, "tp": 8}), mode="dry run",
        recipe=Recipe("block-fsdp-tp", {**sizes, "hidden": 53248}, "bfloat16"),
    )  # fmt: skip
    answer = asked.live.ask(asking)
    assert answer.end == Done()
    # Attention's four weights and the MLP's three, an eighth of each; the norms whole.
    weights = (16384 * (128 * 2 + 8 * 2) * 128 + 3 * 16384 * 53248) // 8 + 2 * 16384
    gather = ("all-gather", ("fsdp",), weights // 64 * 2)
    assert fired(answer, "forward")[:3] == [
        gather,
        ("all-gather", ("tp",), 8192 // 8 * 16384 * 2),
        ("reduce-scatter", ("tp",), 8192 * 16384 * 2),
    ]
    assert fired(answer, "backward")[0] == gather
    assert fired(answer, "backward")[-1] == ("reduce-scatter", ("fsdp",), weights * 2)
    assert answer["feed_forward.w1.weight"].local == (53248 // 512, 16384)


# Wrong plans.


def ill(wrong: Live, what: str, name: str, axes: tuple[int, ...]) -> Answer:
    """The answer of a recipe that is wrong in this way."""
    on = mesh(dict(zip(RECIPES[name].axes, axes, strict=True)))
    return wrong.ask(Question(what, on, recipe=Recipe(name)), 60)


def test_a_wrong_style_shows_in_layouts(wrong: Live) -> None:
    """Up row-parallel: its weight is split by the other dim, and it wants a split input."""
    answer = ill(wrong, "row for column", "mlp-tp", (2,))
    assert answer["up.weight"].layout == Layout(((), ("tp",)))
    assert isinstance(answer.end, Refused)
    assert answer.end.step == "forward"


def test_a_result_that_is_not_reduced_is_another_on_each_device(wrong: Live) -> None:
    """Nothing is fired forward, and ranks have different results."""
    answer = ill(wrong, "result not reduced", "mlp-tp", (2,))
    assert fired(answer, "forward") == []
    assert len(answer["out"].full) == 2
    assert "out" in off(answer)


def test_what_is_gathered_once_for_three_may_be_gathered_three_times(wrong: Live) -> None:
    """Without the relayout of attention's input wq, wk and wv each make their own."""
    answer = ill(wrong, "gathered three times", "block-sp", (2,))
    assert off(answer) == set()
    assert kinds(answer, "forward") == {"all-gather": 4, "reduce-scatter": 2, "all-reduce": 1}


@pytest.mark.parametrize(
    ("what", "name", "axes", "gradients"),
    [
        ("replicas not summed", "block-hsdp", (2, 2), "every"),
        ("router not summed", "moe-ep", (2,), "router.weight"),
    ],
)
def test_gradients_that_nobody_sums_are_another_on_each_device(
    wrong: Live, what: str, name: str, axes: tuple[int, ...], gradients: str
) -> None:
    """The all-reduce is not there, and these gradients and what comes of them are wrong."""
    answer = ill(wrong, what, name, axes)
    parameters = [tensor.name for tensor in MODELS[RECIPES[name].model].parameters]
    spoilt = parameters if gradients == "every" else [gradients]
    assert off(answer) == {f"{part}/{one}" for part in ("grad", "new") for one in spoilt}
    for one in spoilt:
        shards = answer[f"grad/{one}"].shards
        assert shards is not None
        assert len(set(shards)) == len(shards)
    assert "all-reduce" not in kinds(answer, "backward")


def test_shares_of_a_mean_that_are_averaged_once_more_are_halved(wrong: Live) -> None:
    """The collectives are the same; every gradient is half of what it has to be."""
    answer = ill(wrong, "shares averaged", "block-fsdp", (2,))
    assert kinds(answer, "backward") == {"all-gather": 1, "reduce-scatter": 1}
    for tensor in MODELS["block"].parameters:
        halved = 2 * value(answer[f"grad/{tensor.name}"])
        np.testing.assert_allclose(halved, value(answer[f"plain/grad/{tensor.name}"]), 1e-12, 1e-14)


def test_parameters_kept_after_forward_are_not_gathered_again(wrong: Live) -> None:
    """The numbers are right, and one all-gather is spared."""
    answer = ill(wrong, "kept after forward", "block-fsdp", (2,))
    assert off(answer) == set()
    assert kinds(answer, "backward") == {"reduce-scatter": 1}


def test_a_wrong_split_dim_shows_in_layouts(wrong: Live) -> None:
    """Sharded by columns: as good a plan, and not this one."""
    answer = ill(wrong, "columns for rows", "block-fsdp", (2,))
    assert off(answer) == set()
    assert answer["attention.wq.weight"].layout == Layout(((), ("fsdp",)))


def test_gradients_of_gathered_keys_must_be_said_to_be_parts(wrong: Live) -> None:
    """PrepareModuleInput takes them for whole: the gradients of wk and wv are wrong, silently."""
    answer = ill(wrong, "keys taken for whole", "attention-cp", (2,))
    assert {"grad/wk.weight", "grad/wv.weight"} < off(answer)
    assert not {"out", "loss", "grad/wq.weight", "grad/wo.weight"} & off(answer)
    assert kinds(answer, "backward") == {"all-gather": 1, "reduce-scatter": 1}
