"""Which cause of a user's own would excuse a failure? It is ready for a file for ``--ledger``.

A cause says what was seen as closely as a ledger can: the kind of observation, the message without
its numbers, the relation to the right value, and the op. The user adds only the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from adapters.answer import Answer
from adapters.registry import framework_of
from cases.ledger import OBSERVATIONS, Relation
from cases.model import Case, slug
from suites import observation as seen_as
from suites.cause_matching import ending_message, ops_at_fault, relations_of
from suites.observation import BrokenContract, Ended, OtherRedistributionPlan, WrongValue
from suites.tensors import FULL, result_name
from suites.truth import truth
from suites.verdict import RECORD, Finding, Verdict

# If several relations hold, the first of these says most.
_MOST_TELLING: tuple[Relation, ...] = (
    "NaN", "one addend", "operand unchanged", "zeros", "elements permuted", "times a number",
    "plus a number", "another shape", "some elements", "all elements",
)  # fmt: skip
# The longest part of a message that a pattern has.
_MOST = 90

WHY = "Say here why this is as it should be."


def format_ready_causes(
    case: Case, found: Sequence[tuple[Verdict, Finding]], answers: Mapping[str, Answer]
) -> list[str]:
    """The lines that offer causes; none where no cause can excuse all that fails."""
    text = ready_causes(case, found, answers)
    if not text:
        return []
    head = "excuse  to accept this, say why in a file of causes, and add --ledger=FILE:"
    return ["", head, *(f"        {line}".rstrip() for line in text.splitlines())]


def ready_causes(
    case: Case, found: Sequence[tuple[Verdict, Finding]], answers: Mapping[str, Answer]
) -> str:
    """The causes as TOML; "" where no cause can excuse all that fails."""
    tables: dict[tuple[tuple[str, str], ...], list[str]] = {}
    steps: dict[tuple[tuple[str, str], ...], str] = {}
    for verdict, finding in found:
        answer = answers.get(verdict.subject)
        kind = "" if finding.observation is None else seen_as.kind_name(finding.observation)
        if verdict.against == RECORD or kind not in OBSERVATIONS or answer is None:
            return ""
        table = tuple(_table(case, finding, answer, kind))
        subjects = tables.setdefault(table, [])
        steps.setdefault(table, finding.step or "program")
        if verdict.subject not in subjects:
            subjects.append(verdict.subject)
    texts, used = [], set[str]()
    for table, subjects in tables.items():
        id = slug("-".join([case.id, framework_of(subjects[0]), *steps[table].split("/")]))[:110]
        while id in used:
            id += "-too"
        used.add(id)
        lines = ["[[cause]]", f"id = {_toml_string(id)}", f"subject = {_toml_strings(subjects)}"]
        lines += [f"{key} = {value}" for key, value in table]
        texts.append("\n".join([*lines, f"why = {_toml_string(WHY)}"]))
    return "\n\n".join(texts) + "\n"


def _table(case: Case, finding: Finding, answer: Answer, kind: str) -> list[tuple[str, str]]:
    observed = finding.observation
    lines = [("observed", _toml_string(kind)), ("aspect", _toml_string(finding.aspect))]
    if isinstance(observed, Ended):
        lines.append(("message", _toml_string(message_pattern(ending_message(observed)))))
    if isinstance(observed, WrongValue):
        right = truth(case, framework_of(answer.subject))
        holding = relations_of(case, answer, finding, right)
        relation = next(one for one in _MOST_TELLING if one in holding)
        lines.append(("relation", _toml_string(relation)))
    facts = [f"step = {_toml_string(_op_at_fault(case, finding.step))}"]
    if case.question.recipe is not None:
        facts.append(f"recipe = {_toml_string(case.question.recipe.name)}")
    if isinstance(observed, OtherRedistributionPlan | BrokenContract):
        facts.append(f"plan = {_toml_string(observed.kind)}")
    return [*lines, ("cases", f"{{ {', '.join(facts)} }}")]


def _op_at_fault(case: Case, step: str | None) -> str:
    """The op at fault, as `cases.step` has it, where the step has one op of several."""
    made = {one.result: one.op for one in case.question.steps}
    own = None if step is None or step.endswith(FULL) else made.get(result_name(step))
    ops = ops_at_fault(case, step)
    if own in ops:
        return str(own)
    return "program" if "program" in ops else sorted(ops)[0]


def message_pattern(said: str) -> str:
    """A pattern that matches a message whatever its numbers and addresses are."""
    if len(said) > _MOST:
        said = said[:_MOST].rpartition(" ")[0] or said[:_MOST]
    parts = re.split(r"(0x[0-9a-f]+|\d+)", said)
    numbers = (r"0x[0-9a-f]+", r"\d+")
    return "".join(
        (numbers[0] if part.startswith("0x") else numbers[1])
        if place % 2
        else re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", part)
        for place, part in enumerate(parts)
    )


def _toml_string(text: str) -> str:
    """A TOML string; a literal one where there is something to escape."""
    plain = "'" not in text and text.isprintable()
    return f"'{text}'" if plain and ("\\" in text or '"' in text) else json.dumps(text)


def _toml_strings(texts: Sequence[str]) -> str:
    return _toml_string(texts[0]) if len(texts) == 1 else f"[{', '.join(map(_toml_string, texts))}]"
