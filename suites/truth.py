"""What is right about a case? The case's own word, else the reference's, worked out once.

Never leaves the process that judges.
"""

from __future__ import annotations

import msgspec
import numpy as np

from adapters.answer import Answer, Observed
from adapters.reference import adapter as reference
from adapters.reference import recipes
from adapters.reference.gradient import ERROR
from adapters.reference.values import Undefined, evaluate
from cases.arrays import Array, pack, unpack
from cases.errors import Where
from cases.model import Case, Layout, Tolerance
from cases.ops import OPS
from cases.program import Typed
from cases.recipes import row_of, sizes_of
from cases.recipes.layouts import layouts, shapes
from suites.tensors import PLAIN
from suites.values import difference, show, tolerance_for

# A training step's numbers are of size one, at the end of sums of at most some thousand products:
# a few thousand roundings of 2**-53 each.
TRAINED = Tolerance(2.0**-40, 2.0**-40, "float64: some thousand roundings of numbers of size one")


class Truth(msgspec.Struct, frozen=True):
    """By name of input or result: the right value, how closely it must be met, the layout.

    A layout is None where it does not follow from the question. ``differing``: the reference's
    value, where the case states another. ``own``: what is made of random numbers, which are
    each framework's own, unless the case states it. ``typed``: global shapes and dtypes. A plan
    has those and layouts alone.
    """

    values: dict[str, Array]
    allowed: dict[str, Tolerance]
    layouts: dict[str, Layout | None]
    differing: dict[str, Array] = {}
    own: frozenset[str] = frozenset()
    typed: dict[str, Typed] = {}

    def beside(self, answer: Answer) -> Truth:
        """With what an answer's own unsharded step makes right: gradients and new parameters.

        For the steps of a program nothing changes.
        """
        own = {
            seen.name.removeprefix(PLAIN): seen.full[0]
            for seen in answer.seen
            if seen.name.startswith(PLAIN) and seen.full
        }
        more = {name: value for name, value in own.items() if name not in self.values}
        if not more:
            return self
        return msgspec.structs.replace(
            self,
            values={**self.values, **more},
            allowed={**dict.fromkeys(more, TRAINED), **self.allowed},
        )

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


def truth(case: Case, framework: str = "") -> Truth:
    """The truth about a case, for a framework's answers."""
    if case.question.recipe is not None:
        return _of_recipe(case)
    if case.question.mode == "plan":
        return Truth({}, {}, reference.layouts(case.question), typed=reference.typed(case.question))
    answer = reference.observe(case.question)
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
    typed = reference.typed(case.question)
    return Truth(values, allowed, layouts, differing, own(case), typed)


def _of_recipe(case: Case) -> Truth:
    """What NumPy and the plan say: values that need no gradient, and layouts."""
    question = case.question
    placed: dict[str, Layout | None] = dict(
        layouts(row_of(question), sizes_of(question), question.mesh)
    )
    if question.mode == "plan":
        assert question.recipe is not None
        dtype = question.recipe.dtype
        # Losses are taken of at least float32.
        wide = "float64" if dtype == "float64" else "float32"
        typed = {
            name: Typed(shape, wide if name == "loss" else dtype)
            for name, shape in shapes(row_of(question), sizes_of(question)).items()
        }
        return Truth({}, {}, placed, typed=typed)
    found = {name: pack(np.asarray(value)) for name, value in recipes.values(case.question).items()}
    found |= {f"plain/{name}": found[name] for name in ("out", "loss")}
    return Truth(
        found | case.expectation.right, dict.fromkeys(case.question.check, TRAINED), placed
    )


def sampled_slopes(case: Case, seen: Observed) -> tuple[Array, Array, Tolerance] | None:
    """Elements of a recipe's unsharded gradient: by differences of the loss, and as observed.

    None where nothing was sampled, or there is no global value.
    """
    if case.question.recipe is None or not seen.full:
        return None
    sampled = recipes.slopes(case.question).get(seen.name.removeprefix(PLAIN))
    if not sampled:
        return None
    full = unpack(seen.full[0])
    got = np.array([full[index] for index in sampled], np.float64)
    wanted = np.array([*sampled.values()], np.float64)
    allowed = Tolerance(0.0, ERROR, "differences are no closer to the derivative")
    return pack(wanted), pack(got), allowed


def own(case: Case) -> frozenset[str]:
    """The results that follow from random numbers, unless the case states them."""
    found: set[str] = set()
    for step in case.question.steps:
        if OPS[step.op].own or found & set(step.args):
            found.add(step.result)
    return frozenset(found - case.expectation.right.keys())
