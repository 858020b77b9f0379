"""How do tests run the suite? As a user does: pytest in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from adapters import protocol
from adapters.answer import Answer
from adapters.framing import read_frame

ROOT = Path(__file__).resolve().parent.parent


class Ran(msgspec.Struct, frozen=True):
    """What a run left: exit code, what it printed, its verdict lines and its first line."""

    code: int
    out: str
    verdicts: list[dict[str, Any]]
    versions: dict[str, Any]

    def diverging(self) -> set[tuple[str, str | None, str, str]]:
        """(case, step, aspect, subject) of every divergence."""
        return {
            (one["case"], one["step"], one["aspect"], one["subject"])
            for one in self.verdicts
            if one["verdict"] == "divergence"
        }


def pytest_command(*args: str) -> list[str]:
    """The command line of a run of the suite."""
    return [
        sys.executable,
        "-m",
        "pytest",
        *([] if "cacheprovider" in args else ["-p", "no:cacheprovider"]),
        *args,
    ]


def run(folder: Path, *args: str, timeout: float = 120, **env: str) -> Ran:
    """Run the suite from the checkout, with its verdicts in ``folder``."""
    path = folder / "verdicts.jsonl"
    done = subprocess.run(
        pytest_command(f"--verdicts={path}", *args), cwd=ROOT, env={**os.environ, **env},
        capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    out = done.stdout + done.stderr
    return Ran(done.returncode, out, rows[1:], rows[0] if rows else {})


def read_from_worker(pipe: BinaryIO) -> protocol.Hello | Answer | None:
    """The next frame of a worker, None once it is gone."""
    body = read_frame(pipe.read)
    return None if body is None else protocol.decode(body)
