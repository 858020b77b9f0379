"""Why do frameworks diverge, in which releases, and what is the smallest case of each cause?

``python -m reports.pairs --write`` writes the page from all records. The ledger itself does not say
in which releases a cause shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from adapters.registry import framework_of
from cases.catalogue import catalogue
from cases.errors import format_count
from cases.ledger import Cause
from cases.model import Case, slug
from reports.formatting import format_axes, format_releases, shorten
from reports.templates import DOCS, render
from suites.failure import format_mesh_step, format_step
from suites.observation import SEVERITIES, Severity
from suites.release_pairs import CauseUse, Tally
from suites.tensors import mesh_of

PAGE = DOCS / "causes.md"

_TITLES: dict[Severity, str] = {
    "wrong": "Wrong",
    "refused": "Refused",
    "costly": "Costly: more bytes than the layouts imply",
    "documented": "Documented as undefined, or as the caller's duty",
}
# The page shortens longer texts.
_LONGEST = 160

Releases = Mapping[str, Sequence[str]]


def page(tally: Tally, ledger: Sequence[Cause], releases: Releases) -> str:
    """The page, in Markdown."""
    known = {case.id: case for case in catalogue()}
    sections = []
    for severity, title in _TITLES.items():
        own = [
            _describe_cause(cause, tally.met[cause.id], releases, known)
            for cause in sorted(ledger, key=lambda one: one.id)
            if cause.id in tally.met and _severity(tally.met[cause.id]) == severity
        ]
        if own:
            sections.append({"title": title, "causes": own})
    return render(PAGE.name, sections=sections)


def list_causes(tally: Tally, ledger: Sequence[Cause], releases: Releases) -> list[str]:
    """A line for each cause: where it shows."""
    return [
        f"{cause.id}: {_format_use(tally.met[cause.id], releases)}"
        for cause in ledger
        if cause.id in tally.met
    ]


def _severity(met: CauseUse) -> Severity:
    assert met.smallest is not None
    return met.smallest[2].severity or SEVERITIES[-1]


def _format_use(met: CauseUse, releases: Releases) -> str:
    """In which releases a cause shows, and in how many cases."""
    assert met.smallest is not None
    where = format_releases(releases[framework_of(met.smallest[2].subject)], met.cases)
    cases = len({id for ids in met.cases.values() for id in ids})
    return f"{where}; {format_count(cases, 'case')}"


def _describe_cause(
    cause: Cause, met: CauseUse, releases: Releases, known: Mapping[str, Case]
) -> dict[str, object]:
    assert met.smallest is not None
    _, id, verdict = met.smallest
    case = known[id]
    question = case.question
    lines = [
        *map(format_mesh_step, question.mesh_steps),
        *(format_step(step, mesh_of(case, step.result)) for step in question.steps),
        f"{verdict.aspect} at {verdict.step or 'the program'}, {verdict.subject}",
    ]
    if verdict.wanted:
        lines.append(f"wanted {shorten(verdict.wanted, _LONGEST)}")
    if verdict.got:
        lines.append(f"got    {shorten(verdict.got, _LONGEST)}")
    return {
        "id": cause.id,
        "why": cause.why,
        "shows": f"{', '.join(cause.subject)} {_format_use(met, releases)}.",
        "link": cause.link or f"No public report was found on {cause.unreported}.",
        "smallest": slug(id),
        "mesh": format_axes(question.mesh),
        "lines": lines,
    }
