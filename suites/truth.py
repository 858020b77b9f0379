"""What is right about a case? What the case states, else the reference's value, worked out once.

It never leaves the process that judges.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec
import numpy as np

from adapters.answer import Answer, Observed
from adapters.reference import adapter as reference
from adapters.reference import recipes
from adapters.reference.evaluate import UndefinedValue, evaluate
from adapters.reference.gradient import ERROR
from cases.arrays import Array, pack, unpack
from cases.errors import Where
from cases.model import Case, Layout, Question, Tolerance
from cases.ops import OPS
from cases.program import TensorType
from cases.recipes import recipe_of, sizes_of
from cases.recipes.layouts import global_shapes, tensor_layouts
from cases.recipes.parameter_values import LEARNING_RATE
from suites.array_difference import difference, format_array, tolerances
from suites.tensors import UNSHARDED

# The numbers of a training step are about 1, at the end of sums of up to some thousand products: a
# few thousand roundings of 2**-53 each.
TRAINING_TOLERANCE = Tolerance(
    2.0**-40, 2.0**-40, "float64: some thousand roundings of numbers of size one"
)


class Truth(msgspec.Struct, frozen=True):
    """By name of input or result: the right value, how closely it must be met, and the layout.

    A layout is None where it does not follow from the question. ``differing``: the reference's
    value, where the case states another. ``own``: results of random numbers, which each framework
    draws itself, unless the case states them. ``typed``: global shapes and dtypes; a dry run has
    only those and layouts. ``apart``: results that frameworks define differently, so that none can
    be compared with another; why, and where that is written.
    """

    values: dict[str, Array]
    allowed: dict[str, Tolerance]
    layouts: dict[str, Layout | None]
    differing: dict[str, Array] = {}
    own: frozenset[str] = frozenset()
    typed: dict[str, TensorType] = {}
    apart: dict[str, str] = {}

    def with_unsharded_step(self, answer: Answer) -> Truth:
        """With what an answer's own unsharded step makes right: gradients and new parameters.

        For the steps of a program nothing changes.
        """
        own = {
            seen.name.removeprefix(UNSHARDED): seen.full[0]
            for seen in answer.seen
            if seen.name.startswith(UNSHARDED) and seen.full
        }
        own |= self._updated(own)
        more = {name: value for name, value in own.items() if name not in self.values}
        if not more:
            return self
        return msgspec.structs.replace(
            self,
            values={**self.values, **more},
            allowed={**dict.fromkeys(more, TRAINING_TOLERANCE), **self.allowed},
        )

    def _updated(self, own: Mapping[str, Array]) -> dict[str, Array]:
        """The new parameters that the gradients of an unsharded step lead to, by plain descent.

        They also stand under the names of the unsharded step itself, which must have them as well.
        """
        found: dict[str, Array] = {}
        for name, before in self.values.items():
            slope = own.get(f"grad/{name}")
            if slope is not None and slope.shape == before.shape:
                old = unpack(before)
                new = pack((old - LEARNING_RATE * unpack(slope)).astype(old.dtype))
                found |= {f"new/{name}": new, f"{UNSHARDED}new/{name}": new}
        return found

    def explain_stated_value(self, name: str) -> str:
        """Where the case states another value than the reference has, a sentence that says so."""
        if name not in self.differing:
            return ""
        return (
            f"wanted is the case's own word; the reference has {format_array(self.differing[name])}"
        )


def check_defined(case: Case) -> None:
    """Refuse a case with a step that has no value, which shapes alone do not show.

    Raises:
        BadInput: file, case, the step, and what is wrong with its values.
    """
    question = case.question
    if question.mode == "dry run" or question.recipe is not None:
        return
    try:
        for framework in ("", *_frameworks_with_own_ops(question)):
            evaluate(question, framework)
    except UndefinedValue as error:
        step = next(one for one in question.steps if one.result == error.step)
        where = Where(case.file, case.id, ("program",))
        found = f"no value of {step.result} = {step.op}({', '.join(map(str, step.args))})"
        raise where.error(found, f"values that {step.op} takes (NumPy: {error})") from None


# Every answer to a case is judged by it, whichever the framework.
_cache: deque[tuple[Case, str, Truth]] = deque(maxlen=8)


def truth(case: Case, framework: str = "") -> Truth:
    """The truth about a case, by the meaning that ``framework`` has of ops that it defines itself.

    The very same object where it defines none of the program's ops.
    """
    for kept, name, right in _cache:
        if kept is case and name == framework:
            return right
    right = _truth(case, "") if not framework else truth(case)
    if framework in frameworks_with_own_meaning(case, right):
        right = msgspec.structs.replace(_truth(case, framework), apart=right.apart)
    _cache.append((case, framework, right))
    return right


def frameworks_with_own_meaning(case: Case, right: Truth) -> tuple[str, ...]:
    """The frameworks that define something in a case in their own way."""
    return _frameworks_with_own_ops(case.question) if right.apart else ()


def _frameworks_with_own_ops(question: Question) -> tuple[str, ...]:
    """The frameworks that have a meaning of their own for an op of a program."""
    found = (name for step in question.steps for name in OPS[step.op].apart)
    return tuple(dict.fromkeys(found))


def _truth(case: Case, framework: str) -> Truth:
    question = case.question
    if question.recipe is not None:
        return _truth_of_recipe(case)
    if question.mode == "dry run":
        typed = reference.global_types(question, framework)
        apart = {} if framework else _differing_dtypes(question, typed)
        return Truth({}, {}, reference.known_layouts(question), typed=typed, apart=apart)
    answer = reference.observe(question, framework)
    values = {seen.name: seen.full[0] for seen in answer.seen}
    known = {name: unpack(value) for name, value in values.items()}
    allowed = tolerances(case, known, framework)
    for name in nondeterministic(case):
        # Random numbers have no wrong value, and neither has what follows from them.
        allowed[name] = msgspec.structs.replace(allowed[name], free=None)
    differing = {}
    for name, value in case.expectation.right.items():
        if value.dtype != values[name].dtype and framework:
            # What a case states has the dtype of the common meaning.
            value = pack(unpack(value).astype(known[name].dtype))
        if difference(value, values[name], case.expectation.tolerance or allowed[name]):
            differing[name] = values[name]
        # A value that a case states is written in decimals, and must be met as closely as the case
        # says.
        values[name] = value
        allowed[name] = case.expectation.tolerance or msgspec.structs.replace(
            allowed[name], free=None
        )
    layouts = {
        seen.name: seen.layout if isinstance(seen.layout, Layout) else None for seen in answer.seen
    }
    typed = reference.global_types(question, framework)
    apart = {} if framework else _differing_values(question)
    return Truth(values, allowed, layouts, differing, nondeterministic(case), typed, apart)


def _differing_values(question: Question) -> dict[str, str]:
    """The results that are another array by some framework's own meaning, and why."""
    base, found = evaluate(question), dict[str, str]()
    for framework in _frameworks_with_own_ops(question):
        theirs = evaluate(question, framework)
        names = {name for name in base if pack(theirs[name]) != pack(base[name])}
        found |= {name: _explain_own_meaning(question, name, names, framework) for name in names}
    return found


