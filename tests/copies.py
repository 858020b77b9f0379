"""How do tests follow a recipe of CONTRIBUTING.md? In a copy of the checkout, as a person would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from suites.sources import pinned_releases
from tests.runs import ROOT

ROOMS = ("adapters", "cases", "suites", "reports", "tests", "docs")
FILES = ("conftest.py", "pyproject.toml", "tox.ini", "CONTRIBUTING.md", "README.md")


def copy_checkout(folder: Path) -> Path:
    """A copy in ``folder``, with the records of the releases that the project runs alone."""
    copy = folder / "checkout"
    for room in ROOMS:
        shutil.copytree(ROOT / room, copy / room, ignore=shutil.ignore_patterns("__pycache__"))
    for file in FILES:
        shutil.copy(ROOT / file, copy)
    (copy / "records").mkdir()
    for name, release in pinned_releases().items():
        for path in (ROOT / "records").glob(f"{name}-{release}.*"):
            shutil.copy(path, copy / "records")
    return copy


def edit(path: Path, old: str, new: str) -> None:
    """Replace a text that a file has once."""
    text = path.read_text()
    assert text.count(old) == 1, (path, old)
    path.write_text(text.replace(old, new))


def python(copy: Path, *words: str, code: int = 0, **env: str) -> str:
    """What ``python`` prints there, run with ``words``; it has to end with ``code``."""
    done = subprocess.run(
        [sys.executable, *words], cwd=copy, env={**os.environ, **env}, capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    out = done.stdout + done.stderr
    assert done.returncode == code, out
    return out


def pytest(copy: Path, *words: str, code: int = 0, **env: str) -> str:
    """The same of ``python -m pytest``."""
    return python(copy, "-m", "pytest", "-p", "no:cacheprovider", *words, code=code, **env)
