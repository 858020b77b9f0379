"""How does a page come from its template? The templates are in ``reports/templates/``.

A template has a page's sentences, and its module in this folder has the data. Knows no page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import jinja2
import msgspec

from cases.errors import format_count

_HERE = Path(__file__).resolve().parent
DOCS = _HERE.parent / "docs"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [head, *rows]
    first, *rest = ("| " + " | ".join(map(str, line)) + " |" for line in lines)
    return "\n".join([first, "|" + "---|" * len(head), *rest])


def code(text: str) -> str:
    """A short text as code in Markdown."""
    return f"`{text}`"


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(_HERE / "templates"),
    # Only what is HTML has signs of HTML to escape.
    autoescape=lambda name: name is not None and ".html" in name,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.globals |= {"table": table, "format_count": format_count}
_ENVIRONMENT.filters["code"] = code


def render(name: str, **values: object) -> str:
    """The text of a page or script, by the template of the same name."""
    return _ENVIRONMENT.get_template(f"{name}.j2").render(values)


def store(outcomes: msgspec.Struct, path: Path) -> None:
    """Write outcomes of a run as JSON that a diff can show."""
    text = msgspec.json.encode(outcomes, order="sorted")
    path.write_bytes(msgspec.json.format(text, indent=1) + b"\n")
