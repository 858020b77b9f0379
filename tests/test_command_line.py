"""Does pytest do with our options what a user expects? Bad ones are refused before a start."""

from __future__ import annotations

import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from adapters.registry import subjects
from suites.summary import worst_by_subject
from suites.verdict import Verdict
from tests.runs import ROOT, run

NOWHERE = ("--torch-python=/nowhere/python", "--jax-python=/nowhere/python")
GOOD = """
[[case]]
id = "good"
mesh = { x = 2 }
inputs.x = { shape = [4], placements = { x = "S(0)" } }
"""
CAUSE = """
[[cause]]
id = "a"
subject = "torch"
observed = "wrong value"
why = "A slip of the pen."
"""
RECORDS = ROOT / "records"
TORCH, JAX = f"--torch={RECORDS}/torch-2.13.0.jsonl", f"--jax={RECORDS}/jax-0.10.2.jsonl"


@pytest.mark.parametrize(
    ("files", "args", "line"),
    [
        (
            {"a.toml": GOOD.replace("S(0)", "S(1)")}, ["--cases={}/a.toml"],
            '{}/a.toml: case "good": inputs.x.placements.x: found',
        ),
        ({"a.toml": GOOD + GOOD}, ["--cases={}/a.toml"], '{}/a.toml: case "good": id: found'),
        ({"a.toml": "[[case"}, ["--cases={}/a.toml"], "{}/a.toml: "),
        ({}, ["--cases={}/none.toml"], "{}/none.toml: found"),
        ({}, ["--ledger={}/none.toml"], "{}/none.toml: found"),
        ({"l.toml": "[[cause]]\nid = 3"}, ["--ledger={}/l.toml"], "{}/l.toml: cause[0]"),
        ({"r": "text"}, ["--torch={}/r"], "{}/r: line 1: found no header (JSON is malformed"),
        ({}, [TORCH.replace("torch=", "jax=")], "wanted a record of jax"),
        ({}, ["--record={}/file"], "found no folder {}/file, wanted a folder that exists"),
        ({}, ["--record={}", "--torch=off", "--jax=off"], "found no live framework"),
        ({}, ["--record={}", "-n", "2"], "found -n, wanted one process"),
        ({}, ["--record={}/none/", "--jax=off"], "wanted one that exists"),
        ({}, ["--record={}/none/r", "--jax=off"], "wanted a file in a folder that exists"),
        ({}, ["--only-new"], "--only-new: found no --record, wanted the one that is to grow"),
        ({}, ["--verdicts={}/none/v"], "wanted a file in a folder that exists"),
        ({}, ["--verdicts={}"], "wanted a file in a folder that exists"),
        ({}, ["--torch=off", "--jax=off"], "wanted one framework at least"),
        ({}, ["--deadline=nan"], "--deadline: found nan, wanted seconds, more than 0"),
        ({}, ["--deadline=-1"], "--deadline: found -1.0, wanted seconds, more than 0"),
        ({"l.toml": CAUSE}, ["--ledger={}/l.toml"], "found no relation, wanted relation"),
    ],
)  # fmt: skip
def test_bad_usage_is_one_line_and_starts_nothing(
    tmp_path: Path, files: dict[str, str], args: list[str], line: str
) -> None:
    """Exit code 4 as pytest has it; were a framework started, its interpreter would be missed."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    ran = run(tmp_path, *NOWHERE, *(arg.format(tmp_path) for arg in args))
    assert ran.code == pytest.ExitCode.USAGE_ERROR
    errors = [one for one in ran.out.splitlines() if one.strip()]
    assert len(errors) == 1, ran.out
    assert errors[0].startswith("ERROR: ")
    assert line.format(tmp_path) in errors[0]


def test_an_interpreter_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    """As is one without the framework."""
    ran = run(tmp_path, "suites/test_lesson.py", *NOWHERE)
    assert ran.code == pytest.ExitCode.USAGE_ERROR
    assert "torch worker (/nowhere/python): found No such file or directory" in ran.out
    assert "Traceback" not in ran.out


def test_two_records_are_compared_in_seconds_with_no_framework(tmp_path: Path) -> None:
    """A family of five hundred cases, from the committed records alone."""
    ran = run(tmp_path, "suites/test_redistribute.py", "-q", TORCH, JAX, *NOWHERE)
    assert ran.code == 0, ran.out
    assert {v["verdict"] for v in ran.verdicts} == {"agree", "known", "not comparable"}
    assert set(ran.versions["versions"]) == {"torch", "jax"}


def test_a_framework_can_be_left_out(tmp_path: Path) -> None:
    """Then nothing is held against it."""
    ran = run(tmp_path, "suites/test_lesson.py", "--torch=off", JAX, *NOWHERE)
    assert ran.code == 0, ran.out
    assert {v["against"] for v in ran.verdicts} == {"reference"}
    assert not any(v["subject"] == "torch" for v in ran.verdicts)


def test_a_case_with_nothing_to_compare_is_skipped_with_the_reason(tmp_path: Path) -> None:
    """And counted."""
    path = tmp_path / "cases.toml"
    path.write_text(GOOD)
    ran = run(tmp_path, f"--cases={path}", TORCH, JAX, "-rs")
    assert ran.code == 0, ran.out
    assert "1 skipped" in ran.out
    assert "not in the record" in ran.out


def test_cases_are_chosen_by_k_and_told_in_junit(tmp_path: Path) -> None:
    """Ids can be typed; the XML has one testcase for each."""
    xml = tmp_path / "junit.xml"
    ran = run(tmp_path, "suites", TORCH, JAX, "-k", "x4-s0-to-s1 or lesson-s0", f"--junitxml={xml}")
    assert ran.code == 0, ran.out
    names = {case.get("name") for case in ET.parse(xml).iter("testcase")}
    assert names >= {"test_redistribute[x4-s0-to-s1]", "test_lesson[lesson-s0-to-r]"}
    assert all("x4-s0-to-s1" in str(name) or "lesson-s0" in str(name) for name in names)


def test_a_record_of_a_run_is_what_the_run_saw(tmp_path: Path) -> None:
    """Judged from it, the same verdicts come out; kept twice, the same bytes."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    args = ("suites/test_lesson.py", "--jax=off")
    first, _ = (run(folder, *args, f"--record={folder}") for folder in folders)
    assert first.code == 0, first.out
    one, two = (sorted(folder.glob("torch-*")) for folder in folders)
    assert [path.suffix for path in one] == [".jsonl", ".xz"]
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]
    again = run(tmp_path, *args, f"--torch={one[0]}")
    assert again.verdicts == first.verdicts


