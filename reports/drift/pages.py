"""What do the two drift pages show? docs/drift.md, and docs/drift.html to sort and filter.

``python -m reports drift`` writes both from the committed records. The sentences and the markup are
in `reports/templates/`; `drift.js` sorts and filters the rows, which are all in the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from markupsafe import Markup

from cases.model import Case
from reports.drift import tables
from reports.drift.grouping import severity_order
from reports.drift.model import (
    CHANGE_KINDS,
    KIND_MEANINGS,
    ChangeKind,
    DriftFinding,
    FrameworkHistory,
    Upgrade,
)
from reports.drift.wording import (
    INTERFACE_KINDS,
    case_name,
    format_extent,
    format_places,
    format_step,
    shorten_pair,
    title,
)
from reports.formatting import shorten
from reports.templates import DOCS, render

MARKDOWN, HTML = DOCS / "drift.md", DOCS / "drift.html"

# Each page shortens longer texts; `--finding` prints them whole.
_MOST_MARKDOWN, _MOST_HTML = 110, 300

HEADS: dict[ChangeKind, str] = {
    "value": "Values", "layout": "Layouts", "count": "Collectives", "rounding": "Roundings",
    "memory": "Peak bytes of dry runs", "refusal": "Errors, crashes and hangs",
    "support": "Support", "default": "Defaults", "name": "Names", "signature": "Signatures",
    "printed": "Prints",
}  # fmt: skip


def markdown(stories: Sequence[FrameworkHistory], known: Mapping[str, Case]) -> str:
    """docs/drift.md. ``known``: the catalogue, by id."""
    sections = []
    for story in stories:
        for border in reversed(story.borders):
            own = [one for one in story.findings if one.newer == border.newer]
            by_kind = [
                (HEADS[kind], [_row(one, known, _MOST_MARKDOWN) for one in own if one.kind == kind])
                for kind in CHANGE_KINDS
            ]
            kinds = [(head, rows) for head, rows in by_kind if rows]
            sections.append({"border": border, "count": len(own), "kinds": kinds})
    return render(
        MARKDOWN.name, **_shared(stories), sections=sections, anchor=anchor, code=as_code,
        text=escape_text, shorten=lambda text: shorten(text, _MOST_MARKDOWN),
    )  # fmt: skip


def html(stories: Sequence[FrameworkHistory], known: Mapping[str, Case]) -> str:
    """docs/drift.html. ``known``: the catalogue, by id."""
    when = {
        (story.framework, release.release): place
        for story in stories
        for place, release in enumerate(story.releases)
    }

    def order(one: DriftFinding) -> tuple[object, ...]:
        # The gravest first over all releases, and of two alike the newer.
        severity = severity_order(one)
        return *severity[:4], -when[one.framework, one.newer], severity

    found = sorted((one for story in stories for one in story.findings), key=order)
    folded = [one.cases for one in found if len(one.cases) > 1]
    names = sorted({case_name(case, known) for cases in folded for case in cases})
    numbers = {name: number for number, name in enumerate(names)}
    rows = []
    for one in found:
        indices = sorted(numbers.get(case_name(case, known), 0) for case in one.cases)
        row = {
            "when": when[one.framework, one.newer],
            "key": upgrade_key(one),
            "kinds": f"{one.kind} count" if one.with_counts else one.kind,
            "cases": len(one.cases),
            "indices": format_ranges(indices),
        }
        rows.append(_row(one, known, _MOST_HTML) | row)
    return render(
        HTML.name, **_shared(stories), rows=rows, key=upgrade_key,
        shorten=lambda text: shorten(text, _MOST_HTML),
        # "<" would end the element that the names stand in.
        names=Markup(json.dumps(names, ensure_ascii=False).replace("<", "\\u003c")),
    )  # fmt: skip


def _shared(stories: Sequence[FrameworkHistory]) -> dict[str, Any]:
    """What both pages show besides the findings."""
    overviews = []
    for story in stories:
        rows, always = tables.find_availability(story)
        overviews.append({
            "framework": story.framework,
            "records": tables.format_records(story),
            "upgrades": tables.count_changes(story),
            "availability": rows,
            "always": always,
        })  # fmt: skip
    return {
        "stories": overviews,
        "kinds": KIND_MEANINGS,
        "interface_kinds": INTERFACE_KINDS,
        "unseen": [
            (f"{story.framework} {release.release}", sentence)
            for story in stories
            for release in story.releases
            for sentence in release.unseen
        ],
        "left_out": [
            (f"{border.framework} {border.older} → {border.newer}",
             *(f"{number:,}" for number in (border.asked, *tables.count_left_out(border))))
            for story in stories
            for border in reversed(story.borders)
        ],
    }  # fmt: skip


def _row(finding: DriftFinding, known: Mapping[str, Case], most: int) -> dict[str, Any]:
    """What a row shows of a finding, as plain texts."""
    small = finding.smallest
    pairs = [shorten_pair(*pair, most) for pair in ((small.before, small.after), *small.counts)]
    line = format_step(known[small.case], small.step) if small.case in known else ""
    return {
        "finding": finding,
        "title": title(finding),
        "places": format_places(finding),
        "extent": format_extent(finding),
        "name": case_name(small.case, known),
        "step": small.step,
        "line": shorten(line, most),
        "before": [before for before, _ in pairs],
        "after": [after for _, after in pairs],
    }


def upgrade_key(border: Upgrade | DriftFinding) -> str:
    """The name of an upgrade in the HTML page, by the newer release: ``torch-2.14.1``."""
    return f"{border.framework}-{border.newer}"


def anchor(border: Upgrade) -> str:
    """The name of an upgrade's section in the Markdown page."""
    return f"{border.framework}-{border.older}-to-{border.newer}".replace(".", "")


def format_ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers in short: ``3-5,9``."""
    found = []
    for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        found.append(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]))
    return ",".join(found)


def escape_text(text: str) -> str:
    """A text for a cell of a Markdown table, in which no sign has a meaning."""
    return re.sub(r"([\\`*_{}\[\]<>|#~$])", r"\\\1", text)


def as_code(text: str) -> str:
    """A text as code in a cell of a Markdown table."""
    if not text:
        return ""
    text = " ".join(text.split()).replace("|", "\\|")
    return f"``{text}``" if "`" in text else f"`{text}`"
