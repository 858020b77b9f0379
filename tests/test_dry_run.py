"""Does a plan say what would happen with data? Live in both frameworks, on up to 2,048 devices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from adapters.answer import Answer, Collective, Crashed, Done, Hung, Observed, Refused, Unsupported
from cases.arrays import pack
from cases.catalogue import family
from cases.dry_run import as_dry_run
from cases.model import Case, Input, Layout, Question, mesh
from reports.dry_run import read_agreement
from suites.answer_differences import ONLY_WITH_DATA, compare_dry_run
from suites.aspects import TENSOR_ASPECTS, check_tensors
from suites.frameworks_compared import compare_answers
from suites.judge import context_of_answer, drop_unreached, judge, leave_to_real_run
from suites.observation import DryRunDiffers, WrongShard
from suites.sources import SourceChoice, Sources, most_devices
from suites.truth import Truth
from suites.verdict import Finding, Verdict
from tests.runs import ROOT, run

# Every so many of a family, and what is peculiar: addends given device by device, strided
# shards, uneven sizes, gradients, a device order, what one device alone could do.
SAMPLE = [
    case
    for name, step in (
        ("redistribute", 60), ("contraction", 12), ("operators", 190), ("gradients", 60),
    )
    for case in family(name)[::step]
]  # fmt: skip
PLANS = {case.id: case for case in family("dry_runs")}


@pytest.fixture(scope="module")
def frameworks() -> Iterator[Sources]:
    """Both, live."""
    sources = Sources({"torch": SourceChoice(), "jax": SourceChoice()}, seconds=120, spread=False)
    yield sources
    sources.close()


def _plan(case: Case) -> Question:
    """The question of a case's plan, by a name of its own: a worker is asked each once."""
    question = as_dry_run(case).question
    return msgspec.structs.replace(question, id=f"{question.id}/plan")


def test_plans_are_what_the_same_frameworks_do_with_data(frameworks: Sources) -> None:
    """Ends, shapes, layouts and every collective with its bytes, in all routes."""
    pairs = [(case.question, _plan(case)) for case in SAMPLE]
    for pair in pairs:
        for question in pair:
            frameworks.ask(question)
    agreed = 0
    for case, (question, plan) in zip(SAMPLE, pairs, strict=True):
        real = frameworks.answers(question)
        for subject, answer in frameworks.answers(plan).items():
            found = compare_dry_run(case, answer, real[subject])
            assert [one for one in found if one.bad] == [], case.id
            agreed += [one.outcome for one in found] == ["agree"]
    assert agreed > 2 * len(SAMPLE)


def test_a_plan_is_made_of_512_devices(frameworks: Sources) -> None:
    """Each gathers the shard of a weight over 64 devices, and holds both."""
    case = PLANS["plans.405b-gather-weight-64x8"]
    own, whole = 16384 * 53248 * 2 // 512, 16384 * 53248 * 2 // 8
    answers = frameworks.answers(case.question)
    gather = Collective("all-gather", ("fsdp",), 64, own)
    assert answers["torch"]["w"].collectives == (gather,)
    assert answers["jax/jit"].program == (gather,)
    assert answers["jax/explicit"]["w"].collectives == (gather,)
    for answer in answers.values():
        assert answer.end == Done()
        assert answer["w"].local == (16384, 6656)
        assert answer["w"].shards is None
        assert answer["w"].full == ()
        assert answer.peak is not None
        assert answer.peak >= own + whole
    assert answers["torch"].peak == own + whole


def test_a_plan_is_made_of_2048_devices(frameworks: Sources) -> None:
    """A matmul at 405B's sizes on 256 x 8, and nothing in it diverges unknown."""
    case = PLANS["plans.405b-matmul-256x8"]
    answers = frameworks.answers(case.question)
    for subject in ("torch", "jax/jit", "jax/explicit"):
        assert answers[subject].end == Done()
        assert answers[subject]["y"].local == (32, 6656)
        assert answers[subject]["y"].layout == Layout((("fsdp",), ("tp",)))
    found = judge(case, answers, ()).verdicts
    assert {one.aspect for one in found if one.verdict == "agree"} >= {"soundness", "layout"}


