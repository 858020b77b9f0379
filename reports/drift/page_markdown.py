"""The drift page in Markdown: ``docs/drift.md``.

``python -m reports drift`` writes it from the committed records; a test checks that it is fresh.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cases.errors import format_count
from cases.model import Case
from reports.drift import tables
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
    shorten,
    shorten_pair,
    title,
)

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "drift.md"

# Longer texts are cut; `--finding` and the HTML page have them whole.
_MOST = 110
# Kinds of which it helps to see the step; errors say more.
_WITH_LINE = ("value", "layout", "count")

HEADS: dict[ChangeKind, str] = {
    "value": "Values", "layout": "Layouts", "count": "Collectives", "rounding": "Roundings",
    "memory": "Bytes of plans", "refusal": "Errors, crashes and hangs", "support": "Support",
    "default": "Defaults", "name": "Names", "signature": "Signatures", "printed": "Prints",
}  # fmt: skip


def page(stories: Sequence[FrameworkHistory], known: Mapping[str, Case]) -> str:
    """The page. ``known``: the catalogue, by id."""
    lines = [
        "# Drift",
        "",
        "What changed from release to release, in the committed records and nowhere else. Written"
        " by `python -m reports drift`; do not edit. [drift.html](drift.html) has the same to sort"
        " and filter, with every case; `python -m reports drift --case ID` tells one case through"
        " all releases, `python -m reports drift --finding ID` lists all cases of a finding."
        " [causes.md](causes.md) tells why frameworks diverge, and in which releases.",
        "",
        "Changes that are alike are one finding, shown by the smallest case that has it: fewest"
        " devices, then steps, then elements. *Silent* is a value, a layout or a count that changed"
        " in a program that ran to its end in both releases: nothing told its user. Within a kind"
        " silent findings come first, then numbers that were right and are wrong, those that were"
        " wrong and are right last, then what is found in most cases. Kinds, gravest first:",
        "",
        *(f"- **{kind}**: {KIND_MEANINGS[kind]}" for kind in CHANGE_KINDS),
        "",
        *_overview(stories),
        *_imports(stories),
        *_unseen(stories),
    ]
    for story in stories:
        for border in reversed(story.borders):
            own = [one for one in story.findings if one.newer == border.newer]
            lines += _border(border, own, known)
    return "\n".join(lines).rstrip() + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def escape_text(said: str) -> str:
    """A text that stands in a cell of a table as it is, whatever signs it has."""
    return re.sub(r"([\\`*_{}\[\]<>|#~$])", r"\\\1", said)


def as_code(said: str) -> str:
    """A text as code in a cell of a table: only the cell's own sign is taken from it."""
    if not said:
        return ""
    said = " ".join(said.split()).replace("|", "\\|")
    return f"``{said}``" if "`" in said else f"`{said}`"


def _overview(stories: Sequence[FrameworkHistory]) -> list[str]:
    lines = [
        "## What changed when",
        "",
        "Findings by kind; of values, layouts and collectives also in how many cases.",
        "",
    ]
    for story in stories:
        rows = []
        for row in tables.count_changes(story):
            cells = [_number(row, kind) for kind in CHANGE_KINDS]
            rows.append([f"[{row.border.older} → {row.border.newer}](#{anchor(row.border)})",
                         str(row.silent), *cells])  # fmt: skip
        lines += [f"**{story.framework}** {tables.format_records(story)}", ""]
        head = ["", "cases with another value, silently", *CHANGE_KINDS]
        lines += _table(head, rows) if rows else ["One release alone is recorded.", ""]
    return lines


def _number(row: tables.ChangeCounts, kind: ChangeKind) -> str:
    if kind in INTERFACE_KINDS and not row.border.listed:
        return "not listed"
    found, cases = row.findings[kind], row.cases[kind]
    return f"{found} ({cases:,})" if found and kind in ("value", "layout", "count") else str(found)


