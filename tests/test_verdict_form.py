"""Have the lines of ``--verdicts`` the form that docs/verdicts.schema.json says?"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from reports import verdict_form
from suites.observation import SEVERITIES
from suites.summary import Versions
from suites.verdict import OUTCOMES, Verdict
from tests.runs import ROOT, run
from tests.test_wrong_frameworks import CASES

RECORD = ROOT / "records" / "torch-2.13.0.jsonl"


def test_the_page_is_what_the_types_say() -> None:
    """`python -m reports.verdict_form` writes it."""
    assert verdict_form.PAGE.read_text() == verdict_form.page()


def test_every_line_of_a_run_has_every_key_and_no_other(tmp_path: Path) -> None:
    """The first line has the versions; each value is one that the schema allows."""
    ran = run(
        tmp_path, "-p", "tests.toys.stand_in", f"--cases={CASES}", "--jax=off",
        TOY_WRONG="reduction doubled",
    )  # fmt: skip
    types = json.loads(verdict_form.PAGE.read_text())["$defs"]
    assert set(ran.versions) == set(types["Versions"]["required"])
    assert ran.versions["versions"] == {"torch": "1.0"}
    msgspec.convert(ran.versions, Versions)
    allowed = types["Verdict"]["properties"]
    assert set(allowed["verdict"]["enum"]) == set(OUTCOMES)
    assert set(allowed["severity"]["anyOf"][0]["enum"]) == set(SEVERITIES)
    assert ran.verdicts
    for line in ran.verdicts:
        assert list(line) == types["Verdict"]["required"]
        msgspec.convert(line, Verdict)
