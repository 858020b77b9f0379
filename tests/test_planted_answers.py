"""Is every answer that leaves something out, or says another thing, noticed? Planted one at a time.

Answers are the records', of every so many cases of the catalogue and of both frameworks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import numpy as np
import pytest

from adapters.answer import Answer, Crashed, Done, Hung, Observed, Refused
from cases.arrays import pack, unpack
from cases.catalogue import catalogue
from cases.dry_run import as_dry_run
from cases.model import Case, Layout
from reports.judged_catalogue import ledger
from reports.tell import recorded_answers, recorded_promises
from suites.frameworks_compared import compare_answers
from suites.judge import context_of_answer, judge
from suites.observation import Missing, WrongDtype
from suites.truth import nondeterministic, truth

# Every so many: enough that every family and every kind of ending is among them.
STEP = 29


def answered() -> Iterator[tuple[Case, Answer]]:
    """Cases with data and the answers that their records have."""
    for case in catalogue()[::STEP]:
        if case.question.mode == "real":
            for answer in recorded_answers(case).values():
                yield case, answer


ANSWERED = list(answered())
ENDED_WELL = [(case, one) for case, one in ANSWERED if isinstance(one.end, Done) and one.seen]


def bad(case: Case, answer: Answer, pin: Answer | None = None) -> list[str]:
    """The aspects of what fails, beside the record if there is one."""
    pins = None if pin is None else {answer.subject: pin}
    # Whether a refusal counts depends on the other routes of the framework.
    answers = recorded_answers(case) | {answer.subject: answer}
    found = judge(case, answers, ledger(), promises=recorded_promises(), pins=pins)
    return [
        one.aspect
        for one in found.verdicts
        if one.verdict == "divergence" and one.subject == answer.subject
    ]


def last(answer: Answer, **fields: object) -> Answer:
    """An answer with the last result changed."""
    *others, one = answer.seen
    return msgspec.structs.replace(answer, seen=(*others, msgspec.structs.replace(one, **fields)))


def shortened(answer: Answer, field: str) -> Answer:
    """An answer that shows one shard or offset of its last result too few."""
    shown = getattr(answer.seen[-1], field)
    return last(answer, **{field: shown[:-1]}) if shown else answer


def test_what_the_records_hold_passes() -> None:
    """So that what fails below fails by what was planted."""
    for case, answer in ANSWERED:
        assert bad(case, answer, answer) == [], case.id


LEFT_OUT: dict[str, Callable[[Answer], Answer]] = {
    "all shards": lambda answer: last(answer, shards=None),
    "all offsets": lambda answer: last(answer, offsets=None),
    "the last shard": lambda answer: shortened(answer, "shards"),
    "the last offset": lambda answer: shortened(answer, "offsets"),
    "the global value": lambda answer: last(answer, full=()),
    "the layout": lambda answer: last(answer, layout=None),
    "one result": lambda answer: msgspec.structs.replace(answer, seen=answer.seen[:-1]),
    "every result": lambda answer: msgspec.structs.replace(answer, seen=()),
}


def _due(case: Case, answer: Answer) -> bool:
    """Whether leaving it out leaves out something that the route promised."""
    of = context_of_answer(case, answer, truth(case), recorded_promises())
    return bool(of.missing)


@pytest.mark.parametrize("what", LEFT_OUT)
def test_what_is_left_out_is_missing(what: str) -> None:
    """Of every answer that ended well, with no record to hold it against."""
    tried = 0
    for case, answer in ENDED_WELL:
        planted = LEFT_OUT[what](answer)
        if planted == answer or not _due(case, planted):
            continue
        tried += 1
        found = judge(case, {answer.subject: planted}, (), promises=recorded_promises())
        missing = [one for one in found.findings if isinstance(one.observation, Missing)]
        assert missing, (case.id, answer.subject)
        assert all(one.severity == "wrong" for one in missing)
    assert tried > 40


@pytest.mark.parametrize("what", ["shards", "offsets"])
def test_what_a_case_states_and_no_route_promises_does_not_agree_unseen(what: str) -> None:
    """Shards or offsets that are stated, of a result that shows none."""
    tried = 0
    for case in catalogue():
        for name in getattr(case.expectation, what) if case.question.mode == "real" else ():
            for answer in recorded_answers(case).values():
                one = context_of_answer(case, answer, truth(case), {}).find(name)
                if one is None:
                    continue
                tried += 1
                seen = (msgspec.structs.replace(one, **{what: None}),)
                planted = msgspec.structs.replace(answer, seen=seen)
                found = judge(case, {answer.subject: planted}, ()).verdicts
                (line,) = (v for v in found if (v.aspect, v.against) == ("shards", "reference"))
                assert line.verdict == "not comparable", (case.id, answer.subject)
    assert tried > 5


@pytest.mark.parametrize("what", LEFT_OUT)
def test_what_is_left_out_differs_from_the_record(what: str) -> None:
    """Also where no route promises it."""
    for case, answer in ENDED_WELL:
        planted = LEFT_OUT[what](answer)
        if planted != answer:
            assert bad(case, planted, answer), (case.id, answer.subject)


def test_another_dtype_is_wrong() -> None:
    """Of a result whose dtype is known, whatever its values."""
    for case, answer in ENDED_WELL:
        one = answer.seen[-1]
        # A mesh, and what has random values, have no right dtype.
        if one.name in truth(case, answer.subject.partition("/")[0]).typed:
            other = "float64" if one.dtype != "float64" else "float32"
            planted = judge(case, {answer.subject: last(answer, dtype=other)}, ())
            seen = [found.observation for found in planted.findings]
            assert any(isinstance(found, WrongDtype) for found in seen), (case.id, answer.subject)


ENDS: dict[str, Callable[[Refused | Crashed | Hung], object]] = {
    "message": lambda end: msgspec.structs.replace(end, line="another thing went wrong"),
    "type": lambda end: msgspec.structs.replace(end, error="OSError"),
    "step": lambda end: msgspec.structs.replace(end, step="elsewhere"),
    "signal": lambda end: msgspec.structs.replace(end, how="SIGFPE"),
    "reason": lambda end: msgspec.structs.replace(end, why="no answer within 1 s"),
    "raised": lambda end: msgspec.structs.replace(end, raised="rank 7: OSError: no"),
}
FIELDS = {
    Refused: ("message", "type", "step"), Crashed: ("signal",), Hung: ("reason", "step", "raised"),
}  # fmt: skip


def test_another_end_than_the_known_one_fails() -> None:
    """Another message, type, step, signal or reason of a hang, under whatever cause."""
    tried = set()
    ended = [
        (case, one)
        for case in catalogue()[::7]
        if case.question.mode == "real"
        for one in recorded_answers(case).values()
        if isinstance(one.end, Refused | Crashed | Hung)
    ]
    crashes = [case for case in catalogue() if case.id.startswith("a2.b2-r.p-to-p")]
    ended += [(case, one) for case in crashes for one in recorded_answers(case).values()
              if isinstance(one.end, Crashed)]  # fmt: skip
    for case, answer in ended:
        assert isinstance(answer.end, Refused | Crashed | Hung)
        for field in FIELDS[type(answer.end)]:
            end = ENDS[field](answer.end)
            planted = msgspec.structs.replace(answer, end=end)
            assert bad(case, planted, answer), (case.id, answer.subject, field)
            tried.add(field)
    assert tried == {*ENDS}


def test_another_wrong_value_than_the_known_one_fails() -> None:
    """Of every known wrong value of the sample, one that is wrong in the same way and larger."""
    tried = 0
    for case, answer in ENDED_WELL:
        one = answer.seen[-1]
        if not one.full or not one.full[0].size or unpack(one.full[0]).dtype.kind == "b":
            continue
        if one.name in truth(case).own:
            continue
        value = unpack(one.full[0])
        planted = last(answer, full=(pack((value * 3 + 1).astype(value.dtype)),) * len(one.full))
        if np.isfinite(value.astype(np.complex128)).all():
            tried += 1
            assert bad(case, planted, answer), (case.id, answer.subject)
    assert tried > 100


def test_shards_of_two_frameworks_that_differ_are_told() -> None:
    """Where both report one layout, and each may be sound by itself."""
    (case,) = (one for one in catalogue() if one.id == "x4-s0-to-s1")
    answers, right = recorded_answers(case), truth(case)
    torch = context_of_answer(case, answers["torch"], right, {})

    def moved(seen: Observed) -> Observed:
        assert seen.shards is not None
        assert isinstance(seen.layout, Layout)
        shards = tuple(pack(unpack(shard) + 1) for shard in seen.shards if shard is not None)
        return msgspec.structs.replace(seen, shards=shards)

    jax = answers["jax/jit"]
    other = msgspec.structs.replace(jax, seen=tuple(map(moved, jax.seen)))
    for answer, wanted in ((jax, {None}), (other, {"wrong"})):
        found = compare_answers(context_of_answer(case, answer, right, {}), torch, frozenset())
        assert {one.severity for one in found if one.aspect == "shards"} == wanted


def trained() -> Iterator[tuple[Case, Answer]]:
    """The recipes with data, and what each framework's record answers."""
    for case in catalogue():
        if case.question.recipe is not None and case.question.mode == "real":
            for answer in recorded_answers(case).values():
                if isinstance(answer.end, Done):
                    yield case, answer


