"""Which ops can a program use, and how does each framework spell them?

The page shows the lines that the adapters run for one sample of each op.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from adapters.jax_xla import source_lines as jax_lines
from adapters.torch_dtensor import source_lines as torch_lines
from adapters.unsupported import CannotAnswer
from cases.catalogue.operators import ONE, arguments, operands, tensors
from cases.catalogue.samples import SAMPLES
from cases.model import Layout, Question, Step
from cases.ops import OPS, Op
from cases.program import TensorType, infer_types
from reports.templates import DOCS, code, render
from suites.failure import format_step

PAGE = DOCS / "vocabulary.md"


def page() -> str:
    """The page, in Markdown."""
    families = []
    for name in dict.fromkeys(op.family for op in OPS.values()):
        rows = [_row(op) for op in OPS.values() if op.family == name]
        families.append({"name": name, "rows": rows, "lines": _sample_lines(name)})
    return render(PAGE.name, count=len(OPS), families=families, meanings=_framework_meanings())


def _framework_meanings() -> dict[str, list[str]]:
    """Each meaning that a framework documents of its own, with the ops that have it."""
    found: dict[str, list[str]] = {}
    for op in OPS.values():
        for framework, own in op.apart.items():
            text = f"{framework}: {own.why} ([documentation]({own.link}))"
            found.setdefault(text, []).append(op.name)
    return found


def signature(op: Op) -> str:
    """``take(x, i, axis=)``; what may be left out in brackets."""
    words = [*op.args, *(f"[{name}]" for name in op.more)]
    words += [f"{name}=" for name in op.required] + [f"[{name}=]" for name in op.optional]
    if op.places:
        words.append("placements= or spec=")
    return f"{op.name}({', '.join(words)})"


def _row(op: Op) -> tuple[str, ...]:
    exact = "yes" if op.whole else f"{op.roundings} roundings: {op.why}"
    if op.own:
        exact = "each framework's own numbers"
    names = (*op.args, *op.more)
    grads = ", ".join(names[at] for at in op.grads)
    rule = "yes" if op.labels is not None else ""
    return code(signature(op)), exact, rule, grads


def _sample_lines(family: str) -> Iterator[str]:
    done = set()
    for sample in (one for samples in SAMPLES.values() for one in samples):
        if OPS[sample.op].family != family or sample.op in done:
            continue
        done.add(sample.op)
        inputs = operands(sample, ONE, tuple(("R",) for _ in tensors(sample)))
        step = Step("r", sample.op, arguments(sample), sample.params)
        yield from _spelling_lines(Question(sample.name, ONE, inputs, (step,), ("r",)))
    for step in _OTHER_STEPS:
        if OPS[step.op].family == family:
            yield from _spelling_lines(Question(step.op, ONE, _X, (step,), ("r",)))


_ROWS = Layout((("x",), ()))
_X = operands(SAMPLES["pointwise"][0], ONE, (("R",), ("R",)))[:1]
_OTHER_STEPS = (
    Step("r", "redistribute", ("x",), {}, _ROWS),
    Step("r", "identity", ("x",)),
    Step("r", "arange", (), {"n": 8}, Layout((("x",),))),
    Step("r", "full", (), {"shape": [8, 4], "value": 2.5}, _ROWS),
    Step("r", "random_uniform", (), {"shape": [8, 4], "seed": 0}, _ROWS),
    Step("r", "random_normal", (), {"shape": [8, 4], "seed": 0}, _ROWS),
    Step("r", "random_uniform", (), {"shape": [8, 4], "seed": 0, "whole": True}, _ROWS),
    Step("r", "inplace_uniform", ("x",), {"seed": 0}, _ROWS),
    Step("r", "inplace_normal", ("x",), {"seed": 0, "draw": 1}, _ROWS),
    Step("r", "inplace_uniform", ("x",), {"seed": 0, "distinct": ["x"]}, _ROWS),
    Step("r", "dropout", ("x",), {"p": 0.5, "seed": 0}),
    Step("r", "to_local", ("x",)),
    Step("r", "from_local", ("x",), {}, _ROWS),
    Step("r", "full_tensor", ("x",)),
    Step("r", "distribute", ("x",), {}, _ROWS),
    Step("r", "map_shards", ("x",), {"scale": 2}, _ROWS),
    Step("r", "item", ("x",)),
)


def _spelling_lines(question: Question) -> Iterator[str]:
    step = question.steps[0]
    # Without the requested layout, which both lines have.
    yield f"# {format_step(msgspec.structs.replace(step, to=None), question.mesh)}"

    def known() -> dict[str, TensorType]:
        return infer_types(question)

    try:
        source = torch_lines.step_source(step, question.mesh, "mesh", known)
        yield f"{step.result} = {source}  # torch"
    except CannotAnswer as error:
        yield f"# torch: {error}"
    try:
        (line, *_) = jax_lines.step_lines(question, step, "jit")
        yield f"{line}  # jax"
    except CannotAnswer as error:
        yield f"# jax: {error}"
