"""Would a dry run notice a mistake? A right dry run, and wrong ones made on purpose from it.

Knows no framework, and makes no value. As `tests.mistakes`, of answers without data.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from adapters.answer import Answer, Collective, Done, Observed
from adapters.reference.meshes import observe as observe_meshes
from cases.arrays import numpy_dtype, pack, unpack
from cases.layout import are_equivalent, largest_shard
from cases.ledger import Aspect
from cases.model import Case, Layout
from suites.collectives import implied_by_redistribution, implied_by_step
from suites.tensors import mesh_names, mesh_of, value_aspect
from suites.truth import Truth
from tests.mistakes import Mistake, lowered


def right_answer(case: Case, right: Truth, subject: str) -> Answer:
    """What a framework would plan that does exactly what is implied."""
    question = case.question
    steps = {step.result: step for step in question.steps}
    seen: dict[str, Observed] = {}
    shown = {*question.check, *(given.name for given in question.inputs)}
    for name, typed in right.typed.items():
        mesh, whole = mesh_of(case, name), Layout(((),) * len(typed.shape))
        layout = right.layouts[name] or whole
        itemsize = int(np.dtype(numpy_dtype(typed.dtype)).itemsize)
        observed = Observed(
            name, typed.dtype, typed.shape, layout, local=largest_shard(mesh, layout, typed.shape),
            full_collectives=implied_by_redistribution(
                mesh, layout, whole, typed.shape, itemsize
            ).implied,
        )  # fmt: skip
        if name in steps:
            names = steps[name].operands
            by = implied_by_step(mesh, steps[name], [seen[arg] for arg in names], observed)
            # Between results that are not shown, nobody can say what was implied.
            told = by is not None and shown.issuperset(names)
            fired = lowered(subject, by.implied) if by is not None and told else None
            observed = msgspec.structs.replace(observed, collectives=fired)
        seen[name] = observed
    seen |= {observed.name: observed for observed in observe_meshes(question)}
    said = tuple(one for name, one in seen.items() if name.partition("/")[0] in question.check)
    return Answer(question.id, subject, Done(), said)


def mistakes(case: Case, answer: Answer) -> Iterator[Mistake]:
    """A shard, a layout, a shape or a count that is wrong, each of every result."""
    for index, seen in enumerate(answer.seen):
        for name, aspects, changed in _wrong(case, seen):
            if changed != seen:
                all_ = (*answer.seen[:index], changed, *answer.seen[index + 1 :])
                yield Mistake(
                    f"{name} in {seen.name}", aspects, msgspec.structs.replace(answer, seen=all_)
                )


_Wrong = tuple[str, frozenset[Aspect], Observed]


def _wrong(case: Case, seen: Observed) -> Iterator[_Wrong]:
    mesh = mesh_of(case, seen.name)
    if seen.shards is not None and seen.name.partition("/")[0] in mesh_names(case):
        first, *others = seen.shards
        assert first is not None
        grids = (pack(unpack(first) + 1), *others)
        yield "another device in a mesh", frozenset({"meshes"}), _with(seen, shards=grids)
        return
    if seen.local:
        small = (*seen.local[:-1], seen.local[-1] + 1)
        yield "a shard too large", frozenset({"soundness"}), _with(seen, local=small)
        wide = (*seen.shape[:-1], seen.shape[-1] + 1)
        yield (
            "another global shape",
            frozenset({value_aspect(case, seen.name)}),
            _with(seen, shape=wide),
        )
    whole = Layout(((),) * len(seen.shape))
    if isinstance(seen.layout, Layout) and not are_equivalent(mesh, whole, seen.layout, seen.shape):
        claim = _with(seen, layout=whole)
        yield "everything replicated", frozenset({"soundness", "layout"}), claim
    fired = seen.collectives
    if fired is not None:
        axis, size = next((axis, size) for axis, size in mesh.axes if size > 1)
        more = Collective("all-gather", (axis,), size, 4)
        counts: frozenset[Aspect] = frozenset({"collectives"})
        yield "a collective too many", counts, _with(seen, collectives=(*fired, more))
        yield "a collective too few", counts, _with(seen, collectives=fired[:-1])


def _with(seen: Observed, **fields: object) -> Observed:
    return msgspec.structs.replace(seen, **fields)
