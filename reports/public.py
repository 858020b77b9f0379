"""What became of each public report, and of its kind? Outcomes of reports and of their siblings.

``python -m reports.public`` writes `docs/public-reports.md`; a test checks that it is fresh.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from cases.catalogue.kinds import KINDS, Kind
from cases.model import slug
from reports.judged import ROUTES, Judged, counted, frameworks, judged, outcome

PAGE = Path(__file__).resolve().parent.parent / "docs" / "public-reports.md"

# More names than this on a line are counted instead.
_MOST = 12


def siblings(name: str, kind: Kind, found: Sequence[Judged]) -> list[Judged]:
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
    found = judged()
    reports = [one for one in found if one.case.family == "public"]
    lines = [
        "# Public reports, and their kinds",
        "",
        f"Written by `python -m reports.public` from the records of {frameworks()}; do not edit.",
        "",
        f"{len(reports)} public bug reports are cases of the catalogue"
        " (`cases/catalogue/public/`). What is still wrong is in the ledger, with the id given"
        " here; what is fixed is a plain test.",
        "",
        f"| report | kind | {' | '.join(ROUTES)} |",
        "|---" * (len(ROUTES) + 2) + "|",
    ]
    for one in reports:
        cells = [_cell(one, route) for route in ROUTES]
        name = one.case.id.removeprefix("public/")
        link = f"[{name}]({one.case.source})" if one.case.source.startswith("http") else name
        lines.append(f"| {link} | {one.case.kind} | {' | '.join(cells)} |")
    lines += ["", "## The whole kind", ""]
    for name, kind in KINDS.items():
        own = siblings(name, kind, found)
        shown = ", ".join(report.removeprefix("public/") for report in kind.reports)
        lines += [
            f"### {name}: {kind.what}", "",
            f"{f'Reports: {shown}. ' if shown else ''}{len(own)} siblings tried.", "",
        ]  # fmt: skip
        for route in ROUTES:
            counts = counted(own, route)
            words = ", ".join(f"{number} {word}" for word, number in counts.items() if number)
            lines.append(f"- {route}: {words}")
            for word in ("wrong", "hangs", "crashes"):
                bad = [slug(one.case.id) for one in own if outcome(one.of(route)) == word]
                if bad:
                    more = f" and {len(bad) - _MOST} more" if len(bad) > _MOST else ""
                    lines.append(f"  - {word}: {', '.join(f'`{id}`' for id in bad[:_MOST])}{more}")
        lines.append("")
    return "\n".join(lines)


def _cell(one: Judged, route: str) -> str:
    """The outcome, and the ledger's entries for it."""
    verdicts = one.of(route)
    word = outcome(verdicts)
    ids = dict.fromkeys(
        v.ledger for v in verdicts if v.ledger and v.verdict == "known" and v.aspect != "layout"
    )
    return word + (f" ({', '.join(map(str, ids))})" if ids else "")


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"{PAGE}\n")
