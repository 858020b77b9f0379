"""What is right about a case? The case's own word, else the reference's, worked out once.

Never leaves the process that judges.
"""

from __future__ import annotations

import msgspec

from adapters.reference.adapter import observe
from adapters.reference.values import Undefined, evaluate
from cases.arrays import Array, unpack
from cases.errors import Where
from cases.model import Case, Layout, Tolerance
from cases.ops import OPS
from suites.values import difference, show, tolerance_for


class Truth(msgspec.Struct, frozen=True):
    """By name of input or result: the right value, how closely it must be met, the layout.

    A layout is None where it does not follow from the question. ``differing``: the reference's
    value, where the case states another. ``own``: what is made of random numbers, which are
    each framework's own, unless the case states it.
    """

    values: dict[str, Array]
    allowed: dict[str, Tolerance]
    layouts: dict[str, Layout | None]
    differing: dict[str, Array] = {}
    own: frozenset[str] = frozenset()

    def doubt(self, name: str) -> str:
        """Where the wanted value is the case's own word and the reference has another: which."""
        if name not in self.differing:
            return ""
        return f"wanted is the case's own word; the reference has {show(self.differing[name])}"


def check_defined(case: Case) -> None:
    """Refuses a case with a step that has no value, which shapes alone do not tell.

    Raises:
        BadInput: file, case, the step, and what is wrong with its values.
    """
    question = case.question
    if question.mode == "plan" or question.recipe is not None:
        return
    try:
        evaluate(question)
    except Undefined as error:
        step = next(one for one in question.steps if one.result == error.step)
        where = Where(case.file, case.id, ("program",))
        found = f"no value of {step.result} = {step.op}({', '.join(map(str, step.args))})"
        raise where.bad(found, f"values that {step.op} takes (NumPy: {error})") from None


def truth(case: Case) -> Truth:
    """The truth about a case."""
    answer = observe(case.question)
    values = {seen.name: seen.full[0] for seen in answer.seen}
    known = {name: unpack(value) for name, value in values.items()}
    allowed = {name: tolerance_for(case, name, known) for name in values}
    differing = {}
    for name, value in case.expectation.right.items():
        if difference(value, values[name], case.expectation.tolerance or allowed[name]):
            differing[name] = values[name]
        # A value that a case states is written in decimals: as close as the case says, no closer.
        values[name] = value
        if case.expectation.tolerance is not None:
            allowed[name] = case.expectation.tolerance
    layouts = {
        seen.name: seen.layout if isinstance(seen.layout, Layout) else None for seen in answer.seen
    }
    own = _own(case) - case.expectation.right.keys()
    return Truth(values, allowed, layouts, differing, own)


def _own(case: Case) -> frozenset[str]:
    """The results that follow from random numbers."""
    found: set[str] = set()
    for step in case.question.steps:
        if OPS[step.op].own or found & set(step.args):
            found.add(step.result)
    return frozenset(found)
