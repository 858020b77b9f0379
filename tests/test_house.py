"""Does the house stand as it was drawn? Who imports whom, what reaches a worker, what is said."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from adapters import protocol
from adapters.registry import subjects
from cases.catalogue import FAMILIES, catalogue
from cases.ledger import LEDGER, PLANS, Aspect, Observed, load_ledger
from cases.model import Case, Expectation, Question, slug
from suites.aspects import TENSOR_ASPECTS
from suites.observation import KIND_NAMES, RedistributionPlanKind
from tests.runs import ROOT

FRAMEWORKS = {"torch", "jax", "jaxlib"}


def modules(*folders: str) -> Iterator[tuple[Path, set[str]]]:
    """Our modules, and the top-level packages or rooms of the house that each imports."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            names = set()
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    names |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    names.add(node.module.partition(".")[0])
            yield path.relative_to(ROOT), names


@pytest.mark.parametrize(
    ("folder", "unknown"),
    [
        ("cases", FRAMEWORKS | {"pytest", "adapters", "suites", "reports"}),
        ("adapters", {"pytest", "suites", "reports"}),
        ("adapters/reference", FRAMEWORKS | {"pytest", "suites", "reports"}),
        ("suites", FRAMEWORKS | {"reports"}),
        ("reports", FRAMEWORKS | {"pytest"}),
    ],
)
def test_a_room_knows_only_those_to_its_left(folder: str, unknown: set[str]) -> None:
    """Data flows one way: cases, adapters, suites, reports."""
    assert [(path, names & unknown) for path, names in modules(folder) if names & unknown] == []


def test_no_adapter_knows_an_expectation_or_the_ledger() -> None:
    """What is right never reaches what answers."""
    for path, _ in modules("adapters"):
        text = (ROOT / path).read_text()
        assert "Expectation" not in text, path
        assert "cases.ledger" not in text, path
        assert "Case(" not in text, path
        assert "recipes.contracts" not in text, path
        # What a model computes: the reference has it, and frameworks have their own.
        assert "recipes.meaning import" not in text or path.parts[1] == "reference", path


def test_no_module_imports_both_frameworks() -> None:
    """Neither ours nor our tests'."""
    for path, names in modules("cases", "adapters", "suites", "reports", "tests", "benchmarks"):
        assert not {"torch", "jax"} <= names, path


def test_no_module_is_longer_than_500_lines() -> None:
    """Above that it is split."""
    for path, _ in modules("cases", "adapters", "suites", "reports", "tests", "benchmarks"):
        assert len((ROOT / path).read_text().splitlines()) <= 500, path


def test_collecting_imports_no_framework() -> None:
    """``pytest --collect-only`` knows every case and loads neither torch nor JAX."""
    code = (
        "import sys, pytest; code = pytest.main(['--collect-only', '-q', 'suites']);"
        "print('imported', sorted({'torch', 'jax'} & set(sys.modules))); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "imported []" in done.stdout
    assert f"{len(catalogue()):,}".replace(",", "") in done.stdout


def _types(hint: Any, seen: set[Any]) -> set[Any]:
    """Every type that a value of this type can hold."""
    for inner in get_args(hint) or (hint,):
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct) and inner not in seen:
            seen.add(inner)
            for field in get_type_hints(inner).values():
                _types(field, seen)
        elif get_args(inner):
            _types(inner, seen)
    return seen


def test_only_the_question_is_sent_to_a_worker() -> None:
    """By its type, what a run sends can hold a question, and no case and no expectation."""
    types = _types(protocol.Ask, set())
    assert Question in types
    assert not types & {Case, Expectation}


def test_ids_are_unique_and_can_be_typed() -> None:
    """Over the whole catalogue: of a-z, 0-9, dot, underscore and hyphen."""
    ids = [slug(case.id) for case in catalogue()]
    assert len(set(ids)) == len(ids)
    assert all(set(id) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-") for id in ids)


def test_every_family_has_a_suite() -> None:
    """A module of its own, with a test of its name."""
    for name in FAMILIES:
        assert f"def test_{name}(" in (ROOT / "suites" / f"test_{name}.py").read_text()


def test_the_ledger_speaks_of_what_can_be_observed() -> None:
    """Kinds of observation and of plans have the same names in the ledger and in the suite."""
    assert {*get_args(Observed)} == {*KIND_NAMES.values()}
    assert {*PLANS} == {*get_args(RedistributionPlanKind)}
    assert {one.aspect for one in TENSOR_ASPECTS} <= {*get_args(Aspect)}


def test_every_cause_has_a_reason_and_a_report_or_none() -> None:
    """A sentence; a link, or the day on which none was found; an id that says what is wrong."""
    for cause in load_ledger(LEDGER, subjects()):
        assert cause.why.strip().endswith("."), cause.id
        assert cause.link or cause.unreported, cause.id
        assert not re.search(r"-until-|-since-|-in-\d|-on-the-way$|-\d$", cause.id), cause.id


def test_no_cause_is_told_by_a_case_or_a_release() -> None:
    """In which cases and releases a cause shows follows from the records."""
    ids = {slug(case.id) for case in catalogue()}
    for path in LEDGER.glob("*.toml"):
        quoted = {*re.findall(r'"([^"\n]*)"', path.read_text())}
        assert not quoted & ids, path.name
