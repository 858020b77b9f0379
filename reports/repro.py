"""Which scripts does ``--repro`` write? One per case and framework that fails or is known.

A pytest plugin, which `conftest` registers. Knows no framework's lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adapters.answer import Answer
from adapters.registry import FRAMEWORKS, load_part
from cases.model import Case, slug
from reports.faults import NoScript, find_faults
from suites.judge import Judgement

_REPORT_ATTRIBUTE = "shard_parity_scripts"


def check_scripts() -> None:
    """Refuse a framework whose module of scripts is not there, or lacks something.

    Raises:
        BadInput: which framework, what was found and what is wanted.
    """
    for name, row in FRAMEWORKS.items():
        if row.script:
            load_part(name, "script")


def make_scripts(
    case: Case,
    judgement: Judgement,
    answers: Mapping[str, Answer],
    releases: Mapping[str, str],
) -> tuple[dict[str, str], list[str]]:
    """The scripts of a case by file name; and a sentence for each framework that has none.

    ``releases``: the release of each framework that will run its script.
    """
    if case.question.mode == "dry run":
        return {}, [f"{case.id}: a dry run has no data"]
    if case.question.recipe is not None:
        return {}, [f"{case.id}: a training step is a model, not a few lines"]
    found, missing = find_faults(case, judgement, answers)
    made = {}
    for framework, fault in found.items():
        if not FRAMEWORKS[framework].script:
            missing[framework] = "the framework supplies no scripts"
            continue
        script = load_part(framework, "script").script
        try:
            made[f"{slug(case.id)}_{framework}.py"] = script(case, fault, releases[framework])
        except NoScript as error:
            missing[framework] = str(error)
    return made, [f"{case.id}, {name}: {why}" for name, why in missing.items()]


class ScriptWriter:
    """Writes the scripts of `make_scripts` into ``folder``, and counts them in the summary.

    Under pytest-xdist each process writes those of its own items; the main process counts them.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.written: list[str] = []
        self.missing: list[str] = []

    def write(self, report: Any, made: Mapping[str, str], missing: list[str]) -> None:
        """Write the scripts of an item, and send their names along with its report."""
        if made:
            self.folder.mkdir(exist_ok=True)
        for name, text in made.items():
            (self.folder / name).write_text(text)
        setattr(report, _REPORT_ATTRIBUTE, [list(made), missing])

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Remember the names that came with a report."""
        written, missing = getattr(report, _REPORT_ATTRIBUTE, ([], []))
        self.written += written
        self.missing += missing

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """How many scripts there are and where, and what has none."""
        terminalreporter.section("scripts")
        count = f"{len(self.written):,} script{'' if len(self.written) == 1 else 's'}"
        terminalreporter.write_line(f"{count} in {self.folder}" if self.written else "no scripts")
        for line in sorted(self.missing):
            terminalreporter.write_line(f"none for {line}")
