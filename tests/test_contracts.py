"""Is a training step held to its contract? Formulas by hand, rewritings byte for byte, messages."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from adapters.answer import Answer, Collective, Done, Observed
from adapters.registry import ALL_REDUCE_FOR_REDUCE_SCATTER, Lowering, lowerings_of
from cases.arrays import pack, unpack
from cases.catalogue.training import case, cases
from cases.dry_run import as_dry_run
from cases.ledger import PLANS
from cases.model import Case, Mesh, mesh
from cases.recipes import MODELS, RECIPES
from cases.recipes.contracts import (
    CONTRACTS,
    ContractTerm,
    ExpectedCollectives,
    expected_collectives,
)
from suites.collectives import (
    MERGED_AXES,
    ONE_AXIS_AT_A_TIME,
)
from suites.contracts import OTHER_GROUPING, check_contract, explain_pass
from suites.judge import context_of_answer
from suites.observation import WrongLayout
from suites.truth import truth
from suites.wording import make_verdict
from tests import recipe_mistakes
from tests.judging import findings

TWO = mesh({"a": 2, "b": 4})


def wanted(
    kind: str, axes: str, bytes_: int, count: int = 1, spare: bool = False
) -> ExpectedCollectives:
    """Something due forward; ``axes`` one letter each."""
    return ExpectedCollectives(
        ContractTerm("forward", kind, tuple(axes), "", "", "", spare), count, bytes_
    )


def fired(kind: str, axes: str, bytes_: int, on: Mesh = TWO) -> Collective:
    """Something counted forward."""
    group = 1
    for axis in axes:
        group *= on[axis]
    return Collective(kind, tuple(axes), group, bytes_)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("counted", "due_", "rules"),
    [
        ([fired("all-gather", "a", 64)], [wanted("all-gather", "a", 64)], ()),
        (
            [fired("all-gather", "a", 24), fired("all-gather", "a", 40)],
            [wanted("all-gather", "a", 64)],
            (OTHER_GROUPING,),
        ),
        (
            [fired("all-gather", "a", 64)],
            [wanted("all-gather", "a", 64), wanted("all-gather", "a", 64, spare=True)],
            (),
        ),
        (
            [fired("all-gather", "a", 64), fired("all-gather", "a", 64)],
            [wanted("all-gather", "a", 64), wanted("all-gather", "a", 64, spare=True)],
            (),
        ),
        (
            [fired("all-reduce", "a", 64)],
            [wanted("reduce-scatter", "a", 64)],
            (ALL_REDUCE_FOR_REDUCE_SCATTER,),
        ),
        # First over the replicas, of shards; or first of all, of whole gradients.
        (
            [fired("all-reduce", "ab", 64)],
            [wanted("reduce-scatter", "b", 64), wanted("all-reduce", "a", 16)],
            (ALL_REDUCE_FOR_REDUCE_SCATTER, MERGED_AXES, OTHER_GROUPING),
        ),
        (
            [fired("all-reduce", "ab", 64)],
            [wanted("reduce-scatter", "b", 64), wanted("all-reduce", "a", 64)],
            (ALL_REDUCE_FOR_REDUCE_SCATTER, MERGED_AXES, OTHER_GROUPING),
        ),
        (
            [fired("all-reduce", "a", 8), fired("all-reduce", "b", 8)],
            [wanted("all-reduce", "ab", 8)],
            (ONE_AXIS_AT_A_TIME, OTHER_GROUPING),
        ),
        # An axis of size 1 has nobody to talk to.
        ([fired("all-reduce", "c", 8, mesh({"c": 1}))], [], ()),
    ],
)
def test_what_is_due_in_other_words_is_named(
    counted: list[Collective], due_: list[ExpectedCollectives], rules: tuple[Lowering, ...]
) -> None:
    """Each rewriting by its rule, and no more rules than it took."""
    on = mesh({"c": 1}) if counted[0].axes == ("c",) else TWO
    found = explain_pass(on, lowerings_of("jax/jit"), counted, due_)
    assert (found.plan, found.rules) == (None, rules)


@pytest.mark.parametrize(
    ("counted", "due", "subject", "plan"),
    [
        ("all-gather", "all-to-all", "torch", None),
        ("all-gather", "all-to-all", "jax/jit", "gathers"),
        ("all-reduce", "reduce-scatter", "jax/jit", None),
        ("all-reduce", "reduce-scatter", "torch", "reduces"),
    ],
)
def test_only_the_rules_of_the_framework_itself_explain(
    counted: str, due: str, subject: str, plan: str | None
) -> None:
    """What one backend does for a reason is another plan in the other."""
    found = explain_pass(
        TWO, lowerings_of(subject), [fired(counted, "a", 64)], [wanted(due, "a", 64)]
    )
    assert found.plan == plan


@pytest.mark.parametrize(
    ("counted", "due_", "plan"),
    [
        ([], [wanted("all-reduce", "a", 64)], "fewer"),
        ([fired("all-reduce", "a", 63)], [wanted("all-reduce", "a", 64)], "fewer"),
        ([fired("all-gather", "a", 8)], [], "more"),
        # What is spare is done whole or not at all.
        (
            [fired("all-gather", "a", 64), fired("all-gather", "a", 8)],
            [wanted("all-gather", "a", 64), wanted("all-gather", "a", 64, spare=True)],
            "more",
        ),
        ([fired("all-reduce", "b", 64)], [wanted("all-reduce", "a", 64)], "reduces"),
        ([fired("all-gather", "a", 64)], [wanted("reduce-scatter", "a", 64)], "gathers"),
        ([fired("all-to-all", "a", 64)], [wanted("all-gather", "a", 64)], "exchanges"),
        ([fired("collective-permute", "a", 64)], [wanted("all-gather", "a", 64)], "permutes"),
        # Twice what is due is no way of saying it.
        (
            [fired("all-reduce", "ab", 64), fired("all-reduce", "ab", 64)],
            [wanted("reduce-scatter", "b", 64), wanted("all-reduce", "a", 16)],
            "more",
        ),
        (
            [fired("all-to-all", "a", 64), fired("all-reduce", "a", 8)],
            [wanted("all-gather", "a", 64)],
            "gathers, exchanges and reduces",
        ),
    ],
)
def test_what_no_rule_accounts_for_is_another_plan(
    counted: list[Collective], due_: list[ExpectedCollectives], plan: str
) -> None:
    """Missing, extra, over the wrong axis, of other bytes: by the kinds that the ledger knows."""
    assert explain_pass(TWO, lowerings_of("jax/jit"), counted, due_).plan == plan
    assert plan in PLANS


def test_the_message_says_what_is_missing_and_extra_where() -> None:
    """Kind, axis and bytes; and how many bytes there are of all that is due."""
    trained = case(RECIPES["block-fsdp"], (4,), {})
    program = (
        Collective("all-gather", ("fsdp",), 4, 1568),
        Collective("all-reduce", ("fsdp",), 4, 8),
        Collective("all-gather", ("fsdp",), 4, 1568, "backward"),
        Collective("all-to-all", ("fsdp",), 4, 99, "backward"),
    )
    answer = Answer(trained.id, "torch", Done(), (), program)
    forward, backward, update = check_contract(
        context_of_answer(trained, answer, truth(trained), {})
    )
    assert (forward.outcome, update.outcome) == ("agree", "agree")
    assert (backward.outcome, backward.severity) == ("divergence", "wrong")
    assert make_verdict(backward, trained, "torch").why == (
        "lacking: reduce-scatter(fsdp) of 6,272 B;"
        " not in the parallel plan: all-to-all(fsdp) of 99 B;"
        " 1.97 times fewer bytes than the parallel plan"
    )


def test_the_formulas_are_those_of_the_papers() -> None:
    """Worked out by hand, for a layer of Llama 3 8B in bfloat16 on 8 x 8 devices."""
    sizes = {"batch": 8, "seq": 8192, "dim": 4096, "heads": 32, "kv": 8, "head": 128,
             "hidden": 14336}  # fmt: skip
    on = mesh({"fsdp": 8, "tp": 8})
    found = expected_collectives(RECIPES["block-fsdp-tp"], sizes, on, 2)
    # A sequence of 8192 places of 4096 numbers of 2 bytes is 64 MiB; a device has an eighth.
    mib = 2**20
    # Eighths of 4096 x (4096 + 2 x 1024 + 4096 + 3 x 14336) numbers, and two norms.
    weights = 4096 * (4096 + 2 * 1024 + 4096 + 3 * 14336) // 8 + 2 * 4096
    assert [(one.term.pass_, one.term.kind, one.term.axes, one.count, one.bytes)
            for one in found] == [
        ("forward", "all-gather", ("fsdp",), 1, weights * 2 // 8),
        ("backward", "all-gather", ("fsdp",), 1, weights * 2 // 8),
        ("backward", "reduce-scatter", ("fsdp",), 1, weights * 2),
        ("forward", "all-gather", ("tp",), 2, 2 * 8 * mib),
        ("forward", "reduce-scatter", ("tp",), 2, 2 * 64 * mib),
        ("backward", "all-gather", ("tp",), 2, 2 * 8 * mib),
        ("backward", "reduce-scatter", ("tp",), 2, 2 * 64 * mib),
        ("backward", "all-reduce", ("tp",), 2, 2 * 4096 * 2),
        ("forward", "all-reduce", ("fsdp", "tp"), 1, 4),
    ]  # fmt: skip


def test_every_recipe_has_a_contract_with_a_source() -> None:
    """And every contract is that of a recipe; on three meshes at least, all of it whole numbers."""
    assert CONTRACTS.keys() == RECIPES.keys()
    for name, contract in CONTRACTS.items():
        assert contract.source.startswith("https://")
        own = [one for one in cases() if one.question.recipe and one.question.recipe.name == name]
        assert len({one.question.mesh for one in own}) >= 3
        for one in own:
            assert one.question.recipe is not None
            sizes = {**MODELS[RECIPES[name].model].sizes, **one.question.recipe.sizes}
            assert expected_collectives(RECIPES[name], sizes, one.question.mesh, 8)


def test_a_formula_that_gives_no_whole_number_is_refused() -> None:
    """Rather than rounded: half a byte is a mistake in the formula or in the sizes."""
    with pytest.raises(ValueError, match=r"is 42\.\d+"):
        expected_collectives(
            RECIPES["mlp-tp"], {"batch": 1, "dim": 1, "hidden": 4}, mesh({"tp": 2}), 42.5
        )  # type: ignore[arg-type]


def test_a_layout_for_the_wrong_dim_is_told() -> None:
    """In both notations."""
    trained = case(RECIPES["mlp-tp"], (2,), {})
    right = truth(trained)
    answer = recipe_mistakes.right_answer(trained, right, "torch")
    wrong = next(
        one for one in recipe_mistakes.mistakes(trained, answer)
        if one.name == "wrong split dim of up.weight"
    )  # fmt: skip
    found = [f for f in findings(trained, wrong.answer, None, right) if f.aspect == "layout"]
    (bad,) = (f for f in found if f.bad)
    assert bad.step == "up.weight"
    assert isinstance(bad.observation, WrongLayout)
    told = make_verdict(bad, trained, "torch")
    assert "S(0)" in told.wanted
    assert "P('tp'" in told.wanted
    assert "S(1)" in told.got


def test_answers_of_an_unknown_release_are_told_apart() -> None:
    """A step that is right by its own unsharded one is wrong if that one is."""
    from cases.arrays import pack

    trained = case(RECIPES["mlp-tp"], (2,), {})
    right = truth(trained)
    torch = recipe_mistakes.right_answer(trained, right, "torch")
    twice = tuple(
        msgspec.structs.replace(
            one,
            full=(pack(unpack(one.full[0]) * 2),),
            shards=None if one.shards is None else tuple(
                None if s is None else pack(unpack(s) * 2) for s in one.shards),
        )
        if one.name.removeprefix("plain/") == "grad/up.weight" else one
        for one in torch.seen
    )  # fmt: skip
    wrong = msgspec.structs.replace(torch, subject="jax/jit", seen=twice)
    bad = {
        (f.step, f.against)
        for f in findings(trained, wrong, torch, right)
        if f.bad and f.aspect == "gradients"
    }
    assert bad == {("plain/grad/up.weight", "reference"), ("plain/grad/up.weight", "torch")}


def judged(trained: Case, change: Callable[[Observed], Observed | None]) -> set[tuple[str, str]]:
    """(name, aspect) of what diverges in a right answer once each observation is changed."""
    right = truth(trained)
    answer = recipe_mistakes.right_answer(trained, right, "torch")
    seen = tuple(one for seen in answer.seen if (one := change(seen)) is not None)
    wrong = msgspec.structs.replace(answer, seen=seen)
    found = findings(trained, wrong, None, right)
    return {(str(f.step), f.aspect) for f in found if f.bad}


def test_gradients_that_are_no_numbers_are_wrong() -> None:
    """Sharded and unsharded alike: they agree with one another, and not with differences."""

    def spoilt(seen: Observed) -> Observed:
        if not seen.name.endswith("grad/up.weight"):
            return seen
        none = pack(np.full(seen.shape, np.nan))
        return msgspec.structs.replace(seen, full=(none,), shards=None)

    found = judged(case(RECIPES["mlp-tp"], (2,), {}), spoilt)
    assert ("plain/grad/up.weight", "gradients") in found


@pytest.mark.parametrize("name", ["up.weight", "out", "loss", "grad/x", "plain/loss"])
def test_what_is_not_shown_is_missed(name: str) -> None:
    """An answer that came to its end shows everything."""
    found = judged(
        case(RECIPES["mlp-tp"], (2,), {}), lambda seen: None if seen.name == name else seen
    )
    assert {one for one, _ in found} == {name}


def test_a_parameter_that_no_plan_took_up_is_not_as_planned() -> None:
    """It reports no layout, and is whole on every device."""

    def left(seen: Observed) -> Observed:
        if seen.name != "up.weight":
            return seen
        return msgspec.structs.replace(
            seen, layout=None, offsets=None, shards=(seen.full[0],) * 2, full=()
        )

    assert judged(case(RECIPES["mlp-tp"], (2,), {}), left) == {("up.weight", "layout")}


def test_a_planned_step_is_held_to_shapes_and_types() -> None:
    """Without data, dtype and local shape are what there is."""
    planned_ = as_dry_run(case(RECIPES["mlp-tp"], (2,), {}))
    assert judged(planned_, lambda seen: seen) == set()
    found = judged(planned_, lambda seen: msgspec.structs.replace(seen, dtype="int8"))
    assert ("up.weight", "global") in found
    found = judged(
        planned_, lambda seen: msgspec.structs.replace(seen, layout=None, local=seen.shape)
    )
    assert ("up.weight", "layout") in found


def test_a_loop_is_not_counted() -> None:
    """Its body may run any number of times."""
    trained = case(RECIPES["mlp-tp"], (2,), {})
    answer = recipe_mistakes.right_answer(trained, truth(trained), "jax/jit")
    looped = tuple(msgspec.structs.replace(one, in_loop=True) for one in answer.program or ())
    looped_answer = msgspec.structs.replace(answer, program=looped)
    found = check_contract(context_of_answer(trained, looped_answer, truth(trained), {}))
    assert [one.outcome for one in found] == ["not comparable", "not comparable", "agree"]
