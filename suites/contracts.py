"""Did a training step fire the collectives that its contract says? Pass by pass, byte for byte.

Named lowering rules rewrite what was counted into what is due. What no rule accounts for is missing
or extra, and is reported with its axis, its pass and its bytes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import msgspec
import numpy as np

from adapters.answer import Collective, Done
from adapters.reference.recipes import tokens_at_busiest_expert
from adapters.registry import Lowering, Lowerings, lowerings_of
from cases.arrays import numpy_dtype
from cases.ledger import RedistributionPlanKind
from cases.model import PASSES, Case, CollectiveKind, Mesh
from cases.recipes import recipe_of, sizes_of
from cases.recipes.contracts import ExpectedCollectives, expected_collectives
from suites.aspects import Context
from suites.collectives import MERGED_AXES, ONE_AXIS_AT_A_TIME, plan_kind_of_extra
from suites.observation import BrokenContract, Fired, WrongCount
from suites.verdict import Finding, agree, differs, not_comparable
from suites.wording import format_operand_bytes

# This rule is for recipes alone. Single steps have the others.
OTHER_GROUPING = Lowering(
    "tensors are grouped in another way",
    "the same bytes are moved in another number of collectives",
)

# In a pass: a kind with its axes of size > 1, and the bytes of all local operands together.
Key = tuple[CollectiveKind, frozenset[str]]
BytesByKey = Counter[Key]


class PassComparison(msgspec.Struct, frozen=True):
    """How the collectives of a pass relate to what is due.

    ``rules``: those that were needed. ``missing`` and ``extra``: what no rule accounts for.
    ``spared``: optional collectives that were not fired.
    """

    rules: tuple[Lowering, ...]
    missing: BytesByKey
    extra: BytesByKey
    spared: BytesByKey

    @property
    def plan(self) -> RedistributionPlanKind | None:
        """The kind of the other plan; None if it is the plan that is due."""
        if not self.missing and not self.extra:
            return None
        if not self.extra:
            return "fewer"
        return plan_kind_of_extra(kind for kind, _ in self.extra) if self.missing else "more"


def explain_pass(
    mesh: Mesh,
    lowerings: Lowerings,
    counted: Iterable[Collective],
    wanted: Iterable[ExpectedCollectives],
) -> PassComparison:
    """How the collectives counted in a pass follow from what is due in it.

    Lowering rules rewrite what is counted into what is due, byte for byte. No other rewriting is
    accepted.
    """
    counted, wanted = tuple(counted), tuple(wanted)
    extra, lacking = _bytes(mesh, counted), BytesByKey()
    spare = BytesByKey()
    for one in wanted:
        key = one.term.kind, _axes_larger_than_one(mesh, one.term.axes)
        if not one.term.spare:
            lacking[key] += one.bytes
    for key in list(lacking):
        _take(extra, lacking, key, key)
    number = sum(one.count for one in wanted if not one.term.spare)
    for one in wanted:
        # An optional collective is fired whole or not at all. Where it looks like one that is due,
        # as keys that a ring passes again look like their gradients, the values tell them apart.
        key = one.term.kind, _axes_larger_than_one(mesh, one.term.axes)
        if one.term.spare and extra[key] >= one.bytes:
            extra[key] -= one.bytes
            number += one.count
        elif one.term.spare:
            spare[key] += one.bytes
    rules: list[Lowering] = []
    _rewrite(mesh, lowerings, extra, lacking, rules)
    left = +lacking, +extra
    if (
        not any(left)
        and len([one for one in counted if _axes_larger_than_one(mesh, one.axes)]) != number
    ):
        rules.append(OTHER_GROUPING)
    return PassComparison(tuple(dict.fromkeys(rules)), *left, +spare)


def _axes_larger_than_one(mesh: Mesh, axes: Iterable[str]) -> frozenset[str]:
    return frozenset(axis for axis in axes if mesh[axis] > 1)


def _bytes(mesh: Mesh, counted: Iterable[Collective]) -> BytesByKey:
    found = BytesByKey()
    for one in counted:
        if not one.axes:
            found[one.kind, frozenset("?")] += one.bytes
        elif wide := _axes_larger_than_one(mesh, one.axes):
            found[one.kind, wide] += one.bytes
    return found


def _take(extra: BytesByKey, lacking: BytesByKey, have: Key, need: Key) -> int:
    """Settle what is lacking with what there is too much of; the number of bytes settled."""
    n = min(extra[have], lacking[need])
    extra[have] -= n
    lacking[need] -= n
    return n


def _rewrite(
    mesh: Mesh,
    lowerings: Lowerings,
    extra: BytesByKey,
    lacking: BytesByKey,
    rules: list[Lowering],
) -> None:
    for rule, implied, instead in lowerings:
        for kind, axes in [key for key in lacking if lacking[key] and key[0] == implied]:
            if _take(extra, lacking, (instead, axes), (kind, axes)):
                rules.append(rule)
            if (implied, instead) == ("reduce-scatter", "all-reduce"):
                _reduce_wider(mesh, rule, extra, lacking, axes, rules)
    for kind, axes in [key for key in lacking if lacking[key]]:
        parts = [(kind, frozenset({axis})) for axis in axes]
        n = min([lacking[kind, axes], *(extra[part] for part in parts)])
        if kind == "all-reduce" and len(parts) > 1 and n:
            lacking[kind, axes] -= n
            for part in parts:
                extra[part] -= n
            rules.append(ONE_AXIS_AT_A_TIME)


def _reduce_wider(
    mesh: Mesh,
    rule: Lowering,
    extra: BytesByKey,
    lacking: BytesByKey,
    axes: frozenset[str],
    rules: list[Lowering],
) -> None:
    """An all-reduce over more axes, then a slice, for a reduce-scatter and an all-reduce.

    The all-reduce may have been due before the reduce-scatter, on whole operands, or after it, on
    what the reduce-scatter leaves.
    """
    group = math.prod(mesh[axis] for axis in axes)
    for kind, wider in [key for key in extra if extra[key] and key[1] > axes]:
        if kind != "all-reduce":
            continue
        rest: Key = "all-reduce", wider - axes
        n = min(extra[kind, wider], lacking["reduce-scatter", axes])
        # It covers all that is due over the other axes, or else as much as fits.
        shares = [share for share in (1, group) if lacking[rest] * share >= n > 0]
        if shares:
            share = next((one for one in shares if lacking[rest] * one == n), shares[0])
            extra[kind, wider] -= n
            lacking["reduce-scatter", axes] -= n
            lacking[rest] -= n // share
            rules.extend((rule, MERGED_AXES))


def check_contract(context: Context) -> list[Finding]:
    """For each pass: did it fire what the recipe's contract says, or what the case states?"""
    case, answer = context.case, context.answer
    if answer.program is None or not isinstance(answer.end, Done):
        return []
    found, mesh, lowerings = [], case.question.mesh, lowerings_of(answer.subject)
    for name in PASSES:
        wanted = [one for one in contract_terms(case) if one.term.pass_ == name]
        counted = tuple(one for one in answer.program if one.pass_ == name)
        stated = case.expectation.counts.get(name) if answer.subject == "torch" else None
        if stated is not None and Counter(one.kind for one in counted) != Counter(stated):
            found.append(differs(name, "collectives", WrongCount(stated, counted)))
        elif any(one.in_loop for one in counted):
            why = "a loop body is counted once, however often it runs"
            found.append(not_comparable(name, "collectives", why))
        else:
            found.append(_compare_pass(mesh, lowerings, name, counted, wanted))
    return found