def anchor(border: Upgrade) -> str:
    """What a link to the section of a border says."""
    return f"{border.framework}-{border.older}-to-{border.newer}".replace(".", "")


def _imports(stories: Sequence[FrameworkHistory]) -> list[str]:
    lines = [
        "## Since which release a public import works",
        "",
        "Every public name that the records list and that is not in all of them, or warns in some,"
        " with the first recorded release that has it: it may have come with one in between.",
        "",
    ]
    for story in stories:
        rows, always = tables.find_availability(story)
        lines += [f"**{story.framework}**", ""]
        if not rows and not always:
            lines += ["No release's interface is recorded.", ""]
            continue
        cells = [
            [as_code(row.path), row.since, row.until, escape_text(shorten(row.warns, _MOST))]
            for row in rows
        ]
        lines += _table(["name", "works since", "until", "warns in"], cells)
        lines += [
            "<details>",
            f"<summary>{format_count(len(always), 'name')} in every recorded release</summary>",
            "",
            ", ".join(map(as_code, always)),
            "",
            "</details>",
            "",
        ]
    return lines


def _unseen(stories: Sequence[FrameworkHistory]) -> list[str]:
    lines = [
        "## What was not seen",
        "",
        "Where a release hides its collectives, or a step of one of the two cannot be counted,"
        " nothing is said of a change: *not seen* is not zero.",
        "",
    ]
    said = [
        f"- {story.framework} {release.release}, not seen: {escape_text(sentence)}"
        for story in stories
        for release in story.releases
        for sentence in release.unseen
    ]
    lines += [*(said or ["No release says that it hides anything."]), ""]
    rows = [
        [f"{border.framework} {border.older} → {border.newer}", f"{border.asked:,}",
         *(f"{number:,}" for number in tables.count_left_out(border))]
        for story in stories
        for border in reversed(story.borders)
    ]  # fmt: skip
    head = ["", "questions that both were asked", "asked of one alone, or in other words",
            "answers that differ from run to run, left out",
            "steps whose collectives were not seen in one of the two"]  # fmt: skip
    return lines + _table(head, rows)


def _border(border: Upgrade, found: Sequence[DriftFinding], known: Mapping[str, Case]) -> list[str]:
    lines = [
        f'<a id="{anchor(border)}"></a>',
        "",
        f"## {border.framework} {border.older} → {border.newer}",
        "",
        f"{format_count(len(found), 'finding')} in {format_count(len(border.changes), 'change')}, of"
        f" {format_count(border.asked, 'question')}"
        + ("." if border.listed else "; the interface of one of the two is not recorded."),
        "",
    ]
    for kind in CHANGE_KINDS:
        own = [one for one in found if one.kind == kind]
        if own:
            lines += [f"### {HEADS[kind]}, {border.framework} {border.newer}", ""]
            lines += _table(["finding", "", "smallest", "before", "after"],
                            (_row(one, known) for one in own))  # fmt: skip
    return lines


def _row(finding: DriftFinding, known: Mapping[str, Case]) -> list[str]:
    small = finding.smallest
    silent = "**silent** " if finding.silent else ""
    where = format_places(finding)
    what = f"{silent}{escape_text(shorten(title(finding), _MOST))}" + (
        f" ({escape_text(where)})" if where else ""
    )
    size = format_extent(finding)
    if finding.kind not in INTERFACE_KINDS:
        size += f", {finding.subject}"
    smallest = as_code(case_name(small.case, known)) + (
        f" at {as_code(small.step)}" if small.step else ""
    )
    if small.case in known and finding.kind in _WITH_LINE:
        smallest += f": {as_code(shorten(format_step(known[small.case], small.step), _MOST))}"
    cells = [shorten_pair(*pair, _MOST) for pair in ((small.before, small.after), *small.counts)]
    before, after = ("<br>".join(map(as_code, side)) for side in zip(*cells))
    return [f"{as_code(finding.id)} {what}", size, smallest, before, after]
