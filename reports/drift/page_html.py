"""The drift page as one HTML file that asks nothing of anyone: ``docs/drift.html``.

All rows are in the text; `page.js` sorts and filters them. ``python -m reports drift`` writes it
from the committed records; a test checks that it is fresh.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from string import Template

from cases.errors import format_count
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
    shorten,
    shorten_pair,
    title,
)

_HERE = Path(__file__).resolve().parent
PAGE = _HERE.parent.parent / "docs" / "drift.html"

# Longer texts are cut; `--finding` has them whole.
_MOST = 300


def page(stories: Sequence[FrameworkHistory], known: Mapping[str, Case]) -> str:
    """The page. ``known``: the catalogue, by id."""
    found = [(story, one) for story in stories for one in story.findings]
    when = {
        (story.framework, release.release): place
        for story in stories
        for place, release in enumerate(story.releases)
    }
    # The gravest first over all releases, and of two alike the newer.
    found.sort(
        key=lambda pair: (
            *severity_order(pair[1])[:4],
            -_when(when, pair[1]),
            severity_order(pair[1]),
        )
    )
    folded = [one.cases for _, one in found if len(one.cases) > 1]
    names = sorted({case_name(case, known) for cases in folded for case in cases})
    numbers = {name: number for number, name in enumerate(names)}
    rows = [_row(one, _when(when, one), known, numbers) for _, one in found]
    parts = {
        "style": (_HERE / "page.css").read_text(),
        "script": (_HERE / "page.js").read_text(),
        "frameworks": " and ".join(story.framework for story in stories),
        "overview": "\n".join(_overview(story) for story in stories),
        "kinds": "\n".join(
            f"<dt>{kind}</dt><dd>{escape(KIND_MEANINGS[kind])}</dd>" for kind in CHANGE_KINDS
        ),
        "framework_options": _options(story.framework for story in stories),
        "border_options": "".join(_upgrade_options(story) for story in stories),
        "kind_options": _options(CHANGE_KINDS),
        "rows": "\n".join(rows),
        "imports": "\n".join(_imports(story) for story in stories),
        "unseen": _unseen(stories),
        # "<" would end the element that it stands in.
        "names": json.dumps(names, ensure_ascii=False).replace("<", "\\u003c"),
    }
    return Template((_HERE / "page.html").read_text()).substitute(parts)


def _when(when: Mapping[tuple[str, str], int], finding: DriftFinding) -> int:
    return when[finding.framework, finding.newer]


def _options(values: Iterable[str]) -> str:
    return "".join(f"<option>{escape(value)}</option>" for value in values)


def _upgrade_options(story: FrameworkHistory) -> str:
    options = "".join(
        f'<option value="{upgrade_key(border)}">{border.older} → {border.newer}</option>'
        for border in reversed(story.borders)
    )
    return f'<optgroup label="{story.framework}">{options}</optgroup>'


def upgrade_key(border: Upgrade | DriftFinding) -> str:
    """What a border is called in the page: ``torch-2.14.1``, by the newer release."""
    return f"{border.framework}-{border.newer}"


def _code(text: str, most: int = _MOST) -> str:
    return f"<code>{escape(shorten(text, most), quote=False)}</code>" if text else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], style: str) -> str:
    """A table; cells are HTML, heads plain text. Class "stack": cards on a narrow screen."""
    top = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    body = "\n".join(
        "<tr>"
        + "".join(
            f'<td data-label="{escape(label)}">{cell}</td>' if label else f"<td>{cell}</td>"
            for label, cell in zip(head, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    table = (
        f'<table class="{style}"><thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody></table>'
    )
    return f'<div class="scroll">{table}</div>'


def _overview(story: FrameworkHistory) -> str:
    rows = []
    for row in tables.count_changes(story):
        border = row.border
        link = f'<a href="#findings" data-border="{upgrade_key(border)}">{border.older} → {border.newer}</a>'
        rows.append(
            [link, _format_number(row.silent), *(_number(row, kind) for kind in CHANGE_KINDS)]
        )
    top = f"<h3>{story.framework}</h3>\n<p>{tables.format_records(story)}</p>"
    if not rows:
        return f"{top}\n<p>One release alone is recorded.</p>"
    return f"{top}\n{_table(['', 'silent values', *CHANGE_KINDS], rows, 'numbers')}"


def _format_number(number: int) -> str:
    return f"{number:,}" if number else "<small>0</small>"


def _number(row: tables.ChangeCounts, kind: ChangeKind) -> str:
    if kind in INTERFACE_KINDS and not row.border.listed:
        return "<small>not listed</small>"
    found, cases = row.findings[kind], row.cases[kind]
    if not found:
        return _format_number(0)
    link = f'<a href="#findings" data-border="{upgrade_key(row.border)}" data-kind="{kind}">{found:,}</a>'
    return link if kind in INTERFACE_KINDS else f"{link} <small>in {cases:,}</small>"


def _row(
    finding: DriftFinding, when: int, known: Mapping[str, Case], numbers: Mapping[str, int]
) -> str:
    small = finding.smallest
    kinds = f"{finding.kind} count" if finding.with_counts else finding.kind
    silent = "<br><i>silent</i>" if finding.silent else ""
    where = format_places(finding)
    what = f"{escape(title(finding))}" + (f" <small>in {escape(where)}</small>" if where else "")
    between, subject = f"{finding.older} → {finding.newer}", finding.subject
    more = f"<br><small>{subject}</small>" if subject != finding.framework else ""
    texts = [shorten_pair(*pair, _MOST) for pair in ((small.before, small.after), *small.counts)]
    smallest = _code(case_name(small.case, known))
    if small.case in known:
        said = format_step(known[small.case], small.step)
        smallest += f"<br><small>{escape(shorten(said, _MOST), quote=False)}</small>"
    cells = [
        f"<b>{finding.kind}</b>{silent}",
        f"{finding.framework} <span>{between}</span>{more}",
        f"{what}<br>{_cases(finding, known, numbers)}",
        smallest,
        _side([one for one, _ in texts]),
        _side([other for _, other in texts]),
    ]
    said = " data-silent" if finding.silent else ""
    return (
        f'<tr id="{finding.id}" data-border="{upgrade_key(finding)}" data-kinds="{kinds}"'
        f' data-when="{when}" data-cases="{len(finding.cases)}"{said}>'
        + "".join(f"<td>{cell}</td>" for cell in cells)
        + "</tr>"
    )


def _side(texts: Sequence[str]) -> str:
    first, *counts = texts
    return _code(first) + "".join(
        f"<br><small>{escape(one, quote=False)}</small>" for one in counts
    )


def _cases(finding: DriftFinding, known: Mapping[str, Case], numbers: Mapping[str, int]) -> str:
    cases = finding.cases
    if len(cases) == 1:
        return f"{format_extent(finding)} <small>{finding.id}</small>"
    spans = format_ranges(sorted(numbers[case_name(case, known)] for case in cases))
    return (
        f'<details data-cases="{spans}"><summary>{format_extent(finding)} <small>{finding.id}</small>'
        "</summary><ul></ul></details>"
    )


def format_ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers in short: ``3-5,9``."""
    found = []
    for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        found.append(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]))
    return ",".join(found)