def test_the_summary_counts_every_verdict(tmp_path: Path) -> None:
    """Per subject, each case by the gravest that it met."""
    ran = run(tmp_path, "suites/test_lesson.py", TORCH, JAX)
    lines = ran.out.splitlines()
    head = next(at for at, line in enumerate(lines) if line.startswith("subject "))
    worst = worst_by_subject(msgspec.convert(ran.verdicts, list[Verdict]))
    for subject in subjects():
        (row,) = (line for line in lines[head:] if line.startswith(f"{subject} "))
        counts = Counter(worst[subject].values())
        # All that is not shown is 0, and all is shown that is not.
        shown = [int(n) for n in row.split()[1:]]
        assert shown[0] == sum(shown[1:]) == len(worst[subject])
        assert sorted(n for n in shown[1:] if n) == sorted(counts.values())


def test_infinities_and_plans_are_judged(tmp_path: Path) -> None:
    """What NumPy warns of is a value; a question without data has layouts all the same."""
    path = tmp_path / "cases.toml"
    path.write_text(
        GOOD
        + GOOD.replace("good", "zero") + 'program = ["y = divide(x, 0)"]\n'
        + GOOD.replace("good", "dry") + 'mode = "dry run"\n'
    )  # fmt: skip
    ran = run(tmp_path, f"--cases={path}", "--jax=off")
    assert ran.code == 0, ran.out
    assert "3 passed" in ran.out


def test_what_a_case_says_is_right_is_looked_at(tmp_path: Path) -> None:
    """Of an input, of a result that ``check`` leaves out; the text says whose word it is."""
    path = tmp_path / "cases.toml"
    path.write_text(
        GOOD + 'program = ["y = add(x, x)", "z = add(y, x)"]\ncheck = ["z"]\n'
        "right.y = [0, 2, 4, 7]\nshards.x = [[0, 1], [2, 4]]\n"
    )
    ran = run(tmp_path, f"--cases={path}", "--jax=off")
    assert {(step, aspect) for _, step, aspect, _ in ran.diverging()} == {
        ("y", "global"), ("x", "shards"),
    }  # fmt: skip
    assert "the case's own word; the reference has [2 3]" in ran.out


def test_the_rerun_command_works_from_elsewhere(tmp_path: Path) -> None:
    """Copied from a run in another folder, it finds the test and the cases."""
    (tmp_path / "my cases.toml").write_text(GOOD + "right.x = [0, 1, 2, 4]\n")
    command = [sys.executable, "-m", "pytest", str(ROOT / "suites"), "--cases=my cases.toml"]
    command += ["--jax=off", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    (again,) = (line for line in done.stdout.splitlines() if line.startswith("again"))
    words = shlex.split(again.removeprefix("again"))
    assert words[0] == "pytest"
    done = subprocess.run(
        [sys.executable, "-m", *words, "-p", "no:cacheprovider"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "1 failed" in done.stdout, done.stdout + done.stderr
