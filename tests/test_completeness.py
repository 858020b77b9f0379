"""Is what a route promised told from what it shows? On answers of the records, and on live ones."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import get_args

import msgspec
import numpy as np
import pytest

from adapters.answer import Answer, Done, Observed, Refused
from adapters.completeness import find_missing_fields, required_fields
from adapters.jax_xla.names import PROMISES
from adapters.protocol import Field, Promise, Promises
from adapters.record import Record, digest_question, load
from adapters.reference.evaluate import evaluate
from adapters.torch_dtensor.names import promises
from cases.arrays import pack
from cases.catalogue import catalogue
from cases.mesh_derivation import meshes_of_tensors
from cases.model import Case, Foreign, Input, Layout, Mesh, Question, Recipe, Step
from suites.aspects import global_value
from tests.runs import ROOT
from tests.torch_worker import LINE, SIMPLE, Live, addends, given, layout, question, to

TORCH = promises("2.13.0")


@cache
def questions() -> dict[str, Question]:
    return {case.id: case.question for case in catalogue()}


@cache
def record(name: str) -> Record:
    return load(ROOT / "records" / f"{name}.jsonl")


def kept(name: str, subject: str, id: str) -> Answer:
    """A record's answer to a question of the catalogue, which ended well."""
    (found,) = (one for one in record(name).stored_answers(id) if one.subject == subject)
    assert found.end == Done()
    return found


def with_seen(answer: Answer, name: str, **fields: object) -> Answer:
    """An answer with other fields of one name."""
    return msgspec.structs.replace(
        answer,
        seen=tuple(
            msgspec.structs.replace(one, **fields) if one.name == name else one
            for one in answer.seen
        ),
    )


# What there is.


@pytest.mark.parametrize(
    "name",
    ["torch-2.2.2", "torch-2.9.1", "torch-2.13.0", "torch-2.15.0",
     "jax-0.4.26", "jax-0.6.2", "jax-0.10.2", "jax-0.12.0.1"],
)  # fmt: skip
def test_records_show_all_that_is_promised(name: str) -> None:
    """By their own headers; of every question, every name that is checked."""
    read, found = record(name), []
    asked = [q for q in questions().values() if q.id in read.lines]
    for one in asked:
        assert digest_question(one) == read.lines[one.id].digest
        for answer in read.stored_answers(one.id):
            found += find_missing_fields(one, answer, read.header.promises)
    assert len(asked) > 3000
    assert found == []


def test_headers_promise_what_the_adapters_of_their_releases_do() -> None:
    """In a release that lacks an offset of some shard none is promised."""
    for path in sorted((ROOT / "records").glob("*[0-9].jsonl")):
        header = load(path).header
        wanted = promises(header.release) if header.framework == "torch" else PROMISES
        assert header.promises == wanted, path
        assert {*header.promises} == {*header.subjects}
    assert "offsets" in promises("2.10.0")["torch"].real
    assert "offsets" not in promises("2.9.1")["torch"].real


# What is noticed.

ROUTES = [
    ("torch-2.13.0", "torch", "public/dtensor/T41"),
    ("jax-0.10.2", "jax/jit", "public/dtensor/T41"),
    ("jax-0.10.2", "jax/explicit", "public/dtensor/T41"),
    ("jax-0.10.2", "jax/shard_map:implied", "public/dtensor/T41"),
    ("jax-0.10.2", "jax/shard_map:cheapest", "public/dtensor/T41"),
    ("torch-2.13.0", "torch", "mlp-tp-tp8"),
    ("jax-0.10.2", "jax/jit", "mlp-tp-tp8"),
    ("torch-2.13.0", "torch", "views-p4.r2.s4.c2.t8.e16.x1"),
    ("torch-2.13.0", "torch", "plans.experts-exchange-2x16x16"),
    ("jax-0.10.2", "jax/explicit", "plans.experts-exchange-2x16x16"),
]


