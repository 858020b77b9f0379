"""Did a training step of a recipe come out right, and at the cost that its plan has?

Values against NumPy's, gradients against the same framework's own unsharded step, that step
against the other framework's and against differences; layouts against the plan; collectives,
pass by pass, against the contract. Knows no ledger and no adapter.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from adapters.answer import Answer, Done, Observed, Unsupported
from adapters.reference.gradient import ERROR
from adapters.reference.recipes import slopes
from adapters.reference.values import cut
from cases.arrays import Array, pack, unpack
from cases.layout import largest, local_shape, ranges, same
from cases.model import Case, Layout, Mesh
from cases.recipes import row_of, sizes_of
from cases.recipes.layouts import layouts, observed
from suites import aspects, plans
from suites.contracts import collectives, counts
from suites.truth import TRAINED, Truth
from suites.values import difference, show
from suites.verdict import Aspect, Finding, agree, not_comparable

# What the names of an unsharded step begin with.
PLAIN = "plain/"


def alone(case: Case, answer: Answer, right: Truth) -> list[Finding]:
    """What an answer about a recipe gives rise to by itself, before the ledger has its say."""
    if isinstance(answer.end, Unsupported):
        return [not_comparable(None, "global", f"unsupported: {answer.end.why}")]
    own = _sharded(answer)
    known = tuple(seen for seen in answer.seen if seen.name in right.values)
    planned = case.question.mode == "plan"
    found: list[Finding] = (plans if planned else aspects).soundness(case, own, right)
    if planned:
        found += plans.global_(case, own, right)
    else:
        found += aspects.global_(case, msgspec.structs.replace(answer, seen=known), right)
    found += _absent(case, answer)
    if not planned and isinstance(answer.end, Done):
        found += _steps(case, answer) + _differences(case, answer)
    found += aspects.stated(case, _stating(case, own))
    found += _layouts(case, own.seen)
    found += collectives(case, answer)
    found += counts(case, answer)
    return found


def beside(case: Case, answer: Answer, torch: Answer, right: Truth) -> list[Finding]:
    """What an answer about a recipe gives rise to, held against that of torch."""
    if isinstance(answer.end, Unsupported) or not answer.seen:
        return []
    own, theirs = _sharded(answer), _sharded(torch)
    if case.question.mode == "plan":
        found = plans.shards(case, own, theirs)
    else:
        found = aspects.shards(case, own, theirs, right, _doubt(case, torch))
    return found + aspects.layout(case, own, theirs) + _unsharded(answer, torch)


def _sharded(answer: Answer) -> Answer:
    """An answer without its unsharded step."""
    sharded = tuple(seen for seen in answer.seen if not seen.name.startswith(PLAIN))
    return msgspec.structs.replace(answer, seen=sharded)


def _doubt(case: Case, torch: Answer) -> frozenset[str | None]:
    """Where torch is wrong itself: nothing to hold another against."""
    steps = _steps(case, torch) if isinstance(torch.end, Done) else []
    return frozenset(one.step for one in steps if one.verdict == "divergence")


def _absent(case: Case, answer: Answer) -> list[Finding]:
    """What a step that came to its end does not show, of all that it should."""
    if not isinstance(answer.end, Done):
        return []
    seen = {one.name for one in answer.seen}
    return [
        Finding(name, _aspect(name), "reference", "divergence", "wrong value", "to see it",
                "nothing: it is not there")
        for name in case.question.check
        if name not in seen and not (case.question.mode == "plan" and name.startswith(PLAIN))
    ]  # fmt: skip


def _stating(case: Case, answer: Answer) -> Answer:
    """Only what the case itself states something of."""
    said = case.expectation
    names = {*said.shards, *said.offsets, *said.layouts}
    return msgspec.structs.replace(
        answer, seen=tuple(seen for seen in answer.seen if seen.name in names)
    )


def _aspect(name: str) -> Aspect:
    return "gradients" if "grad/" in name else "global"


def _steps(case: Case, answer: Answer) -> list[Finding]:
    """Gradients and new parameters, against those of the framework's own unsharded step.

    Of a tensor that has no global value, such as a parameter that no plan took up, the shards:
    they have to be what the plan deals out.
    """
    seen = {one.name: one for one in answer.seen}
    row, question = row_of(case.question), case.question
    placed = layouts(row, sizes_of(question), question.mesh)
    found = []
    for name in observed(row):
        if not name.startswith(("grad/", "new/")):
            continue
        whole, one = seen.get(PLAIN + name), seen.get(name)
        if whole is None or not whole.full:
            found.append(not_comparable(name, _aspect(name), "no unsharded step"))
            continue
        if one is None:
            continue
        parts: list[tuple[str, Array, Array]] = []
        if one.full:
            parts.append(("", whole.full[0], one.full[0]))
        else:
            dealt = cut(question.mesh, placed[name], unpack(whole.full[0]))
            parts += [
                (f"{aspects.place(question.mesh, p)}: ", pack(wanted), got)
                for p, (wanted, got) in enumerate(zip(dealt, one.shards or ()))
                if got is not None
            ]
        found.append(_step(name, answer.subject, parts))
    return found


def _step(name: str, subject: str, parts: list[tuple[str, Array, Array]]) -> Finding:
    """The first part that is wrong; of each, where it is, what is wanted, and what is there."""
    for where, wanted, got in parts:
        if off := difference(wanted, got, TRAINED):
            return Finding(
                name, _aspect(name), "reference", "divergence", "wrong value",
                f"{show(wanted)}, of {subject} unsharded", show(got), "", f"{where}{off}",
            )  # fmt: skip
    if not parts:
        return not_comparable(name, _aspect(name), "neither a global value nor shards")
    return agree(name, _aspect(name))


def _differences(case: Case, answer: Answer) -> list[Finding]:
    """Elements of the unsharded step's gradients, against differences of the NumPy loss."""
    whole = {seen.name: seen.full for seen in answer.seen}
    found = []
    for name, sampled in slopes(case.question).items():
        full = whole.get(PLAIN + name)
        if not full:
            continue
        got = unpack(full[0])
        # Of NaN nothing is true.
        off = [i for i, slope in sampled.items() if not abs(float(got[i]) - slope) <= ERROR]
        if off:
            texts = f"{sampled[off[0]]:.12g} at {list(off[0])}", f"{float(got[off[0]]):.12g}"
            why = f"{len(off)} of {len(sampled)} elements tried are not the slope of the loss"
            found.append(
                Finding(PLAIN + name, "gradients", "reference", "divergence", "wrong value",
                        *texts, why)
            )  # fmt: skip
        else:
            found.append(agree(PLAIN + name, "gradients"))
    return found


