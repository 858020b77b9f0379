"""Which cases cannot notice a wrong value, and why? Those of the catalogue that say so themselves.

``python -m reports.insensitive`` writes `docs/insensitive.md`; a test checks that it is fresh.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cases.catalogue import FAMILIES, family

PAGE = Path(__file__).resolve().parent.parent / "docs" / "insensitive.md"


def page() -> str:
    """The page, in Markdown."""
    found = [case for name in FAMILIES for case in family(name) if case.insensitive]
    total = sum(len(family(name)) for name in FAMILIES)
    lines = [
        "# Cases that notice no wrong value",
        "",
        "Written by `python -m reports.insensitive`; do not edit.",
        "",
        f"Of the {total:,} cases of the catalogue, {len(found)} are of a kind in which no seeded"
        " mistake changes a value or a shard, so that they watch layouts, refusals and collectives"
        " alone. Every other case is shown, for every mistake seeded in it, to notice it.",
        "",
        "| family | case | why |",
        "|---|---|---|",
        *(f"| {case.family} | {case.id} | {case.insensitive} |" for case in found),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"{PAGE}\n")