def test_more_devices_than_jax_compiles_for_are_told(frameworks: Sources) -> None:
    """JAX says so at once; torch has no such limit."""
    x = Input("x", (8192, 4), "float32", Layout((("x",), ())))
    question = Question("large", mesh({"x": 4096}), (x,), check=("x",), mode="dry run")
    answers = frameworks.answers(question)
    why = "4,096 devices asked for, JAX's CPU client has at most 2,048"
    assert answers.pop("torch")["x"].local == (2, 4)
    assert {answer.end for answer in answers.values()} == {Unsupported(why)}


def test_what_takes_values_is_unsupported(frameworks: Sources) -> None:
    """A number read from a tensor, and shards of unforeseen sizes: with the reason."""
    (item,) = (case for case in family("siblings") if case.id == "item.sum")
    end = frameworks.answers(_plan(item))["torch"].end
    assert end == Unsupported("a dry run has no values, and torch reads some", "r")
    (irregular,) = (case for case in family("public") if case.id == "public/dtensor/T33")
    for answer in frameworks.answers(_plan(irregular)).values():
        assert isinstance(answer.end, Unsupported)


def test_a_plan_s_question_has_no_data() -> None:
    """Whatever the case has; what needs none is still asked and expected."""
    for case in family("lesson"):
        plan = as_dry_run(case)
        assert all(one.value is None and not one.per_device for one in plan.question.inputs)
        assert plan.expectation.right == plan.expectation.shards == {}
        assert plan.expectation.counts == case.expectation.counts
        assert plan.question.steps == case.question.steps
        assert as_dry_run(plan) is plan


def test_devices_of_plans_are_no_processes() -> None:
    """A plan of thousands makes no world larger."""
    questions = [case.question for case in (*PLANS.values(), *family("lesson"))]
    assert most_devices(questions) == 8


GATHER = Collective("all-gather", ("x",), 4, 16)
Y = Observed(
    "y", "float32", (4, 4), Layout(((), ())), collectives=(GATHER,), full_collectives=(),
    local=(4, 4),
)  # fmt: skip
PLAN = Answer("q", "torch", Done(), (Y,), (GATHER,), peak=80)
WHOLE = pack(np.zeros((4, 4), np.float32))
REAL = msgspec.structs.replace(
    PLAN, seen=(msgspec.structs.replace(Y, local=None, shards=(WHOLE,) * 4, full=(WHOLE,)),)
)


def dry(**fields: object) -> Answer:
    """The dry run with another y."""
    return msgspec.structs.replace(PLAN, seen=(msgspec.structs.replace(Y, **fields),))


def differing(found: list[Finding]) -> list[tuple[str | None, str]]:
    """By step, in what a dry run differs from the run with data."""
    out = []
    for one in found:
        assert (one.aspect, one.against, one.severity) == ("dry run", "real", "wrong")
        assert isinstance(one.observation, DryRunDiffers)
        out += [(one.step, what.what) for what in one.observation.differences]
    return out


@pytest.mark.parametrize(
    ("fields", "differs"),
    [
        ({"layout": Layout((("x",), ()))}, ("y", "layout")),
        ({"collectives": ()}, ("y", "collectives")),
        ({"collectives": (GATHER, GATHER)}, ("y", "collectives")),
        (
            {"collectives": (msgspec.structs.replace(GATHER, bytes=17),)},
            ("y", "collectives"),
        ),
        (
            {"collectives": (msgspec.structs.replace(GATHER, pass_="backward"),)},
            ("y", "collectives"),
        ),
        ({"full_collectives": (GATHER,)}, ("y/full", "collectives")),
        ({"shape": (4, 5)}, ("y", "shape")),
        ({"dtype": "float64"}, ("y", "shape")),
        ({"local": (4, 1)}, ("y", "local shape")),
    ],
)
def test_a_wrong_dry_run_differs_from_the_run_with_data(
    fields: dict[str, object], differs: tuple[str, str]
) -> None:
    """In one thing, at one step."""
    assert differing(compare_dry_run(_case(), dry(**fields), REAL)) == [differs]
    assert [one.outcome for one in compare_dry_run(_case(), PLAN, REAL)] == ["agree"]


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"end": Refused("ValueError", "no", "y")}, ("y", "end")),
        ({"program": ()}, (None, "collectives")),
        ({"seen": ()}, ("y", "result")),
    ],
)
def test_another_end_program_or_result_differs(
    fields: dict[str, object], what: tuple[str | None, str]
) -> None:
    """A dry run that is refused where the run with data is not, and what it leaves out."""
    found = differing(compare_dry_run(_case(), msgspec.structs.replace(PLAN, **fields), REAL))
    assert found[0] == what