def contract_terms(case: Case) -> tuple[ExpectedCollectives, ...]:
    """The terms of a case's contract with their numbers."""
    question = case.question
    assert question.recipe is not None
    itemsize = int(np.dtype(numpy_dtype(question.recipe.dtype)).itemsize)
    row, sizes = recipe_of(question), sizes_of(question)
    return expected_collectives(
        row, sizes, question.mesh, itemsize, tokens_at_busiest_expert(question)
    )


def as_collective(mesh: Mesh, one: ExpectedCollectives) -> Collective:
    """What is due, as one collective with all its bytes."""
    group = math.prod(mesh[axis] for axis in one.term.axes)
    return Collective(one.term.kind, one.term.axes, group, one.bytes, one.term.pass_)


def _compare_pass(
    mesh: Mesh, lowerings: Lowerings, name: str, counted: Fired, wanted: list[ExpectedCollectives]
) -> Finding:
    explained = explain_pass(mesh, lowerings, counted, wanted)
    spared = _all_in_one(mesh, explained.spared)
    if explained.plan is not None:
        # An optional collective may be left out: the plan need not move its bytes.
        due = tuple(as_collective(mesh, one) for one in wanted)
        if spared:
            due = tuple(as_collective(mesh, one) for one in wanted if not one.term.spare)
        lacking, extra = (_all_in_one(mesh, some) for some in (explained.missing, explained.extra))
        observed = BrokenContract(explained.plan, due, counted, lacking, extra)
        return differs(name, "collectives", observed)
    why = "; ".join(f"{rule.name}: {rule.why}" for rule in explained.rules)
    if spared:
        left = f"the optional {format_operand_bytes(spared)} is left out"
        why = f"{left}; {why}" if why else left
    return agree(name, "collectives", why=why)


def _all_in_one(mesh: Mesh, some: BytesByKey) -> Fired:
    """Bytes by kind and axes, as one collective each."""
    found = []
    for (kind, axes), size in some.items():
        names = tuple(axis for axis in mesh.names if axis in axes)
        group = math.prod(mesh[axis] for axis in names) if names else mesh.size
        if size:
            found.append(Collective(kind, names, group, size))
    return tuple(found)
