"""Does ``--repro`` leave scripts where it says, for what fails and for what is known alone?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs import run

NOWHERE = ("--torch-python=/nowhere/python", "--jax-python=/nowhere/python")
# Owed by nobody before: torch refuses, which the ledger knows, or would if it did not.
CASES = """
[[case]]
id = "my/Refused"
source = "https://example.org/1"
mesh = { x = 2 }
program = ["y = redistribute(x, x=P(sum))"]
inputs.x = { shape = [4], placements = { x = "R" } }

[[case]]
id = "wrong"
mesh = { x = 2 }
program = ["y = redistribute(x, x=R)"]
right = { y = [0, 1, 2, 4] }
inputs.x = { shape = [4], placements = { x = "S(0)" } }

[[case]]
id = "right"
mesh = { x = 2 }
program = ["y = redistribute(x, x=R)"]
inputs.x = { shape = [4], placements = { x = "S(0)" } }
"""


@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_what_fails_or_is_known_leaves_a_script(tmp_path: Path, processes: tuple[str, ...]) -> None:
    """In a folder that is made for it; the summary says how many, the failure how to get it."""
    (tmp_path / "my.toml").write_text(CASES)
    out = tmp_path / "out"
    ran = run(tmp_path, f"--cases={tmp_path}/my.toml", "--jax=off", f"--repro={out}", *processes)
    assert {path.name for path in out.iterdir()} == {"my-refused_torch.py", "wrong_torch.py"}
    assert f"2 scripts in {out}" in ran.out
    alone = [line for line in ran.out.splitlines() if "alone   " in line]
    assert f"alone   python {out}/wrong_torch.py" in alone
    refused = (out / "my-refused_torch.py").read_text()
    assert refused.startswith("# my/Refused    https://example.org/1\n")
    assert "redistribute" in refused
    if processes:
        return
    done = subprocess.run(
        [sys.executable, out / "wrong_torch.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "wanted [0.0, 1.0, 2.0, 4.0]\n       got    [0.0, 1.0, 2.0, 3.0]" in done.stdout


def test_a_run_in_which_all_agrees_leaves_none(tmp_path: Path) -> None:
    """And makes no folder."""
    (tmp_path / "my.toml").write_text(CASES)
    out = tmp_path / "out"
    ran = run(tmp_path, f"--cases={tmp_path}/my.toml", "--jax=off", f"--repro={out}", "-k", "right")
    assert ran.code == 0
    assert "no scripts" in ran.out
    assert not out.exists()


@pytest.mark.parametrize("folder", ["none/out", "file"])
def test_a_bad_folder_is_one_line_and_starts_nothing(tmp_path: Path, folder: str) -> None:
    """One whose parent is not there, and a file."""
    (tmp_path / "file").write_text("")
    ran = run(tmp_path, *NOWHERE, f"--repro={tmp_path / folder}")
    assert ran.code == pytest.ExitCode.USAGE_ERROR
    (line,) = [one for one in ran.out.splitlines() if one.strip()]
    assert line.startswith(f"ERROR: --repro: found {tmp_path / folder}, wanted a folder")
