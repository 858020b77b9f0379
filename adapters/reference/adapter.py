"""What is the right answer? The reference, in the form that frameworks answer in.

Global values come from NumPy, layouts from what the question asks for or from a clear rule,
shards from index arithmetic. Where a layout is the framework's to choose, it has none.
"""

from __future__ import annotations

from adapters.answer import Answer, Done, Observed
from adapters.reference.rules import propagate
from adapters.reference.values import cut, evaluate
from cases.arrays import pack
from cases.layout import offset, ranges
from cases.model import Layout, Question


def layouts(question: Question) -> dict[str, Layout | None]:
    """The layout of every input and result, None where the framework is free to choose."""
    values = evaluate(question)
    known: dict[str, Layout | None] = {given.name: given.layout for given in question.inputs}
    for step in question.steps:
        names = [arg for arg in step.args if isinstance(arg, str)]
        operands = [layout for name in names if (layout := known[name]) is not None]
        known[step.result] = step.to
        if step.to is None and len(operands) == len(names):
            shapes = tuple(values[name].shape for name in names)
            known[step.result] = propagate(question.mesh, step, shapes, tuple(operands))
    return known


def observe(question: Question) -> Answer:
    """The reference's answer: every input and result, checked or not."""
    known = layouts(question)
    seen = []
    for name, value in evaluate(question).items():
        mesh = next((i.mesh for i in question.inputs if i.name == name and i.mesh), question.mesh)
        layout = known[name]
        shards = offsets = None
        if layout is not None:
            offsets = tuple(map(offset, ranges(mesh, layout, value.shape)))
            if not layout.partial:
                shards = tuple(pack(shard) for shard in cut(mesh, layout, value))
        seen.append(
            Observed(name, value.dtype.name, value.shape, layout, shards, offsets, (pack(value),))
        )
    return Answer(question.id, "reference", Done(), tuple(seen))
