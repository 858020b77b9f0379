"""Which form have the lines of ``--verdicts`` and of records? As JSON Schemas, made from the types.

A schema is of one version of its format, which the first line of a file states. Reads no file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from adapters import record
from adapters.record_codec import StoredAnswers
from reports.templates import DOCS
from suites import verdict
from suites.summary import Versions

_SCHEMAS = DOCS / "schemas"


def verdict_schema() -> dict[str, Any]:
    """The schema of one line of ``--verdicts``: the first line, or a verdict."""
    text = "The first line has the versions. Each line after it is one verdict."
    schema = _schema("a line of --verdicts", text, verdict.FORMAT, Versions, verdict.Verdict)
    for one in schema["$defs"].values():
        # A line has every key, and no other.
        one["required"] = list(one["properties"])
        one["additionalProperties"] = False
    return schema


def record_schema() -> dict[str, Any]:
    """The schema of one line of a record: its header, or the answers to a question."""
    text = (
        "The first line is the header. Each line after it has the answers to one question. An"
        " answer is a text where it is only an end ('refused at y: ...') or equals that of an"
        " earlier subject ('as jax/jit'). A text that begins with # names an array in the file"
        " NAME.values.xz beside the record."
    )
    schema = _schema("a line of a record", text, record.FORMAT, record.Header, record.Line)
    (answers,), types = msgspec.json.schema_components((StoredAnswers,), ref_template=_REFERENCE)
    schema["$defs"] |= types
    schema["$defs"]["Line"]["properties"]["answers"] = answers
    return schema


_REFERENCE = "#/$defs/{name}"


def _schema(title: str, text: str, version: int, *lines: type) -> dict[str, Any]:
    """The schema of files whose lines are of these types; the first type states the version."""
    either, types = msgspec.json.schema_components(lines, ref_template=_REFERENCE)
    types[lines[0].__name__]["properties"]["format"] = {"const": version}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{title}, format {version}",
        "description": text,
        "anyOf": list(either),
        "$defs": types,
    }


def _page(schema: Callable[[], dict[str, Any]]) -> Callable[[], str]:
    return lambda: json.dumps(schema(), indent=2) + "\n"


PAGES: dict[Path, Callable[[], str]] = {
    _SCHEMAS / "verdict.schema.json": _page(verdict_schema),
    _SCHEMAS / "record.schema.json": _page(record_schema),
}
