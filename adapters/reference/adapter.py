"""What is the right answer to a question? It has the form of a framework's answer.

NumPy computes global values. A layout is the requested one, or comes from a clear rule. Shards come
from index arithmetic. If the framework is free to choose a layout, the answer has none.
"""

from __future__ import annotations

from adapters.answer import Answer, Done, Observed
from adapters.reference.evaluate import cut_shards, evaluate
from adapters.reference.propagation import propagate
from cases.arrays import pack
from cases.layout import index_ranges, offset
from cases.mesh_derivation import meshes_of_tensors
from cases.model import Layout, Question
from cases.program import TensorType, infer_types


def global_types(question: Question, framework: str = "") -> dict[str, TensorType]:
    """The global shape and dtype of every input and result. A dry run computes no values.

    ``framework``: use the dtypes that this framework defines.
    """
    if question.mode == "dry run":
        return infer_types(question, framework)
    values = evaluate(question, framework)
    return {name: TensorType(one.shape, one.dtype.name) for name, one in values.items()}


def known_layouts(question: Question) -> dict[str, Layout | None]:
    """The layout of every input and result. None if the framework is free to choose."""
    known_of, on = global_types(question), meshes_of_tensors(question)
    known: dict[str, Layout | None] = {given.name: given.layout for given in question.inputs}
    for step in question.steps:
        names = step.operands
        operands = [layout for name in names if (layout := known[name]) is not None]
        known[step.result] = step.to
        alone = all(on[name] == on[step.result] for name in names)
        if step.to is None and alone and len(operands) == len(names):
            sizes = tuple(known_of[name].shape for name in names)
            known[step.result] = propagate(on[step.result], step, sizes, tuple(operands))
    return known


def observe(question: Question, framework: str = "") -> Answer:
    """The answer of the reference with every input and result, even those not checked.

    ``framework``: use the meanings that this framework defines.
    """
    known, on = known_layouts(question), meshes_of_tensors(question)
    seen = []
    for name, value in evaluate(question, framework).items():
        mesh, layout = on[name], known[name]
        shards = offsets = None
        if layout is not None:
            offsets = tuple(map(offset, index_ranges(mesh, layout, value.shape)))
            if not layout.partial:
                shards = tuple(pack(shard) for shard in cut_shards(mesh, layout, value))
        seen.append(
            Observed(name, value.dtype.name, value.shape, layout, shards, offsets, (pack(value),))
        )
    return Answer(question.id, "reference", Done(), tuple(seen))