def _imports(story: FrameworkHistory) -> str:
    rows, always = tables.find_availability(story)
    if not rows and not always:
        return f"<h3>{story.framework}</h3>\n<p>No release's interface is recorded.</p>"
    cells = [
        [_code(row.path), row.since, row.until, escape(shorten(row.warns, _MOST))] for row in rows
    ]
    head = ["name", "works since", "until", "warns in"]
    return (
        f"<h3>{story.framework}</h3>\n{_table(head, cells, 'stack')}\n<details><summary>"
        f"{format_count(len(always), 'name')} in every recorded release</summary>"
        f"<p>{', '.join(map(_code, always))}</p></details>"
    )


def _unseen(stories: Sequence[FrameworkHistory]) -> str:
    said = [
        f"<li>{story.framework} {release.release}, not seen: {escape(sentence)}</li>"
        for story in stories
        for release in story.releases
        for sentence in release.unseen
    ]
    told = f"<ul>{''.join(said)}</ul>" if said else "<p>No release says that it hides anything.</p>"
    rows = [
        [f"{border.framework} {border.older} → {border.newer}", f"{border.asked:,}",
         *(f"{number:,}" for number in tables.count_left_out(border))]
        for story in stories
        for border in reversed(story.borders)
    ]  # fmt: skip
    head = ["releases", "asked of both", "asked of one alone, or otherwise",
            "unstable, left out", "steps not seen in one of the two"]  # fmt: skip
    return f"{told}\n{_table(head, rows, 'stack')}"
