"""Is what people read what the project does? Transcripts run, examples judged, pages fresh."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.registry import subjects
from cases import ledger
from cases.ledger import load_ledger
from cases.load import load
from conftest import pytest_addoption
from reports import changes, judged_catalogue
from reports.__main__ import PAGES
from reports.dry_run import stored_agreement
from suites import matrix
from suites.observation import SEVERITIES
from tests.runs import ROOT, run

README = (ROOT / "README.md").read_text()
DOCS = {path.name: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}


def block(mark: str) -> str:
    """The one fenced block that follows a comment, in the README or a page."""
    pattern = rf"<!-- {re.escape(mark)} -->\n```\w+\n(.*?)```"
    found = [
        block for text in (README, *DOCS.values()) for block in re.findall(pattern, text, re.DOTALL)
    ]
    assert len(found) == 1, mark
    return str(found[0])


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_the_transcript_is_what_its_command_prints() -> None:
    """Every row of the lesson, as docs/lesson.md shows it."""
    command, _, shown = block("transcript").partition("\n")
    assert command.startswith("$ python ")
    words = [sys.executable, *command.split()[2:]]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == shown


def test_the_example_is_judged(tmp_path: Path) -> None:
    """A user's own file, from TOML to verdicts in both frameworks."""
    path = tmp_path / "my_cases.toml"
    path.write_text(block("example: my_cases.toml"))
    ran = run(tmp_path, f"--cases={path}")
    steps = {(v["step"], v["aspect"], v["subject"]): v for v in ran.verdicts}
    assert steps["y", "global", "torch"]["verdict"] == "agree"
    assert steps["z", "shards", "jax/jit"]["verdict"] == "agree"
    assert steps["z", "collectives", "torch"]["verdict"] == "agree"


def test_the_trained_layer_is_judged(tmp_path: Path) -> None:
    """A recipe with data and a dry run, from docs/training.md, in both frameworks."""
    path = tmp_path / "my_layer.toml"
    path.write_text(block("example: my_layer.toml"))
    ran = run(tmp_path, f"--cases={path}")
    assert ran.code == 0, ran.out
    passes = {(v["case"], v["step"], v["subject"]): v["severity"]
              for v in ran.verdicts if v["aspect"] == "collectives"}  # fmt: skip
    for case in ("my-layer", "layer-of-405b"):
        for step in ("forward", "backward", "update"):
            assert passes[case, step, "torch"] is None
            # What costs more is told of one's own case, and does not fail it.
            assert passes[case, step, "jax/jit"] in (None, "free", "costly")


def test_the_ported_layer_goes_from_toml_to_verdict_to_script_to_ledger(tmp_path: Path) -> None:
    """All that the README says of the key cache is so."""
    path, out, known = tmp_path / "key_cache.toml", tmp_path / "out", tmp_path / "known.toml"
    path.write_text(block("example: key_cache.toml"))
    known.write_text(block("ledger: key_cache.toml"))
    ran = run(tmp_path, f"--cases={path}", f"--repro={out}")
    assert ran.code == 1
    told = [line.rstrip() for line in ran.out.splitlines()]
    for line in block("verdict: key_cache.toml").splitlines():
        assert line.rstrip() in told
    script = [sys.executable, str(out / "key-cache_torch.py")]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "rank 3 wanted [[0.0, 1.0" in done.stdout
    assert run(tmp_path, f"--cases={path}", f"--ledger={known}").code == 0


def test_the_examples_of_writing_cases_load(tmp_path: Path) -> None:
    """Every whole case in docs/cases.md is one."""
    text = (ROOT / "docs" / "cases.md").read_text()
    found = re.findall(r"<!-- example: (\S+) -->\n```toml\n(.*?)```", text, re.DOTALL)
    assert len(found) >= 2
    for name, body in found:
        (tmp_path / name).write_text(body)
        assert load(tmp_path / name)


def test_the_cause_of_writing_cases_loads(tmp_path: Path) -> None:
    """And every key, observation, relation, fact and kind of plan is named beside it."""
    text = (ROOT / "docs" / "cases.md").read_text()
    section = text[text.index("\n## Causes\n") :]
    found = re.search(r"<!-- ledger example -->\n```toml\n(.*?)```", section, re.DOTALL)
    assert found is not None
    (tmp_path / "own.toml").write_text(found[1])
    assert load_ledger(tmp_path / "own.toml", subjects())
    coded = {*ledger.KEYS, *ledger.CasePattern.__struct_fields__, *ledger.RELATIONS}
    assert {one for one in coded if f"`{one}`" not in section} == set()
    words = section.replace("\n", " ")
    assert {one for one in (*ledger.OBSERVATIONS, *ledger.PLANS) if one not in words} == set()


def test_the_aspects_and_severities_are_those_of_their_page() -> None:
    """A row each, in their order; and a row for each aspect."""
    rows = re.findall(r"^\| `?([a-z ]+)`? \|", DOCS["verdicts.md"], re.MULTILINE)
    assert sorted(one for one in rows if one in ledger.ASPECTS) == sorted(ledger.ASPECTS)
    assert [one for one in rows if one in SEVERITIES] == [*SEVERITIES]


def test_the_generated_pages_are_fresh() -> None:
    """The pages are what `python -m reports pages` would write; the catalogue is judged once."""
    stale = [path.name for path, page in PAGES.items() if path.read_text() != page()]
    assert stale == []


def test_every_cause_of_dry_runs_alone_explains_something() -> None:
    """No record has a dry run, so the stored outcomes say it."""
    met = {id for causes in stored_agreement().known.values() for id in causes}
    alone = {one.id for one in judged_catalogue.ledger() if one.observed == ("dry run differs",)}
    assert alone == met


def test_the_table_of_changes_counts_every_row() -> None:
    """144 rows, each subject in one of four columns."""
    for line in re.findall(r"^\| (?:torch|jax/\S+) \|.*$", changes.page(), re.MULTILINE):
        assert sum(map(int, re.findall(r"\| (\d+)", line))) == 144


def test_every_option_is_on_its_page() -> None:
    """And every option that the page names exists."""

    class Parser:
        def __init__(self) -> None:
            self.names: list[str] = []

        def getgroup(self, name: str) -> Parser:
            return self

        def addoption(self, *names: str, **kwargs: object) -> None:
            # What comes first is the name; the others are what it was called before.
            self.names.append(names[0])

    parser = Parser()
    pytest_addoption(parser)  # type: ignore[arg-type]
    told = set(re.findall(r"`(--[a-z-]+)", DOCS["options.md"]))
    assert set(parser.names) <= told
    others = {
        "--junitxml",
        "--lf",
        "--dist",
        "--cases",
        *matrix.make_parser()._option_string_actions,
    }
    assert told - set(parser.names) <= others


def test_every_link_to_a_file_leads_somewhere() -> None:
    """In the README and in the pages that it leads to."""
    top = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for page in (*top, *sorted((ROOT / "docs").glob("*.md"))):
        # What stands in code is no link.
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("command", ["tox -e parity", "tox -e tests"])
def test_the_commands_of_the_readme_are_environments(command: str) -> None:
    """Which `tox.ini` has."""
    assert f"$ {command}" in README
    assert f"[testenv:{command.split()[-1]}]" in (ROOT / "tox.ini").read_text()