def test_a_training_step_that_trains_nothing_is_wrong() -> None:
    """Every new parameter is the old one, in the sharded step and in the unsharded one."""
    tried = 0
    for case, answer in trained():
        seen = {one.name: one for one in answer.seen}
        planted = tuple(
            msgspec.structs.replace(one, full=old.full, shards=old.shards)
            if "new/" in one.name and (old := seen.get(one.name.partition("new/")[2])) and old.full
            else one
            for one in answer.seen
        )
        if planted != answer.seen:
            tried += 1
            assert "global" in bad(case, msgspec.structs.replace(answer, seen=planted)), case.id
    assert tried > 20


def test_ranks_that_differ_in_the_unsharded_step_are_told() -> None:
    """Rank 0 is right and the others are not; or what they report differs."""
    tried = 0
    for case, answer in trained():
        one = next((one for one in answer.seen if one.name.startswith("plain/grad/")), None)
        if one is None or not one.full:
            continue
        tried += 1
        other = pack(unpack(one.full[0]) * 2)
        for fields in ({"full": (one.full[0], other)}, {"disagreements": ("rank 1 has no copy",)}):
            changed = msgspec.structs.replace(one, **fields)
            seen = tuple(changed if each is one else each for each in answer.seen)
            assert "soundness" in bad(case, msgspec.structs.replace(answer, seen=seen)), case.id
    assert tried > 20


