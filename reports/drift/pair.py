"""What is compared with what? Two releases' answers to one question.

Makes a change of what was found: where in its program it is, and whether anything told the user.
"""

from __future__ import annotations

import msgspec

from adapters.answer import Answer, Done
from cases.model import Case
from cases.ops import OPS
from reports.drift.model import Change, Kind, Turn

# Steps that say where a tensor is to lie; a program is called by what else is in it.
_PLUMBING = ("redistribute", "identity")
_GRADIENT = "grad"
# How an end is told that is none, and that two differ in what they say of the case alone.
ANSWER = "an answer"
OTHERWISE = ", otherwise"
# Only of these it matters that nothing was said: errors speak, and roundings need not.
_SILENT = ("value", "layout", "count")


class Pair(msgspec.Struct, frozen=True):
    """Two releases' answers to one question, of one subject.

    ``blind``: the kinds of collective that one of the two releases hides.
    """

    case: Case
    older: Answer
    newer: Answer
    blind: frozenset[str] = frozenset()

    @property
    def silent(self) -> bool:
        """Whether the program ran to its end in both."""
        return isinstance(self.older.end, Done) and isinstance(self.newer.end, Done)


def change(
    pair: Pair, kind: Kind, step: str, pattern: str, before: str, after: str, turn: Turn = ""
) -> Change:
    """A change of one step of a pair; ``before`` and ``after`` on one line each."""
    return Change(
        kind, pair.newer.subject, pair.case.id, step, op(pair.case, step), pattern,
        " ".join(before.split()), " ".join(after.split()),
        pair.silent and kind in _SILENT, turn,
    )  # fmt: skip


def op(case: Case, step: str) -> str:
    """The op that makes a step; of inputs, recipes and whole programs, what they are."""
    question, name = case.question, step.removesuffix("/full").partition("/")[0]
    if question.recipe is not None:
        return f"recipe {question.recipe.name}"
    made = [(one.result, one.op) for one in question.steps]
    made += [(one_.result, one_.op) for one_ in question.mesh_steps]
    if name in dict(made):
        own = dict(made)[name]
        # What it is taken of comes first in a program.
        return f"{_GRADIENT} of {made[0][1]}" if own == _GRADIENT else own
    if name or not made:
        return "an input"
    ops = dict.fromkeys([one.op for one in question.steps] or [one for _, one in made])
    told = [one for one in ops if one not in _PLUMBING]
    return f"{_GRADIENT} of {told[0]}" if _GRADIENT in ops else " + ".join(told or ops)


def family(place: str) -> str:
    """What kind of op one is, of those that a change is in; a recipe is one, whatever its model."""
    word = place.split(" ")[0]
    row = OPS.get(word)
    return row.family if row is not None else word if word == "recipe" else place


def upstream(case: Case, step: str) -> frozenset[str]:
    """A step with all that it is made of; of a whole program, everything."""
    question, name = case.question, step.removesuffix("/full")
    made = {one.result: one.args for one in question.steps}
    if not name or question.recipe is not None:
        return frozenset((*made, *(given.name for given in question.inputs), *question.check))
    found, waiting = set[str](), [name]
    while waiting:
        this = waiting.pop()
        found.add(this)
        waiting += [arg for arg in made.get(this, ()) if isinstance(arg, str) and arg not in found]
    return frozenset(found)
