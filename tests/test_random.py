"""Random draws: can each relation fail, how is a draw spelled, and what of a seed is refused?"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from adapters.answer import Observed
from adapters.jax_xla import source_lines
from adapters.reference.evaluate import evaluate
from adapters.torch_dtensor.source_lines import step_source
from adapters.unsupported import CannotAnswer
from cases.arrays import pack, unpack
from cases.catalogue import family
from cases.errors import BadInput
from cases.load import load
from cases.model import Case, Layout, Step, mesh
from cases.notation import from_placements
from cases.ops import OPS
from reports.judged_catalogue import ROUTES
from reports.randomness import op_that_draws, page, relation_asked
from suites.truth import truth
from tests.judging import findings
from tests.mistakes import mistakes, right_answer

CASES = {case.id: case for case in family("random")}
RANDOM = ("random_uniform", "random_normal", "inplace_uniform", "inplace_normal", "dropout")
STAGES = mesh({"pp": 2, "tp": 4})
ROWS = Layout((("pp",), ()))

Value = NDArray[Any]
Meaning = Callable[..., Any]


_COUNT = itertools.count()


def _seedless(op: str, right: Meaning) -> Meaning:
    """No draw is like another, whatever its seed."""
    return lambda *args, **params: right(*args, **{**params, "seed": next(_COUNT), "draw": 0})


def _constant(op: str, right: Meaning) -> Meaning:
    """One number everywhere, in all draws; of dropout, one column of the mask for all."""

    def wrong(*args: Value, **params: Any) -> Value:
        made = np.asarray(right(*args, **{**params, "seed": 0, "draw": 0}))
        if op != "dropout":
            return np.full_like(made, 0.5)
        kept = np.arange(made.shape[1]) % 2 == 0
        return np.asarray(np.where(kept, args[0] / (1 - params["p"]), 0)).astype(made.dtype)

    return wrong


def _unscaled(op: str, right: Meaning) -> Meaning:
    """What dropout keeps stays as it was, and it keeps nearly everything."""
    if op != "dropout":
        return right
    return lambda *args, **params: np.asarray(right(*args, **{**params, "p": 0.01}) * 0.99).astype(
        args[0].dtype
    )


def _broken(case: Case, breaks: Callable[[str, Meaning], Meaning]) -> Iterator[str]:
    """The relations of a case that notice draws that are broken so."""
    kept = {name: OPS[name] for name in RANDOM}
    try:
        for name, row in kept.items():
            OPS[name] = msgspec.structs.replace(row, meaning=breaks(name, row.meaning))
        # Of a question of its own: values are kept for the very one that was asked.
        values = evaluate(msgspec.structs.replace(case.question))
    finally:
        OPS.update(kept)
    for name, wanted in case.expectation.right.items():
        if not np.array_equal(values[name], unpack(wanted)):
            yield name


@pytest.mark.parametrize("id", CASES)
def test_every_relation_can_fail(id: str) -> None:
    """Draws without a seed, of one number, or dropout that scales nothing: each shows somewhere."""
    case = CASES[id]
    noticed = {name for way in (_seedless, _constant, _unscaled) for name in _broken(case, way)}
    assert noticed == set(case.expectation.right)


def test_every_relation_holds_in_numpy() -> None:
    """Where no device draws for itself."""
    assert [id for id, case in CASES.items() if list(_broken(case, lambda _, right: right))] == []


def test_other_numbers_are_no_mistake_but_ranks_that_differ_are() -> None:
    """A draw may be any, as long as all ranks have it."""
    case = CASES["seed-another-x4-s0"]
    right = truth(case)
    found = {one.name: one for one in mistakes(case, right_answer(case, right))}
    assert "rows permuted in a" not in found
    for name in ("one rank apart in a", "a stale shard in a"):
        answer = found[name].answer
        wrong = [f for f in findings(case, answer, answer, right) if f.bad]
        assert {f.aspect for f in wrong} == {"soundness"}, name


def test_shards_of_random_numbers_are_not_held_against_another_framework() -> None:
    """Each has its own."""
    case = CASES["init-uniform-x4-s0"]
    right = truth(case)
    torch = right_answer(case, right)
    ours = msgspec.structs.replace(torch, subject="jax/explicit")
    shards = {f.step: f.outcome for f in findings(case, ours, torch, right) if f.aspect == "shards"}
    assert shards["a"] == "not comparable"
    assert shards["n"] == "agree"


TORCH = {
    "random_uniform(shape=[8, 4], seed=3)":
        "(torch.manual_seed(3), dtensor.rand((8, 4), device_mesh=mesh,"
        " placements=[Shard(0), Replicate()]))[1]",
    "random_normal(shape=[8, 4], seed=3, whole=true)":
        "(torch.manual_seed(3), distribute_tensor(torch.randn((8, 4)), mesh,"
        " placements=[Shard(0), Replicate()]))[1]",
    "inplace_uniform(x, seed=3)":
        "(torch.manual_seed(3), torch.nn.init.uniform_(x.clone()))[1]",
    "inplace_normal(x, seed=3, draw=2)": "torch.nn.init.normal_(x.clone())",
    "inplace_normal(x, seed=3, seeding='mesh')":
        "(manual_seed(3, mesh),"
        " torch.nn.init.normal_(x.clone()))[1]",
    "inplace_uniform(x, seed=3, seeding='generator')":
        "torch.nn.init.uniform_(x.clone(), generator=torch.Generator().manual_seed(3))",
    "inplace_uniform(x, seed=3, distinct=['pp'])":
        "(torch.manual_seed(3 + mesh.get_local_rank('pp')),"
        " torch.nn.init.uniform_(x.clone()))[1]",
    "inplace_uniform(x, seed=3, distinct=['pp', 'tp'])":
        "(torch.manual_seed(3 + mesh.get_local_rank('pp') * 4 + mesh.get_local_rank('tp')),"
        " torch.nn.init.uniform_(x.clone()))[1]",
    "dropout(x, p=0.25, seed=3)": "(torch.manual_seed(3), F.dropout(x, p=0.25))[1]",
}  # fmt: skip
JAX = {
    "random_uniform(shape=[8, 4], seed=3)":
        "jax.random.uniform(jax.random.key(3), (8, 4), jnp.float32)",
    "random_normal(shape=[8, 4], seed=3, draw=1, impl='rbg')":
        "jax.random.normal(jax.random.fold_in(jax.random.key(3, impl='rbg'), 1), (8, 4),"
        " jnp.float32)",
    "inplace_uniform(x, seed=3, seeding='mesh')":
        "jax.random.uniform(jax.random.key(3), x.shape, x.dtype)",
    "inplace_normal(x, seed=3, distinct=['pp'])":
        "jax.shard_map(lambda _t: jax.random.normal(jax.random.fold_in(jax.random.key(3),"
        " jax.lax.axis_index(('pp',))), _t.shape, _t.dtype), mesh=mesh, in_specs=P(('pp',)),"
        " out_specs=P(('pp',)), axis_names={*('pp',)})(x)",
    "dropout(x, p=0.25, seed=3)":
        "jnp.where(jax.random.bernoulli(jax.random.key(3), 1.0 - 0.25, x.shape),"
        " x / (1 - 0.25), 0)",
}  # fmt: skip
FILE = """
[[case]]
id = "a"
mesh = {{ pp = 2, tp = 4 }}
program = ["y = {step}"]
{more}
inputs.x = {{ shape = [8, 4], placements = ["S(0)", "R"] }}
"""


def _step(tmp_path: Path, text: str) -> Step:
    placed = text[:-1] + ", placements=['S(0)', 'R'])" if text.startswith("random_") else text
    path = tmp_path / "cases.toml"
    path.write_text(FILE.format(step=placed, more=""))
    (case,) = load(path)
    return case.question.steps[0]


@pytest.mark.parametrize("text", TORCH)
def test_a_draw_in_torch(tmp_path: Path, text: str) -> None:
    """A seed first, unless the generator goes on, and moved on along the distinct axes."""
    assert step_source(_step(tmp_path, text), STAGES) == TORCH[text]


@pytest.mark.parametrize("text", JAX)
def test_a_draw_in_jax(tmp_path: Path, text: str) -> None:
    """A key, with later draws and places along the distinct axes folded in."""
    step = msgspec.structs.replace(_step(tmp_path, text), to=None)
    assert source_lines.jit_line(step, "mesh") == f"y = {JAX[text]}"


def test_what_is_drawn_split_is_asked_of_the_draw_in_explicit(tmp_path: Path) -> None:
    """And what is drawn whole is split after it."""
    for text, wanted in (
        ("random_uniform(shape=[8, 4], seed=3)",
         "y = jax.random.uniform(jax.random.key(3), (8, 4), jnp.float32,"
         " out_sharding=NamedSharding(mesh, P('pp')))"),
        ("random_uniform(shape=[8, 4], seed=3, whole=true)",
         "y = jax.sharding.reshard(jax.random.uniform(jax.random.key(3), (8, 4), jnp.float32),"
         " NamedSharding(mesh, P('pp')))"),
    ):  # fmt: skip
        assert source_lines.explicit_line(_step(tmp_path, text), "mesh") == wanted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("random_uniform(shape=[8], seed=3, impl='rbg')", "torch has one generator on a CPU"),
        ("random_normal(shape=[8], seed=3, seeding='generator')", "factories take no generator"),
        ("dropout(x, p=0.5, seed=3, seeding='generator')", "dropout takes no generator"),
        ("inplace_uniform(x, seed=3, draw=1, seeding='generator')", "has no later one"),
    ],
)
def test_what_torch_has_no_form_for(tmp_path: Path, text: str, why: str) -> None:
    """Is said to be so, and not left out."""
    text = text.replace("shape=[8]", "shape=[8, 4]")
    with pytest.raises(CannotAnswer, match=why):
        step_source(_step(tmp_path, text), STAGES)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("inplace_uniform(x, seed=3, distinct=['dp'])", "distinct axis 'dp', wanted one of pp, tp"),
        ("inplace_uniform(x, seed=3, distinct=[])", "wanted a list of mesh axes"),
        ("inplace_uniform(x, seed=3, seeding='rank')", "'process', 'mesh' or 'generator'"),
        ("random_uniform(shape=[8, 4], seed=3, impl='mt')", "wanted a generator: threefry2x32,"),
        ("random_uniform(shape=[8, 4], seed=3, distinct=['pp'])", "a parameter of random_uniform"),
        ("dropout(x, p=1, seed=3)", "wanted a number from 0 to less than 1"),
        ("dropout(x, p=0.5)", "found no seed"),
        ("inplace_normal(argmax(x, axis=1), seed=3)", "takes floating-point numbers, not int64"),
    ],
)
def test_a_seed_that_means_nothing_is_refused(tmp_path: Path, text: str, wanted: str) -> None:
    """Before anything starts."""
    with pytest.raises(BadInput) as refused:
        _step(tmp_path, text)
    assert wanted in str(refused.value)


def test_stages_have_numbers_of_their_own_in_numpy() -> None:
    """Of each index of dim 0 its own, and of another draw others."""
    x = np.zeros((3, 4), np.float32)
    meaning = OPS["inplace_uniform"].meaning
    one, other = (meaning(x, seed=3, draw=draw, distinct=["pp"]) for draw in (0, 1))
    assert len(np.unique(np.concatenate([one, other]))) == 24
    assert one.dtype == np.float32
    np.testing.assert_array_equal(one, meaning(x, seed=3, distinct=["pp"]))


def test_every_case_is_told_on_the_page() -> None:
    """Either as a placement or as what is asked of a seed."""
    for id in CASES:
        assert (relation_asked(id) is None) == id.startswith(
            ("init", "whole", "generator", "seed-generator", "dropout-x4-r", "dropout-x4-s",
             "dropout-a2")
        ), id  # fmt: skip
        assert relation_asked(id) or op_that_draws(id), id


def test_the_page_tells_who_shares_numbers() -> None:
    """From shards: those of one device's draw, one part on every device, a mask repeated."""

    def answers(change: Callable[[Observed], Observed]) -> str:
        def answer(case: Case) -> dict[str, Any]:
            made = right_answer(case, truth(case))
            seen = tuple(change(one) if one.name == "a" else one for one in made.seen)
            return dict.fromkeys(ROUTES, msgspec.structs.replace(made, seen=seen))

        return page(answer)

    def repeated(seen: Observed) -> Observed:
        shards = [unpack(one) for one in seen.shards or () if one is not None]
        first = [np.resize(shards[0], one.shape) for one in shards]
        return msgspec.structs.replace(seen, shards=tuple(map(pack, first)))

    row = "| `inplace_uniform` | 8x4 as [S(0)] on x=4 | "
    mask = "| `dropout` | 16x8 as [S(0)] on x=4 | "
    right = answers(lambda seen: seen)
    assert row + "as one, none in common | as one, none in common |" in right
    assert mask + "as one, none in common |" in right
    wrong = answers(repeated)
    assert row + "as one, all in common |" in wrong
    assert mask + "as one, all in common |" in wrong


def test_a_layout_is_read_as_asked() -> None:
    """The stages' axis splits dim 0."""
    step = CASES["distinct-pp2.tp2-s0.s1"].question.steps[0]
    on = CASES["distinct-pp2.tp2-s0.s1"].question.mesh
    assert step.to == from_placements(["S(0)", "S(1)"], on, 3)
    assert step.params["distinct"] == ["pp"]
