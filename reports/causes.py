"""Why do frameworks diverge, in which releases, and what is the smallest case of each cause?

The page `docs/causes.md`, which ``python -m reports.pairs --write`` writes from all records. Where
a cause shows is counted there, and stands in no ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from adapters.registry import framework_of
from cases.catalogue import catalogue
from cases.ledger import Cause
from cases.model import Case, slug
from suites.failure import format_mesh_step, format_step
from suites.observation import SEVERITIES, Severity
from suites.release_pairs import CauseUse, Tally
from suites.tensors import mesh_of

PAGE = Path(__file__).resolve().parent.parent / "docs" / "causes.md"

_TITLES: dict[Severity, str] = {
    "wrong": "Wrong",
    "refused": "Refused",
    "costly": "Costly: more bytes than the layouts imply",
    "documented": "Documented as undefined, or as the caller's duty",
}
# Longer texts are cut on the page.
_LONGEST = 160

Releases = Mapping[str, Sequence[str]]


def page(tally: Tally, ledger: Sequence[Cause], releases: Releases) -> str:
    """The page, in Markdown."""
    lines = [
        "# Causes of divergence",
        "",
        "Written by `python -m reports.pairs --write` from the ledger, `cases/divergences/`, and"
        " all records; do not edit.",
        "",
        "The smallest case of each cause can be had as a script: `pytest -k CASE --repro=out/`.",
        "",
    ]
    known = {case.id: case for case in catalogue()}
    shown = [cause for cause in ledger if cause.id in tally.met]
    for severity, title in _TITLES.items():
        own = [one for one in shown if _severity(tally.met[one.id]) == severity]
        if own:
            lines += [f"## {title}", ""]
            for cause in sorted(own, key=lambda one: one.id):
                lines += _format_cause(cause, tally.met[cause.id], releases, known)
    return "\n".join(lines).rstrip() + "\n"


def list_causes(tally: Tally, ledger: Sequence[Cause], releases: Releases) -> list[str]:
    """Where each cause shows, a line each."""
    return [
        f"{cause.id}: {_format_releases(tally.met[cause.id], cause, releases)}"
        for cause in ledger
        if cause.id in tally.met
    ]


def _severity(met: CauseUse) -> Severity:
    assert met.smallest is not None
    return met.smallest[2].severity or SEVERITIES[-1]


def _format_releases(met: CauseUse, cause: Cause, releases: Releases) -> str:
    assert met.smallest is not None
    ours = releases[framework_of(met.smallest[2].subject)]
    runs: list[list[str]] = []
    for at, release in enumerate(ours):
        if release in met.cases:
            if runs and ours[at - 1] == runs[-1][-1]:
                runs[-1].append(release)
            else:
                runs.append([release])
    where = ", ".join(one[0] if len(one) == 1 else f"{one[0]} to {one[-1]}" for one in runs)
    cases = len({id for ids in met.cases.values() for id in ids})
    return f"{where}; {cases:,} case{'' if cases == 1 else 's'}"


def _format_cause(
    cause: Cause, met: CauseUse, releases: Releases, known: Mapping[str, Case]
) -> list[str]:
    assert met.smallest is not None
    _, id, verdict = met.smallest
    case = known[id]
    question = case.question
    axes = ", ".join(f"{name}={extent}" for name, extent in question.mesh.axes)
    link = cause.link or f"No public report was found on {cause.unreported}."
    return [
        f"### {cause.id}",
        "",
        cause.why,
        "",
        f"{', '.join(cause.subject)} {_format_releases(met, cause, releases)}. {link}",
        "",
        f"Smallest: `{slug(id)}` on {axes}",
        "",
        "```",
        *map(format_mesh_step, question.mesh_steps),
        *(format_step(step, mesh_of(case, step.result)) for step in question.steps),
        f"{verdict.aspect} at {verdict.step or 'the program'}, {verdict.subject}",
        *(f"wanted {_cut(verdict.wanted)}" for _ in verdict.wanted[:1]),
        *(f"got    {_cut(verdict.got)}" for _ in verdict.got[:1]),
        "```",
        "",
    ]


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 4].rstrip() + " ..."
