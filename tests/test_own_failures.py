"""A failure of a user's own case offers a cause that excuses it, and commands that show it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.registry import subjects
from cases.ledger import load_ledger
from suites.ready_cause import message_pattern
from tests.runs import ROOT, Ran, run

# One is refused, one has a wrong value by its own word, one hangs: rank 3 has no row to take the
# maximum of, and the others wait for it to gather. One is right, and its id is within another.
CASES = """
[[case]]
id = "my/Refused"
mesh = { x = 2 }
program = ["y = redistribute(x, x=P(sum))", "z = add(y, y)"]
inputs.x = { shape = [4], placements = { x = "R" } }

[[case]]
id = "wrong"
mesh = { x = 2 }
program = ["y = redistribute(x, x=R)"]
right = { y = [0, 1, 2, 4] }
inputs.x = { shape = [4], placements = { x = "S(0)" } }

[[case]]
id = "wrong-not"
mesh = { x = 2 }
program = ["y = redistribute(x, x=R)"]
inputs.x = { shape = [4], placements = { x = "S(0)" } }

[[case]]
id = "hung"
mesh = { x = 4 }
program = ["m = max(x)"]
inputs.x = { shape = [5, 3], placements = { x = "S(0)" } }
"""
FAILING = {
    "my-refused": "torch: refused at y",
    "wrong": "torch: wrong value of y",
    "hung": "torch: hung at m",
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cases above, in a file of a user's own."""
    path = tmp_path_factory.mktemp("own") / "my.toml"
    path.write_text(CASES)
    return path


@pytest.fixture(scope="module")
def ran(file: Path) -> Ran:
    """A run of them with torch alone."""
    return run(file.parent, f"--cases={file}", "--jax=off", COLUMNS="200")


def told(ran: Ran) -> dict[str, list[str]]:
    """By case: the lines of its failure text."""
    parts = re.split(r"^_+ test_cases\[(\S+)\] _+$", ran.out, flags=re.MULTILINE)
    texts = dict(zip(parts[1::2], parts[2::2]))
    return {id: text.partition("\n=====")[0].strip().splitlines() for id, text in texts.items()}


def test_the_first_line_says_what_is_wrong_and_is_what_pytest_sums_up(ran: Ran) -> None:
    assert set(told(ran)) == set(FAILING)
    for id, lines in told(ran).items():
        assert lines[0].startswith(FAILING[id]), lines[0]
        assert len(lines[0]) <= 110
        assert f"[{id}] - {lines[0]}" in ran.out


def test_a_failure_offers_a_cause_that_excuses_it(ran: Ran, file: Path, tmp_path: Path) -> None:
    """Of a wrong value, a refusal and a hang: it loads as it is printed, and the case passes."""
    path = tmp_path / "mine.toml"
    text = ""
    for lines in told(ran).values():
        (start,) = (at for at, line in enumerate(lines) if line.startswith("excuse"))
        (stop,) = (at for at, line in enumerate(lines) if line.startswith("again"))
        text += "\n".join(line.strip() for line in lines[start + 1 : stop]) + "\n"
    path.write_text(text)
    causes = load_ledger(path, subjects())
    assert {cause.observed for cause in causes} == {("refused",), ("wrong value",), ("hung",)}
    again = run(tmp_path, f"--cases={file}", "--jax=off", f"--ledger={path}")
    assert again.code == 0, again.out
    assert {v["ledger"] for v in again.verdicts if v["verdict"] == "known"} == {
        cause.id for cause in causes
    }


@pytest.mark.parametrize("id", list(FAILING))
def test_each_command_that_is_printed_shows_the_failure(ran: Ran, id: str, tmp_path: Path) -> None:
    """Run as it stands in a shell: the pytest command alone, and the one that writes a script."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    commands = [line[8:] for line in told(ran)[id] if line.startswith(("again", "alone"))]
    assert len(commands) == 2
    # What the first runs is the start of the second.
    assert commands[1].startswith(commands[0])
    done = subprocess.run(
        commands[1].replace("--repro=out", f"--repro={tmp_path}/out").replace(
            "python out/", f"python {tmp_path}/out/"
        ),
        shell=True, cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": path, "PYTEST_ADDOPTS": "-p no:cacheprovider"},
    )  # fmt: skip
    assert "1 failed" in done.stdout
    assert FAILING[id] in done.stdout
    # The script is the last to run, and says what it wanted and what it got.
    assert done.returncode == 1, done.stderr
    shown = done.stdout.rpartition(" in ")[2]
    assert "wanted" in shown
    assert "got" in shown


def test_a_pattern_holds_whatever_the_numbers_are() -> None:
    said = "ValueError: size 4 (of [0x7f3a, 2.5]) does not fit"
    assert re.search(message_pattern(said), said)
    assert re.search(message_pattern(said), said.replace("4", "12").replace("0x7f3a", "0xbeef"))
    assert not re.search(message_pattern(said), said.replace("fit", "do"))
