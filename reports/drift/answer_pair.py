"""What is compared? Two releases' answers to one question, from which changes are made."""

from __future__ import annotations

import msgspec

from adapters.answer import Answer, Done
from cases.model import Case
from cases.ops import OPS
from reports.drift.model import Change, ChangeKind, CorrectnessChange

# Ops that only change a layout. A program is named after its other ops.
_LAYOUT_OPS = ("redistribute", "identity")
_GRADIENT = "grad"
# The end of a program that finished.
ANSWER = "an answer"
# Changes that a user may not notice: errors are noticed, and roundings need not be.
_SILENT_KINDS = ("value", "layout", "count")


class AnswerPair(msgspec.Struct, frozen=True):
    """Two releases' answers to one question, of one subject.

    ``blind``: the kinds of collective that one of the two releases hides.
    """

    case: Case
    older: Answer
    newer: Answer
    blind: frozenset[str] = frozenset()

    @property
    def silent(self) -> bool:
        """Whether the program finished in both."""
        return isinstance(self.older.end, Done) and isinstance(self.newer.end, Done)


def make_change(
    pair: AnswerPair, kind: ChangeKind, step: str, pattern: str, before: str, after: str,
    turn: CorrectnessChange = "", weight: int = 0,
) -> Change:  # fmt: skip
    """A change of one step of a pair; ``before`` and ``after`` become one line each."""
    where, family = op_and_family(pair.case, step)
    return Change(
        kind, pair.newer.subject, pair.case.id, step, where, pattern,
        " ".join(before.split()), " ".join(after.split()),
        pair.silent and kind in _SILENT_KINDS, turn, (), family, weight,
    )  # fmt: skip


def op_and_family(case: Case, step: str) -> tuple[str, str]:
    """The op that makes a step, and its family; or names for inputs, recipes and whole programs."""
    question, name = case.question, step.removesuffix("/full").partition("/")[0]
    if question.recipe is not None:
        return f"recipe {question.recipe.name}", "recipe"
    made = [(one.result, one.op) for one in question.steps]
    made += [(one_.result, one_.op) for one_ in question.mesh_steps]
    if name in dict(made):
        own = dict(made)[name]
        # The op whose gradient it is comes first in a program.
        return _gradient_of(made[0][1]) if own == _GRADIENT else (own, _family(own, own))
    if name or not made:
        return "placing an input", "placing an input"
    ops = dict.fromkeys([one.op for one in question.steps] or [one for _, one in made])
    named = [one for one in ops if one not in _LAYOUT_OPS] or [*ops]
    if _GRADIENT in ops:
        return _gradient_of(named[0])
    together = " + ".join(named)
    return together, _family(named[0], together)


def _gradient_of(of: str) -> tuple[str, str]:
    return f"{_GRADIENT} of {of}", OPS[_GRADIENT].family


def _family(op: str, default: str) -> str:
    row = OPS.get(op)
    return default if row is None else row.family
