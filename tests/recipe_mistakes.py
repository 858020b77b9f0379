"""Would a recipe notice a mistake? A right answer, and the wrong ones that plans go wrong by.

Gradients of the right answer are the reference's differences, every element. Knows no framework.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from adapters.answer import Answer, Collective, Done, Observed
from adapters.reference import recipes
from adapters.reference.evaluate import cut_shards
from adapters.reference.gradient import gradient
from cases.arrays import pack, unpack
from cases.layout import canonical, index_ranges, largest_shard, offset
from cases.model import Case, Layout, Mesh
from cases.recipes.parameter_values import LEARNING_RATE
from suites.contracts import as_collective, contract_terms
from suites.truth import Truth
from tests.mistakes import Mistake


@lru_cache(maxsize=256)
def _gradient(model: str, sizes: tuple[tuple[str, int], ...], dtype: str, name: str) -> Any:
    """The slopes of the loss by every element of a tensor, which takes seconds for small models."""
    return gradient(*recipes.loss_by_tensor(model, dict(sizes), dtype, name.removeprefix("grad/")))


def right_answer(case: Case, right: Truth, subject: str) -> Answer:
    """What a framework would answer that trains as the plan says."""
    question = case.question
    program = tuple(as_collective(question.mesh, one) for one in contract_terms(case))
    if question.mode == "dry run":
        return Answer(question.id, subject, Done(), tuple(_planned(case, right)), program)
    known = recipes.forward_values(question) | {
        name: _gradient(*recipes.model_key(question), name)
        for name in recipes.sample_gradients(question)
    }
    seen = []
    for name in question.check:
        base = name.removeprefix("plain/")
        if base.startswith("new/"):
            parameter = base.removeprefix("new/")
            value = known[parameter] - LEARNING_RATE * known[f"grad/{parameter}"]
        else:
            value = known[base]
        seen.append(_observed(name, np.asarray(value), question.mesh, right))
    return Answer(question.id, subject, Done(), tuple(seen), program)


def _planned(case: Case, right: Truth) -> Iterator[Observed]:
    """What a step without data shows: layouts, shapes and dtypes."""
    mesh = case.question.mesh
    for name, typed in right.typed.items():
        layout = right.layouts.get(name) or Layout(((),) * len(typed.shape))
        local = largest_shard(mesh, layout, typed.shape)
        yield Observed(name, typed.dtype, typed.shape, layout, local=local)


def _observed(name: str, value: NDArray[Any], mesh: Mesh, right: Truth) -> Observed:
    whole = (pack(value),)
    if name.startswith("plain/"):
        return Observed(name, value.dtype.name, value.shape, full=whole)
    layout = right.layouts.get(name) or Layout(((),) * value.ndim)
    return Observed(
        name, value.dtype.name, value.shape, layout,
        tuple(map(pack, cut_shards(mesh, layout, value))),
        tuple(map(offset, index_ranges(mesh, layout, value.shape))), whole,
    )  # fmt: skip


def mistakes(case: Case, answer: Answer) -> Iterator[Mistake]:
    """Wrong answers: a reduction left out, a gradient permuted or scaled, a wrong split dim."""
    mesh = case.question.mesh
    axis, size = mesh.axes[-1]
    for name in case.question.check:
        if name.startswith("grad/") and case.question.mode == "real":
            yield from _of_gradient(answer, answer[name], size, mesh)
    for seen in answer.seen:
        if not isinstance(seen.layout, Layout) or not canonical(mesh, seen.layout).dims[:1]:
            continue
        other = Layout(tuple(reversed(seen.layout.dims)))
        if canonical(mesh, other) != canonical(mesh, seen.layout) and "/" not in seen.name:
            wrong = _with(answer, msgspec.structs.replace(seen, layout=other))
            yield Mistake(f"wrong split dim of {seen.name}", frozenset({"layout"}), wrong)
    assert answer.program is not None
    for place, one in enumerate(answer.program):
        less = (*answer.program[:place], *answer.program[place + 1 :])
        spare = [due for due in contract_terms(case) if due.term.spare]
        if not any(as_collective(mesh, due) == one for due in spare):
            wrong = msgspec.structs.replace(answer, program=less)
            yield Mistake(f"no {one.kind} in {one.pass_}", frozenset({"collectives"}), wrong)
    for pass_ in ("forward", "backward", "update"):
        more = Collective("all-gather", (axis,), size, 8, pass_)
        wrong = msgspec.structs.replace(answer, program=(*answer.program, more))
        yield Mistake(f"one all-gather more in {pass_}", frozenset({"collectives"}), wrong)


def _of_gradient(answer: Answer, seen: Observed, size: int, mesh: Mesh) -> Iterator[Mistake]:
    layout = seen.layout
    assert isinstance(layout, Layout)
    value = unpack(seen.full[0])
    for name, other in (("doubled", value * 2), ("averaged once more", value / size)):
        parts = tuple(map(pack, cut_shards(mesh, layout, other)))
        wrong = msgspec.structs.replace(seen, full=(pack(other),), shards=parts)
        yield Mistake(f"{seen.name} {name}", frozenset({"gradients"}), _with(answer, wrong))
    shards = seen.shards or ()
    moved = (*shards[1:], *shards[:1])
    if moved != shards:
        wrong = msgspec.structs.replace(seen, shards=moved)
        yield Mistake(f"{seen.name} permuted", frozenset({"soundness"}), _with(answer, wrong))
    elif len(shards) > 1:
        # Replicas of which one was not reduced: it has its own addend only.
        own = pack(value / 2)
        wrong = msgspec.structs.replace(seen, shards=(own, *shards[1:]))
        yield Mistake(f"{seen.name} not reduced", frozenset({"soundness"}), _with(answer, wrong))


def _with(answer: Answer, wrong: Observed) -> Answer:
    seen = tuple(wrong if one.name == wrong.name else one for one in answer.seen)
    return msgspec.structs.replace(answer, seen=seen)
