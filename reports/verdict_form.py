"""What form have the lines of ``--verdicts``? A JSON Schema of them, generated from the types.

``python -m reports.verdict_form`` writes docs/verdicts.schema.json. Reads no verdict.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from suites.sources import RECORDS
from suites.summary import Versions
from suites.verdict import Verdict

PAGE = RECORDS.parent / "docs" / "verdicts.schema.json"


def schema() -> dict[str, Any]:
    """The schema of one line: the first has the versions, each other one is a verdict."""
    lines, types = msgspec.json.schema_components(
        (Versions, Verdict), ref_template="#/$defs/{name}"
    )
    for one in types.values():
        # A line has every key, also where the value is the default.
        one["required"] = list(one["properties"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "a line of --verdicts",
        "description": "The first line has the versions. Each line after it is one verdict.",
        "anyOf": list(lines),
        "$defs": types,
    }


def page() -> str:
    """The text of docs/verdicts.schema.json."""
    return json.dumps(schema(), indent=2) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