@pytest.mark.parametrize(("name", "subject", "id"), ROUTES)
def test_each_field_that_is_due_is_missed_if_it_is_absent(name: str, subject: str, id: str) -> None:
    """One at a time, of one name at a time; and a name that is absent altogether."""
    said, asked = record(name).header.promises, questions()[id]
    answer = kept(name, subject, id)
    fields = required_fields(asked, subject, said)
    assert find_missing_fields(asked, answer, said) == []
    for one, its in fields.items():
        if not one:
            bare = msgspec.structs.replace(answer, program=None)
            assert find_missing_fields(asked, bare, said) == [("", "program")]
            continue
        for field in its:
            nothing: object = () if field == "full" else "" if field == "dtype" else None
            spoilt = with_seen(answer, one, **{field: nothing})
            assert find_missing_fields(asked, spoilt, said) == [(one, field)]
        rest = tuple(seen for seen in answer.seen if seen.name != one)
        spoilt = msgspec.structs.replace(answer, seen=rest)
        assert find_missing_fields(asked, spoilt, said) == [(one, None)]
    assert {*fields} - {""} == {one.name for one in answer.seen}


def test_an_answer_with_nothing_shown_lacks_every_name() -> None:
    """Of a route that promised nothing too; unless it did not end well."""
    asked = question("bare", LINE, SIMPLE.inputs, SIMPLE.steps)
    bare = Answer("bare", "torch", Done())
    for said in (TORCH, Promises()):
        assert find_missing_fields(asked, bare, said) == [("x", None), ("y", None)]
    refused = msgspec.structs.replace(bare, end=Refused("ValueError", "no", "y"))
    assert find_missing_fields(asked, refused, TORCH) == []


def test_one_shard_that_is_absent_is_missed_and_none_where_the_layout_is_of_its_own_kind() -> None:
    """Every device has one, unless the framework says that it lies elsewhere; then some have."""
    answer = kept("torch-2.13.0", "torch", "public/dtensor/T41")
    asked = questions()["public/dtensor/T41"]
    shards = answer["y"].shards
    assert shards is not None
    some = with_seen(answer, "y", shards=(*shards[:-1], None))
    assert find_missing_fields(asked, some, TORCH) == [("y", "shards")]
    elsewhere = with_seen(some, "y", layout=Foreign("on the first devices"))
    assert find_missing_fields(asked, elsewhere, TORCH) == []
    none = with_seen(elsewhere, "y", shards=(None,) * len(shards))
    assert find_missing_fields(asked, none, TORCH) == [("y", "shards")]


# What cannot be there.


def test_a_plain_tensor_lies_on_no_mesh() -> None:
    """From where it leaves sharding to where it comes back.

    An item and what is made of it are whole on every device.
    """
    steps = [
        Step("a", "to_local", ("x",)),
        Step("b", "multiply", ("a", 2)),
        Step("y", "from_local", ("b",), to=layout("S(0)", LINE, 1)),
        Step("s", "sum", ("y",)),
        Step("v", "item", ("s",)),
        Step("w", "add", ("v", 1)),
        Step("z", "multiply", ("y", "w")),
    ]
    fields = required_fields(
        question("plain", LINE, [given("x", [8], "S(0)")], steps), "torch", TORCH
    )
    local = {"dtype", "collectives", "shards"}
    assert {*fields["a"]} == {*fields["b"]} == local
    assert {*fields["v"]} == {*fields["w"]} == local | {"full"}
    every = {*TORCH["torch"].real}
    assert {*fields["y"]} == {*fields["s"]} == {*fields["z"]} == every
    assert {*fields["x"]} == every - {"collectives"}


def test_jit_says_no_layout_of_what_is_used_later_and_of_stacked_addends() -> None:
    """And no collectives step by step, but those of the program."""
    x = addends("x", "P(sum)", [[1], [2], [3], [4]])
    asked = question("jit", LINE, [x], [to("y", "x", "R"), to("z", "y", "S(0)")])
    fields = required_fields(asked, "jax/jit", PROMISES)
    assert {*fields["x"]} == {"dtype", "shards"}
    assert {*fields["y"]} == {"dtype", "shards", "offsets", "full"}
    assert {*fields["z"]} == {"dtype", "shards", "offsets", "full", "layout"}
    assert fields[""] == ("program",)
    assert "full" not in required_fields(asked, "jax/shard_map:implied", PROMISES)["x"]
    assert "offsets" not in required_fields(asked, "jax/explicit", PROMISES)["x"]
    assert {*TORCH["torch"].real} - {*required_fields(asked, "torch", TORCH)["x"]} == {
        "collectives"
    }


