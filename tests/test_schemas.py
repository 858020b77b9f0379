"""Do the lines of ``--verdicts`` and of records have the form that docs/schemas/ publishes?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapters import record
from adapters.record_codec import StoredAnswers
from reports import schemas
from suites.observation import SEVERITIES
from suites.summary import Versions
from suites.verdict import OUTCOMES, Verdict
from tests.runs import ROOT, run
from tests.test_wrong_frameworks import CASES

RECORDS = sorted((ROOT / "records").glob("*-*.jsonl"))
RECORDS = [path for path in RECORDS if ".interface." not in path.name]


def published(name: str) -> dict[str, Any]:
    """A schema as it stands in docs/schemas/."""
    (path,) = (path for path in schemas.PAGES if path.name == f"{name}.schema.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def line_fits(schema: dict[str, Any], line: object) -> bool:
    """Whether a line fits a published schema."""
    jsonschema = pytest.importorskip("jsonschema")
    fits: bool = jsonschema.Draft202012Validator(schema).is_valid(line)
    return fits


def test_every_line_of_a_run_fits_the_schema(tmp_path: Path) -> None:
    """The first line has the versions, and each line has every key and no other."""
    ran = run(
        tmp_path, "-p", "tests.toys.stand_in", f"--cases={CASES}", "--jax=off",
        TOY_WRONG="reduction doubled",
    )  # fmt: skip
    schema = published("verdict")
    types = schema["$defs"]
    assert ran.versions["versions"] == {"torch": "1.0"}
    msgspec.convert(ran.versions, Versions)
    allowed = types["Verdict"]["properties"]
    assert set(allowed["verdict"]["enum"]) == set(OUTCOMES)
    assert set(allowed["severity"]["anyOf"][0]["enum"]) == set(SEVERITIES)
    assert ran.verdicts
    for line in ran.verdicts:
        assert list(line) == types["Verdict"]["required"]
        msgspec.convert(line, Verdict)
    for line in (ran.versions, *ran.verdicts):
        assert line_fits(schema, line), line


def test_a_line_that_is_no_verdict_does_not_fit_the_schema() -> None:
    """Neither with a key too many, nor with one too few, nor with a word that no verdict has."""
    schema = published("verdict")
    good = msgspec.to_builtins(Verdict("a", None, "global", "torch", "reference", "agree"))
    assert line_fits(schema, good)
    assert not line_fits(schema, {**good, "more": 1})
    assert not line_fits(schema, {key: good[key] for key in good if key != "step"})
    assert not line_fits(schema, {**good, "verdict": "good"})


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_lines_of_every_record_fit_the_schema(path: Path) -> None:
    """The header, and each fiftieth of the thousands of lines; by the types they fit as well."""
    schema = published("record")
    texts = path.read_bytes().splitlines()
    msgspec.json.decode(texts[0], type=record.Header)
    for text in texts[1::50]:
        msgspec.json.decode(msgspec.json.decode(text, type=record.Line).answers, type=StoredAnswers)
    lines = [json.loads(text) for text in texts]
    for line in (lines[0], *lines[1::50]):
        assert line_fits(schema, line), line
    assert not line_fits(schema, {**lines[0], "format": record.FORMAT + 1})
    first = next(
        line for line in lines[1:] if any("seen" in one for one in line["answers"].values())
    )
    subject = next(subject for subject, one in first["answers"].items() if "seen" in one)
    seen = first["answers"][subject]["seen"]
    broken = {name: {**one, "layuot": "P()"} for name, one in seen.items()}
    answers = {**first["answers"], subject: {"seen": broken}}
    assert not line_fits(schema, {**first, "answers": answers})
