"""What is found of an answer made for a test? By itself, and beside that of another framework."""

from __future__ import annotations

from adapters.answer import Answer
from cases.model import Case
from suites.frameworks_compared import beside
from suites.judge import alone, look
from suites.truth import Truth
from suites.verdict import Finding


def findings(case: Case, answer: Answer, other: Answer | None, right: Truth) -> list[Finding]:
    """Before any cause has its say; beside ``other``, if there is one."""
    one = look(case, answer, right, {})
    found = alone(one)
    if other is not None:
        found += beside(one, look(case, other, right, {}), frozenset())
    return found