def test_what_an_answer_says_is_owed_has_no_more_than_what_the_question_says_is() -> None:
    """Sharding-in-types leaves a sum owed by itself: then JAX has no offsets."""
    asked = question("owed", LINE, [given("x", [4, 4], "S(0)")], [Step("y", "sum", ("x",))])
    value = pack(np.zeros((), np.float32))
    y = Observed("y", "float32", (), Layout(()), (value,) * 4, None, (value,), (), ())
    answer = Answer("owed", "jax/explicit", Done(), (y,))
    asked = msgspec.structs.replace(asked, check=("y",))
    assert find_missing_fields(asked, answer, PROMISES) == [("y", "offsets")]
    owed = with_seen(answer, "y", layout=Layout((), (("x", "sum"),)))
    assert find_missing_fields(asked, owed, PROMISES) == []


def test_a_recipe_shows_values_of_the_step_on_one_device_unless_it_is_a_dry_run() -> None:
    """Collectives are those of the program."""
    asked = Question("r", Mesh((("tp", 2),), (0, 1)), recipe=Recipe("mlp-tp"))
    fields = required_fields(asked, "torch", TORCH)
    assert {*fields["plain/out"]} == {"dtype", "full"}
    assert {*fields["out"]} == {"dtype", "layout", "shards", "full", "offsets"}
    assert fields[""] == ("program",)
    dry = required_fields(msgspec.structs.replace(asked, mode="dry run"), "torch", TORCH)
    assert "plain/out" not in dry
    assert {*dry["out"]} == {"dtype", "layout", "local"}


def test_every_field_is_one_of_an_answer_or_of_what_it_shows() -> None:
    """So that none is asked for that no answer can have."""
    assert {*get_args(Field)} - {"program"} <= {*Observed.__struct_fields__}
    assert "program" in Answer.__struct_fields__
    for promise in (*TORCH.values(), *PROMISES.values()):
        assert {*promise.unless_used, *promise.unless_partial} <= {*promise.real}
        assert "full" not in promise.dry_run


def test_a_live_route_that_leaves_offsets_out_is_noticed(tmp_path: Path) -> None:
    """Its hello promised them."""
    live = Live(tmp_path / "printed", "tests.toys.no_offsets_torch")
    try:
        answer = live.ask(SIMPLE)
    finally:
        live.close()
    assert live.hello is not None
    said = live.hello.promises  # type: ignore[union-attr]
    assert find_missing_fields(SIMPLE, answer, said) == [("x", "offsets"), ("y", "offsets")]


# What follows from shards.


def test_addends_of_plans_join_to_the_right_value() -> None:
    """Of every input and result that the routes under shard_map show without a global value.

    Those of answers that ended well are counted.
    """
    read = record("jax-0.10.2")
    counts: Counter[str] = Counter()
    for one in questions().values():
        if one.mode == "dry run" or one.id not in read.lines:
            continue
        on, inputs = meshes_of_tensors(one), {given.name for given in one.inputs}
        for answer in read.stored_answers(one.id):
            for seen in answer.seen if answer.subject.startswith("jax/shard_map") else ():
                if not seen.full and seen.name in on:
                    whole = global_value(Case(one), seen)
                    assert whole == (pack(evaluate(one)[seen.name]),), (one.id, seen.name)
                    if answer.end == Done():
                        counts["inputs" if seen.name in inputs else "results"] += 1
    assert counts == {"inputs": 381, "results": 330}


def test_what_does_not_say_how_it_joins_is_not_joined() -> None:
    """A layout of its own kind, and a shard that is absent; what is whole already stays."""
    shards = tuple(pack(np.array([value], np.float32)) for value in range(4))
    given = layout("S(0)", LINE, 1)
    y = Observed("y", "float32", (4,), given, shards)
    case = Case(Question("q", LINE, (Input("y", (4,), "float32", given),)))

    def joined(seen: Observed) -> object:
        return global_value(case, seen)

    assert joined(y) == (pack(np.arange(4, dtype=np.float32)),)
    replace = msgspec.structs.replace
    assert joined(replace(y, layout=Foreign("[S(0)]"))) is None
    assert joined(replace(y, layout=None)) is None
    assert joined(replace(y, shards=(*shards[:3], None))) is None
    assert joined(replace(y, shards=None)) is None
    whole = (pack(np.zeros(4)),)
    assert joined(replace(y, full=whole)) == whole
    owed = replace(y, shape=(1,), layout=layout("P(max)", LINE, 1))
    assert joined(owed) == (pack(np.array([3], np.float32)),)


def test_a_promise_is_read_from_what_says_none() -> None:
    """A header or hello from before there were any."""
    assert msgspec.json.decode(b"{}", type=Promise) == Promise()