def _differing_dtypes(question: Question, base: dict[str, TensorType]) -> dict[str, str]:
    """The results whose dtype alone differs by some framework's own meaning, and why."""
    found: dict[str, str] = {}
    for framework in _frameworks_with_own_ops(question):
        theirs = reference.global_types(question, framework)
        names = {name for name in base if theirs[name] != base[name]}
        found |= {name: _explain_own_meaning(question, name, names, framework) for name in names}
    return found


def _explain_own_meaning(question: Question, name: str, names: set[str], framework: str) -> str:
    """Why frameworks define a result differently: by its op, or by the first op before it."""
    steps = {step.result: step for step in question.steps}
    while True:
        before = [arg for arg in steps[name].operands if arg in names]
        if not before:
            break
        name = before[0]
    own = OPS[steps[name].op].apart.get(framework)
    return f"{own.why} ({own.link})" if own else ""


def _truth_of_recipe(case: Case) -> Truth:
    """What NumPy and the parallel plan say: values that need no gradient, and layouts."""
    question = case.question
    placed: dict[str, Layout | None] = dict(
        tensor_layouts(recipe_of(question), sizes_of(question), question.mesh)
    )
    if question.mode == "dry run":
        assert question.recipe is not None
        dtype = question.recipe.dtype
        # Losses have at least float32.
        wide = "float64" if dtype == "float64" else "float32"
        typed = {
            name: TensorType(shape, wide if name == "loss" else dtype)
            for name, shape in global_shapes(recipe_of(question), sizes_of(question)).items()
        }
        return Truth({}, {}, placed, typed=typed)
    found = {
        name: pack(np.asarray(value))
        for name, value in recipes.forward_values(case.question).items()
    }
    found |= {f"plain/{name}": found[name] for name in ("out", "loss")}
    return Truth(
        found | case.expectation.right,
        dict.fromkeys(case.question.check, TRAINING_TOLERANCE),
        placed,
    )


def sampled_gradient(case: Case, seen: Observed) -> tuple[Array, Array, Tolerance] | None:
    """Elements of a recipe's unsharded gradient: by differences of the loss, and as observed.

    None where nothing was sampled, or there is no global value.
    """
    if case.question.recipe is None or not seen.full:
        return None
    sampled = recipes.sample_gradients(case.question).get(seen.name.removeprefix(UNSHARDED))
    if not sampled:
        return None
    full = unpack(seen.full[0])
    got = np.array([full[index] for index in sampled], np.float64)
    wanted = np.array([*sampled.values()], np.float64)
    allowed = Tolerance(0.0, ERROR, "differences are no closer to the derivative")
    return pack(wanted), pack(got), allowed


def nondeterministic(case: Case) -> frozenset[str]:
    """The results that follow from random numbers, unless the case states them."""
    found: set[str] = set()
    for step in case.question.steps:
        if OPS[step.op].own or found & set(step.args):
            found.add(step.result)
    return frozenset(found - case.expectation.right.keys())
