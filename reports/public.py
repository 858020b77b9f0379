"""How do the public reports come out, and other cases of their kind?"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from cases.catalogue.fault_kinds import FAULT_KINDS, FaultKind
from cases.model import Case, slug
from reports.formatting import first_few
from reports.judged_catalogue import (
    BAD,
    ROUTES,
    JudgedCase,
    cause_link,
    format_frameworks,
    format_outcomes,
    judge_catalogue,
)
from reports.templates import DOCS, code, render

PAGE = DOCS / "public-reports.md"

# A line names at most so many ids, and counts the others.
_MOST = 12


def siblings(name: str, kind: FaultKind, found: Sequence[JudgedCase]) -> list[JudgedCase]:
    """The cases of a kind that are not public reports."""
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
    reports = [
        [_link(one.case), one.case.kind, *(_cell(one, route) for route in ROUTES)]
        for one in found
        if one.case.family == "public"
    ]
    kinds = []
    for name, kind in FAULT_KINDS.items():
        own = siblings(name, kind, found)
        kinds.append({
            "name": name,
            "what": kind.what,
            "reports": ", ".join(kind.reports),
            "count": len(own),
            "routes": [_route(own, route) for route in ROUTES],
        })  # fmt: skip
    return render(
        PAGE.name, frameworks=format_frameworks(), reports=reports, kinds=kinds, routes=[*ROUTES]
    )


def _route(own: Sequence[JudgedCase], route: str) -> dict[str, object]:
    """How the siblings of a kind ended in one route, and ids of those that ended badly."""
    bad = {
        word: [code(slug(one.case.id)) for one in own if one.outcomes[route] == word]
        for word in BAD
    }
    return {
        "name": route,
        "outcomes": format_outcomes(own, route),
        "bad": [(word, first_few(ids, _MOST)) for word, ids in bad.items() if ids],
    }


def _link(case: Case) -> str:
    return f"[{case.id}]({case.source})" if case.source.startswith("http") else case.id


def _cell(one: JudgedCase, route: str) -> str:
    """The outcome, and the causes of what is wrong, refused or documented."""
    causes = ", ".join(map(cause_link, one.causes(route)))
    return one.outcomes[route] + (f" ({causes})" if causes else "")