def test_what_is_refused_with_data_is_not_judged_beyond() -> None:
    """Results that a dry run alone gets to are left out; how it ended differs all the same."""
    real = msgspec.structs.replace(REAL, end=Refused("RuntimeError", "no", "z"))
    more = msgspec.structs.replace(PLAN, seen=(Y, msgspec.structs.replace(Y, name="z")))
    assert drop_unreached(more, real).seen == (Y,)
    assert drop_unreached(more, REAL) == more
    assert differing(compare_dry_run(_case(), drop_unreached(more, real), real)) == [("z", "end")]


def of_tensors(answer: Answer) -> list[Finding]:
    """What is found of the tensors of a dry run: soundness alone has something to look at."""
    found = check_tensors(context_of_answer(_case(), answer, Truth({}, {}, {}), {}), TENSOR_ASPECTS)
    return [one for one in found if one.aspect == "soundness"]


def test_a_wrong_shard_is_judged_where_there_is_data() -> None:
    """Of the very shape that it has there, and of that alone."""
    found = of_tensors(dry(local=(2, 4)))
    half = pack(np.zeros((2, 4), np.float32))
    held = msgspec.structs.replace(REAL["y"], shards=(half,) * 4)
    (told,) = leave_to_real_run(found, msgspec.structs.replace(REAL, seen=(held,)))
    assert told.outcome == "not comparable"
    assert leave_to_real_run(found, REAL) == leave_to_real_run(found, None) == found


@pytest.mark.parametrize("end", [Hung("for ever"), Crashed("SIGABRT")])
def test_what_hangs_or_crashes_with_data_is_beyond_a_dry_run(end: Hung | Crashed) -> None:
    """A dry run has one rank, which waits for no other; one that crashes too agrees."""
    real = msgspec.structs.replace(PLAN, end=end, seen=())
    assert drop_unreached(PLAN, real).seen == ()
    (found,) = compare_dry_run(_case(), PLAN, real)
    assert (found.outcome, found.why) == ("not comparable", ONLY_WITH_DATA[type(end)])
    assert [one.outcome for one in compare_dry_run(_case(), real, real)] == ["agree"]


def _case() -> Case:
    x = Input("x", (4, 4), "float32", Layout(((), ())))
    return Case(Question("q", mesh({"x": 4}), (x,), check=("x",), mode="dry run"))


@pytest.mark.parametrize("local", [(4, 1), (2, 4), (4,)])
def test_a_shard_of_another_shape_than_its_layout_s_is_unsound(local: tuple[int, ...]) -> None:
    """The largest shard is the first chunk of each dim."""
    right = Truth({}, {}, {})
    (agrees,) = of_tensors(PLAN)
    (found,) = of_tensors(dry(local=local))
    assert (agrees.outcome, found.outcome) == ("agree", "divergence")
    assert isinstance(found.observation, WrongShard)
    torch = context_of_answer(_case(), PLAN, right, {})
    jax = context_of_answer(
        _case(), msgspec.structs.replace(dry(local=local), subject="jax/jit"), right, {}
    )
    held = [one for one in compare_answers(jax, torch, frozenset()) if one.aspect == "shards"]
    assert [(one.outcome, one.against) for one in held] == [("divergence", "torch")]
    held = [one for one in compare_answers(jax, torch, frozenset({"y"})) if one.aspect == "shards"]
    assert [one.why for one in held] == ["torch is itself wrong here"]


