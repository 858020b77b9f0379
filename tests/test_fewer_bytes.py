"""Does a framework that is right ever move less than the reference says that an op implies?

Then the op's rule lacks something that devices can do by themselves, and accuses wrongly.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import msgspec
import pytest

from adapters import record
from adapters.answer import Answer, Collective, Done, Observed, received_bytes
from adapters.record import Record
from adapters.registry import lowerings_of
from cases.catalogue import FAMILIES, family
from cases.model import Case, Layout, Step
from cases.ops import OPS
from cases.ops.op import Labels, Params, Shape
from suites.array_difference import difference
from suites.collectives import ImpliedCollectives, explain_by_lowerings, implied_by_step
from suites.record_index import find_records
from suites.sources import RECORDS
from suites.tensors import mesh_of
from suites.truth import truth
from suites.wording import format_collectives

# A change of layout implies the algebra's moves, and less is free to whoever finds it.
MOVES = ("redistribute", "identity", "grad")
# What may move less than is implied, by the kinds of its collectives, and why.
EXCEPTIONS = {
    "collective-permute": "the result is moved from one layout to another by whole shards, which "
    "is a change of layout: the algebra knows no permute",
}

Found = tuple[Case, Answer, Step, Observed, ImpliedCollectives]


@cache
def catalogue() -> dict[str, Case]:
    """The cases of programs, by id."""
    return {
        case.id: case
        for name in FAMILIES
        for case in family(name)
        if case.question.recipe is None and case.question.mode != "dry run"
    }


@cache
def newest() -> tuple[Record, ...]:
    """The records of the newest two releases of each framework."""
    paths = find_records(RECORDS)
    names = dict(paths)
    return tuple(
        record.load(path) for name in names for path in [p for n, p in paths if n == name][-2:]
    )


def _operand(case: Case, seen: dict[str, Observed], name: str) -> Observed | None:
    """An operand as reported, or an input as the question places it."""
    if name in seen:
        return seen[name]
    for given in case.question.inputs:
        if given.name == name:
            return Observed(name, given.dtype, given.shape, given.layout)
    return None


def measured(records: tuple[Record, ...], ops: frozenset[str] | None = None) -> Iterator[Found]:
    """Every result of an op that a rule says something of, with what that implies."""
    known: dict[object, ImpliedCollectives | None] = {}
    for one in records:
        for id in one.lines:
            case = catalogue().get(id)
            if case is None or record.digest_question(case.question) != one.lines[id].digest:
                continue
            steps = {step.result: step for step in case.question.steps if step.op not in MOVES}
            if not steps or (ops and not any(step.op in ops for step in steps.values())):
                continue
            for answer in one.stored_answers(id):
                seen = {observed.name: observed for observed in answer.seen}
                for name in steps.keys() & seen.keys() if isinstance(answer.end, Done) else ():
                    step, result = steps[name], seen[name]
                    args = step.operands
                    operands = [
                        operand
                        for arg in args
                        if (operand := _operand(case, seen, arg)) is not None
                    ]
                    mesh = mesh_of(case, name)
                    if (
                        result.collectives is None
                        or len(operands) < len(args)
                        or any(mesh_of(case, arg) != mesh for arg in args)
                    ):
                        continue
                    about = [(each.shape, each.dtype, each.layout) for each in (*operands, result)]
                    key = msgspec.json.encode((mesh, step, about))
                    if key not in known:
                        known[key] = implied_by_step(mesh, step, operands, result)
                    if (measure := known[key]) is not None:
                        yield case, answer, step, result, measure


def is_right(case: Case, answer: Answer, step: Step) -> bool:
    """Whether the result and the operands have right values, as far as there are any."""
    right = truth(case)
    seen = {observed.name: observed for observed in answer.seen}
    for name in (step.result, *(arg for arg in step.args if arg in seen)):
        assert isinstance(name, str)
        if name in right.own:
            continue
        if not seen[name].full or not isinstance(seen[name].layout, Layout):
            return False
        for value in seen[name].full:
            if difference(right.values[name], value, right.allowed[name]):
                return False
    return True


def less(found: Iterator[Found]) -> list[str]:
    """Those that fired fewer bytes and are right: a sentence each."""
    said = []
    for case, answer, step, result, measure in found:
        fired: tuple[Collective, ...] = result.collectives or ()
        if sum(map(received_bytes, fired)) >= sum(map(received_bytes, measure.implied)):
            continue
        mesh = mesh_of(case, step.result)
        # By a named lowering rule, such as one collective over two axes, it is the implied plan.
        if not explain_by_lowerings(
            mesh, fired, measure.implied, lowerings_of(answer.subject)
        ).plan:
            continue
        if fired and {one.kind for one in fired} <= EXCEPTIONS.keys():
            continue
        if is_right(case, answer, step):
            said.append(
                f"{case.id} {answer.subject}: {step.op} implies "
                f"{format_collectives(measure.implied)}, "
                f"but {format_collectives(fired)} did"
            )
    return said


def test_no_op_that_is_right_moves_less_than_implied() -> None:
    """In the newest two releases of each framework."""
    assert less(measured(newest())) == []


@pytest.mark.parametrize("op", ["any", "add", "repeat", "reshape"])
def test_a_rule_that_lacks_something_shows(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one local computation less, frameworks that do it are found to move less."""
    rule = OPS[op].labels
    assert rule is not None

    def lacking(shapes: tuple[Shape, ...], params: Params) -> Labels | None:
        named = rule(shapes, params)
        if named is None:
            return None
        operands, result = named
        return tuple(("",) * len(names) for names in operands), ("",) * len(result)

    monkeypatch.setitem(OPS, op, msgspec.structs.replace(OPS[op], labels=lacking))
    assert less(measured(newest(), frozenset({op})))