def test_what_ranks_report_of_a_mesh_and_its_dtype_and_shape_are_judged() -> None:
    tried = 0
    for case in catalogue():
        meshes = {step.result for step in case.question.mesh_steps} & {*case.question.check}
        for answer in recorded_answers(case).values() if meshes else ():
            one = next((one for one in answer.seen if one.name in meshes), None)
            if one is None or not isinstance(answer.end, Done):
                continue
            tried += 1
            for fields in (
                {"disagreements": ("rank 1 has no copy",)},
                {"dtype": "float32"},
                {"shape": (*one.shape, 1)},
            ):
                changed = msgspec.structs.replace(one, **fields)
                seen = tuple(changed if each is one else each for each in answer.seen)
                planted = msgspec.structs.replace(answer, seen=seen)
                found = judge(case, {answer.subject: planted}, ())
                assert ("meshes", "wrong") in {(v.aspect, v.severity) for v in found.verdicts}
    assert tried > 20


def test_the_implied_collectives_with_more_bytes_are_costly() -> None:
    """A thousand times the bytes of each collective of a step."""
    tried = 0
    for case, answer in ENDED_WELL:
        for one in answer.seen:
            base = judge(case, {answer.subject: answer}, ())
            line = next(
                (v for v in base.verdicts if (v.step, v.aspect) == (one.name, "collectives")), None
            )
            if line is None or line.verdict != "agree" or line.severity or not one.collectives:
                continue
            if line.why:
                continue
            tried += 1
            more = tuple(msgspec.structs.replace(c, bytes=c.bytes * 1000) for c in one.collectives)
            changed = msgspec.structs.replace(one, collectives=more)
            seen = tuple(changed if each is one else each for each in answer.seen)
            planted = msgspec.structs.replace(answer, seen=seen)
            found = judge(case, {answer.subject: planted}, ())
            assert ("collectives", "costly") in {
                (v.aspect, v.severity) for v in found.verdicts if v.step == one.name
            }, case.id
    assert tried > 5


