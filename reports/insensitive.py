"""Which cases cannot notice a wrong value, and why? The cases that say so themselves."""

from __future__ import annotations

from cases.catalogue import catalogue
from reports.templates import DOCS, render

PAGE = DOCS / "insensitive.md"


def page() -> str:
    """The page, in Markdown."""
    cases = catalogue()
    rows = [(case.family, case.id, case.insensitive) for case in cases if case.insensitive]
    return render(PAGE.name, total=f"{len(cases):,}", rows=rows)
