"""What is found of an answer made for a test? By itself, and beside that of another framework."""

from __future__ import annotations

from adapters.answer import Answer
from cases.model import Case
from suites.frameworks_compared import compare_answers
from suites.judge import check_alone, context_of_answer
from suites.truth import Truth
from suites.verdict import Finding


def findings(case: Case, answer: Answer, other: Answer | None, right: Truth) -> list[Finding]:
    """Before any cause has its say; beside ``other``, if there is one."""
    one = context_of_answer(case, answer, right, {})
    found = check_alone(one)
    if other is not None:
        found += compare_answers(one, context_of_answer(case, other, right, {}), frozenset())
    return found
