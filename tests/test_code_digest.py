"""Is a change of an adapter told from all that changes no answer?"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.code_digest import digest_code, find_source_files
from adapters.registry import FRAMEWORKS
from tests.runs import ROOT

TORCH = FRAMEWORKS["torch"].adapter

# Names of our modules that are loaded when an adapter is.
LOADED = """
import importlib, sys
importlib.import_module("adapters.worker"), importlib.import_module(sys.argv[1])
print(*(one for one in sys.modules if one.partition(".")[0] in ("adapters", "cases")))
"""


def names(module: str) -> set[str]:
    """The modules that count, as Python calls them."""
    paths = [path.relative_to(ROOT).with_suffix("") for path in find_source_files(module)]
    return {".".join(path.parts).removesuffix(".__init__") for path in paths}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_whatever_is_loaded_counts(framework: str) -> None:
    """By a worker that has the framework."""
    module = FRAMEWORKS[framework].adapter
    command = [sys.executable, "-c", LOADED, module]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {*done.stdout.split()}
    assert module in loaded
    assert loaded - names(module) == set()


def test_what_changes_no_answer_does_not_count() -> None:
    """Of other frameworks, of the catalogue, of what is right, of how answers are kept."""
    found = names(TORCH)
    assert {
        "adapters.torch_dtensor.op_table",
        "adapters.torch_dtensor.recipes.parallel_plans",
    } <= found
    assert {"adapters.worker_client", "adapters.scrub", "adapters.worker", "cases.layout"} <= found
    for other in (
        "adapters.jax_xla", "adapters.record", "adapters.record_codec", "adapters.interface",
        "adapters.torch_dtensor.interface", "cases.catalogue", "cases.ledger", "cases.expectations",
        "cases.recipes.contracts",
    ):  # fmt: skip
        assert not any(f"{name}.".startswith(f"{other}.") for name in found), other


def test_the_digest_is_of_what_counts_wherever_it_lies(tmp_path: Path) -> None:
    """A line more in an adapter changes it; in another, or in the catalogue, it does not."""
    for room in ("adapters", "cases"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    counts = {
        "cases/catalogue/lesson.toml": False,
        "cases/catalogue/operators.py": False,
        "adapters/jax_xla/op_table.py": False,
        "adapters/torch_dtensor/op_table.py": True,
        "cases/layout.py": True,
    }
    for name, changes in counts.items():
        path = tmp_path / name
        text = path.read_text()
        path.write_text(text + "# more\n")
        digest_code.cache_clear()
        assert (digest_code(TORCH, tmp_path) != digest_code(TORCH)) == changes, name
        path.write_text(text)
    assert digest_code(TORCH) != digest_code(FRAMEWORKS["jax"].adapter)
