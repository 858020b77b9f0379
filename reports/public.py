"""What became of each public report, and of its kind? Outcomes of reports and of their siblings.

``python -m reports.public`` writes `docs/public-reports.md`; a test checks that it is fresh.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from cases.catalogue.fault_kinds import FAULT_KINDS, FaultKind
from cases.model import slug
from reports.judged_catalogue import (
    BAD,
    ROUTES,
    JudgedCase,
    cause_link,
    count_outcomes,
    format_frameworks,
    judge_catalogue,
)

PAGE = Path(__file__).resolve().parent.parent / "docs" / "public-reports.md"

# More names than this on a line are counted instead.
_MOST = 12


def siblings(name: str, kind: FaultKind, found: Sequence[JudgedCase]) -> list[JudgedCase]:
    """The cases of a kind, beside the reports that show it."""
    return [
        one
        for one in found
        if (one.case.family == "siblings" and name in one.case.tags)
        or (
            one.case.family != "public"
            and any(fnmatchcase(slug(one.case.id), pattern) for pattern in kind.patterns)
        )
    ]


def page() -> str:
    """The page, in Markdown."""
    found = judge_catalogue()
    reports = [one for one in found if one.case.family == "public"]
    lines = [
        "# Public reports, and their kinds",
        "",
        f"Written by `python -m reports.public` from the records of {format_frameworks()}; do not edit.",
        "",
        f"{len(reports)} public bug reports are cases of the catalogue"
        " (`cases/catalogue/public/`). What is still wrong has a cause, which is named here; what"
        " is fixed is a plain test. [operators.md](operators.md) says what the outcomes mean.",
        "",
        f"| report | kind | {' | '.join(ROUTES)} |",
        "|---" * (len(ROUTES) + 2) + "|",
    ]
    for one in reports:
        cells = [_cell(one, route) for route in ROUTES]
        name = one.case.id
        link = f"[{name}]({one.case.source})" if one.case.source.startswith("http") else name
        lines.append(f"| {link} | {one.case.kind} | {' | '.join(cells)} |")
    lines += ["", "## The whole kind", ""]
    for name, kind in FAULT_KINDS.items():
        own = siblings(name, kind, found)
        shown = ", ".join(kind.reports)
        lines += [
            f"### {name}: {kind.what}", "",
            f"{f'Reports: {shown}. ' if shown else ''}{len(own)} siblings tried.", "",
        ]  # fmt: skip
        for route in ROUTES:
            counts = count_outcomes(own, route)
            words = ", ".join(f"{number} {word}" for word, number in counts.items() if number)
            lines.append(f"- {route}: {words}")
            for word in BAD:
                bad = [slug(one.case.id) for one in own if one.outcomes[route] == word]
                if bad:
                    more = f" and {len(bad) - _MOST} more" if len(bad) > _MOST else ""
                    lines.append(f"  - {word}: {', '.join(f'`{id}`' for id in bad[:_MOST])}{more}")
        lines.append("")
    return "\n".join(lines)


def _cell(one: JudgedCase, route: str) -> str:
    """The outcome, and the causes of what is wrong, refused or documented."""
    causes = ", ".join(map(cause_link, one.causes(route)))
    return one.outcomes[route] + (f" ({causes})" if causes else "")


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"{PAGE}\n")