def _unsharded(answer: Answer, torch: Answer) -> list[Finding]:
    """Two frameworks' unsharded steps, against one another."""
    theirs = {seen.name: seen.full for seen in torch.seen}
    twice = aspects.twice(TRAINED)
    found = []
    for seen in answer.seen:
        wanted = theirs.get(seen.name)
        if not seen.name.startswith(PLAIN) or not seen.full or not wanted:
            continue
        aspect = _aspect(seen.name)
        if off := difference(wanted[0], seen.full[0], twice):
            found.append(
                Finding(seen.name, aspect, torch.subject, "divergence", "wrong value",
                        show(wanted[0]), show(seen.full[0]), "the unsharded steps differ", off)
            )  # fmt: skip
        else:
            found.append(agree(seen.name, aspect, torch.subject))
    return found


def _unsaid(mesh: Mesh, seen: Observed, wanted: Layout) -> Finding:
    """Of what reports no layout: the shapes of its shards have to be those of the plan."""
    held = [local_shape(one) for one in ranges(mesh, wanted, seen.shape)]
    got = [None if one is None else one.shape for one in seen.shards or ()]
    if seen.local is not None:
        held, got = [largest(mesh, wanted, seen.shape)], [seen.local]
    for right, one in zip(held, got):
        if one is not None and one != right:
            texts = f"{aspects.said(wanted, mesh)}, local shape {list(right)}", f"{list(one)}"
            return Finding(seen.name, "layout", "reference", "divergence",
                           "layout: not as planned", *texts)  # fmt: skip
    return not_comparable(seen.name, "layout", "no layout reported")


def _layouts(case: Case, sharded: Iterable[Observed]) -> list[Finding]:
    """Parameters, gradients, new parameters and the result, against the plan."""
    question = case.question
    mesh, placed = question.mesh, layouts(row_of(question), sizes_of(question), question.mesh)
    found = []
    for seen in sharded:
        wanted = placed.get(seen.name)
        if wanted is None:
            continue
        if seen.layout is None:
            found.append(_unsaid(mesh, seen, wanted))
        elif isinstance(seen.layout, Layout) and same(mesh, wanted, seen.layout, seen.shape):
            found.append(agree(seen.name, "layout"))
        else:
            texts = aspects.said(wanted, mesh), aspects.said(seen.layout, mesh)
            found.append(
                Finding(seen.name, "layout", "reference", "divergence", "layout: not as planned",
                        *texts)
            )  # fmt: skip
    return found