def test_cases_are_run_as_plans(tmp_path: Path) -> None:
    """Layout and collectives are held, values are not; the example of docs/cases.md is one."""
    docs = (ROOT / "docs" / "cases.md").read_text()
    found = re.search(r"<!-- example: plan.toml -->\n```toml\n(.*?)```", docs, re.DOTALL)
    assert found is not None
    cases = tmp_path / "cases.toml"
    cases.write_text(
        '[[case]]\nid = "move"\nmesh = { x = 2 }\nprogram = ["y = redistribute(x, x=R)"]\n'
        'right.y = [9, 9]\ninputs.x = { shape = [2], placements = ["S(0)"] }\n' + found[1]
    )
    ran = run(tmp_path, "--plan", f"--cases={cases}", "--jax=off")
    assert ran.code == 0, ran.out
    agree = {(v["case"], v["aspect"]) for v in ran.verdicts if v["verdict"] == "agree"}
    for case in ("move", "gather-a-weight"):
        assert {(case, "soundness"), (case, "layout"), (case, "collectives")} <= agree
    assert {v["why"] for v in ran.verdicts if v["aspect"] == "global"} == {"a dry run has no data"}


@pytest.mark.parametrize(
    ("wrong", "steps"), [("nothing counted", {"y", "y/full"}), ("bytes doubled", {"y"})]
)
def test_a_wrong_adapter_of_plans_is_caught(tmp_path: Path, wrong: str, steps: set[str]) -> None:
    """By the record of the very release, in the aspect that is for it, with both counts."""
    ran = run(
        tmp_path, "-p", "tests.toys.unplanned", "suites/test_redistribute.py", "--plan",
        "-k", "x4-s0-to-s1", "--jax=off", TOY_WRONG=wrong,
    )  # fmt: skip
    assert ran.code == 1, ran.out
    assert steps <= {step for _, step, aspect, _ in ran.diverging() if aspect == "dry run"}
    assert "collectives with data: " in ran.out


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (
            ("--torch=records/torch-2.13.0.jsonl",),
            "--dry-run: found --torch=records/torch-2.13.0.jsonl, wanted torch live, or off",
        ),
        (("--record=here.xz", "--jax=off"), "--dry-run: found --record, wanted none"),
        (("--repro=here",), "--dry-run: found --repro, wanted none"),
    ],
)  # fmt: skip
def test_a_plan_is_neither_read_nor_kept(tmp_path: Path, args: tuple[str, ...], told: str) -> None:
    """Refused before anything starts: what was recorded has data."""
    ran = run(tmp_path, "suites/test_lesson.py", "--plan", *args)
    assert ran.code == 4
    assert told in ran.out


def test_what_a_run_of_plans_came_to_is_counted_by_case(tmp_path: Path) -> None:
    """A case differs if anything in it does; what was not compared is told by its reason."""
    lines = [
        ("a", "y", "agree", None, ""),
        ("a", "z", "divergence", None, "plan and real mode differ"),
        ("b", None, "agree", None, ""),
        ("c", None, "not comparable", None, "too large"),
        ("d", "y", "known", "rule", "because"),
        ("d", "z", "agree", None, ""),
    ]
    verdicts = [
        Verdict(case, step, "dry run", "torch", "real", verdict, ledger=ledger, why=why)  # type: ignore[arg-type]
        for case, step, verdict, ledger, why in lines
    ]
    other = Verdict("b", "y", "layout", "torch", "reference", "divergence")
    path = tmp_path / "verdicts.jsonl"
    rows = [{"versions": {"torch": "2.13.0"}}, *map(msgspec.to_builtins, (*verdicts, other))]
    path.write_bytes(b"\n".join(map(msgspec.json.encode, rows)) + b"\n")
    found = read_agreement(path)
    assert (found.agree, found.differ) == ({"torch": 1}, {"torch": ["a"]})
    assert found.beyond == {"torch": {"too large": ["c"]}}
    assert found.known == {"torch": {"rule": ["d"]}}