def record_lines(case: Case, answer: Answer, name: str, **fields: object) -> list[str]:
    """The verdicts beside its own record of an answer with another input or result ``name``."""
    seen = tuple(
        msgspec.structs.replace(one, **fields) if one.name == name else one for one in answer.seen
    )
    planted = msgspec.structs.replace(answer, seen=seen)
    found = judge(case, {answer.subject: planted}, (), pins={answer.subject: answer})
    return [one.verdict for one in found.verdicts if one.aspect == "record"]


def test_random_numbers_keep_their_shapes_and_the_devices_that_share_them() -> None:
    """Other numbers pass; one device with another shard, or no shards, do not."""
    tried = 0
    for case in catalogue():
        if case.question.mode != "real" or not nondeterministic(case):
            continue
        for answer in recorded_answers(case).values():
            one = next((one for one in answer.seen if one.name in nondeterministic(case)), None)
            if one is None or not one.shards or None in one.shards or len({*one.shards}) != 1:
                continue
            shard = one.shards[0]
            other = pack((unpack(shard).astype(np.float64) + 1).astype(unpack(shard).dtype))
            if len(one.shards) < 2 or other == shard:
                continue
            tried += 1
            others = (other,) * len(one.shards)
            assert record_lines(case, answer, one.name, shards=others) == [], case.id
            for shards in ((*one.shards[:-1], other), None):
                found = record_lines(case, answer, one.name, shards=shards)
                assert found == ["divergence"], case.id
    assert tried > 10


def without_data(answer: Answer) -> Answer:
    """The dry run that says what a recorded answer says."""
    seen = tuple(
        msgspec.structs.replace(one, shards=None, offsets=None, full=(), local=one.shards[0].shape)
        for one in answer.seen
        if one.shards and one.shards[0] is not None
    )
    return msgspec.structs.replace(answer, seen=seen)


def failing_dry_run(case: Case, answer: Answer, real: Answer) -> set[str]:
    """The aspects in which a dry run of a case fails, beside the run with data."""
    of = answer.subject
    found = judge(as_dry_run(case), {of: answer}, ledger(), real={of: real})
    return {one.aspect for one in found.verdicts if one.verdict == "divergence"}


def test_no_cause_excuses_a_dry_run_that_contradicts_its_record() -> None:
    """The run with data ends well: a crash of the dry run, and another layout, fail."""
    by_id = {case.id: case for case in catalogue()}
    for id in ("lesson-matmul-r-by-s1", "a2.b2-r.s0-to-r.s0"):
        case = by_id[id]
        real = recorded_answers(case)["jax/jit"]
        dry = without_data(real)
        assert failing_dry_run(case, dry, real) == set()
        crashed = msgspec.structs.replace(dry, end=Crashed("SIGFPE"), seen=())
        assert {"dry run", "ending"} <= failing_dry_run(case, crashed, real)
        whole = last(dry, layout=Layout(((), ())))
        assert "dry run" in failing_dry_run(case, whole, real)
    assert "layout" in failing_dry_run(case, whole, real)


def test_shards_without_a_reported_layout_are_not_said_to_lie_otherwise() -> None:
    """Of what a later step uses, jit reports no layout, so that nothing can differ."""
    (case,) = (case for case in catalogue() if case.id == "public/dtensor/T16")
    found = judge(case, recorded_answers(case), ledger())
    (line,) = (
        one
        for one in found.verdicts
        if (one.step, one.aspect, one.subject, one.against) == ("v", "shards", "jax/jit", "torch")
    )
    assert (line.verdict, line.why) == ("not comparable", "no layout reported")


def test_a_wrong_dry_run_of_one_framework_accuses_no_other() -> None:
    """With data the local shape of torch is wrong too, and judged there; that of JAX is right."""
    (case,) = (case for case in catalogue() if case.id == "conv1d-x4-s0-s0")
    real = recorded_answers(case)
    dry = {subject: without_data(real[subject]) for subject in ("torch", "jax/jit")}
    found = judge(as_dry_run(case), dry, ledger(), real=real).verdicts
    assert not [v for v in found if v.subject == "jax/jit" and v.verdict == "divergence"]
