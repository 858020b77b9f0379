"""Does ``--only-new`` ask what a record lacks, and leave all else as it is?"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from adapters.interface import main
from adapters.record import load, save
from suites.sources import pinned_releases
from tests.runs import ROOT, Ran, run

CASE = """
[[case]]
id = "{}"
mesh = {{ x = 2 }}
inputs.x = {{ shape = [{}], placements = {{ x = "S(0)" }} }}
"""
TORCH = f"torch-{pinned_releases()['torch']}.jsonl"
RECORDS = ROOT / "records"


def cases(folder: Path, **sizes: int) -> str:
    """The option that names a file of these cases."""
    path = folder / "cases.toml"
    path.write_text("".join(CASE.format(id, size) for id, size in sizes.items()))
    return f"--cases={path}"


def asked(ran: Ran) -> set[str]:
    """Ids of what was judged."""
    assert ran.code == 0, ran.out
    return {verdict["case"] for verdict in ran.verdicts}


def test_a_record_of_own_cases_grows(tmp_path: Path) -> None:
    """By what is new or worded otherwise; what it has is not asked, and stays to the byte."""
    args = ("--jax=off", f"--record={tmp_path}", "--only-new")
    first = run(tmp_path, cases(tmp_path, one=4, two=4), *args)
    assert asked(first) == {"one", "two"}
    assert "deselected" not in first.out
    path = tmp_path / TORCH
    before = load(path)
    grown = run(tmp_path, cases(tmp_path, one=4, two=6, three=8), *args)
    assert asked(grown) == {"two", "three"}
    assert "2 passed, 1 deselected" in grown.out
    after = load(path)
    assert list(after.lines) == ["one", "three", "two"]
    assert after.texts["one"] == before.texts["one"]
    assert after.texts["two"] != before.texts["two"]
    same = path.read_bytes()
    nothing = run(tmp_path, cases(tmp_path, one=4, two=6), *args)
    assert nothing.code == 0, nothing.out
    assert "2 deselected" in nothing.out
    assert path.read_bytes() == same
    # Without it the record is made anew.
    whole = run(tmp_path, cases(tmp_path, one=4), "--jax=off", f"--record={tmp_path}")
    assert asked(whole) == {"one"}
    assert load(path).texts == before.with_only({"one"}).texts
    assert len(load(path).header.code) == 16


def test_each_framework_adds_to_its_own_record(tmp_path: Path) -> None:
    """What one of them lacks both are asked, and the other's record stays as it is."""
    run(tmp_path, cases(tmp_path, one=4), "--jax=off", f"--record={tmp_path}")
    before = (tmp_path / TORCH).read_bytes()
    both = run(tmp_path, cases(tmp_path, one=4), f"--record={tmp_path}", "--only-new")
    assert asked(both) == {"one"}
    assert (tmp_path / TORCH).read_bytes() == before
    assert list(load(tmp_path / f"jax-{pinned_releases()['jax']}.jsonl").lines) == ["one"]


def test_the_catalogue_is_not_asked_again(tmp_path: Path) -> None:
    """But for the case that is taken out of a record; a line that no case has stays."""
    path = tmp_path / TORCH
    whole = load(RECORDS / TORCH)
    save(path, whole.with_only({*whole.lines} - {"lesson-s0-to-r"}))
    args = ("suites/test_lesson.py", "--jax=off", f"--record={path}", "--only-new")
    assert asked(run(tmp_path, *args)) == {"lesson-s0-to-r"}
    assert path.read_bytes() == (RECORDS / TORCH).read_bytes()
    shown = run(tmp_path, *args, "--collect-only")
    assert "no tests collected" in shown.out
    assert run(tmp_path, *args, "-k", "nothing").code == pytest.ExitCode.NO_TESTS_COLLECTED


def test_another_release_is_not_added_to(tmp_path: Path) -> None:
    """One line that says why, before anything is asked."""
    path = tmp_path / TORCH
    one = load(RECORDS / TORCH).with_only(())
    one.header = msgspec.structs.replace(one.header, python="3.9")
    save(path, one)
    before = path.read_bytes()
    args = ("suites/test_lesson.py", "--jax=off", f"--record={path}", "--only-new")
    ran = run(tmp_path, *args)
    assert ran.code == pytest.ExitCode.USAGE_ERROR
    assert f"{path}: python: found '3.9', wanted '3." in ran.out
    assert "as runs here" in ran.out
    assert "Traceback" not in ran.out
    assert path.read_bytes() == before


def test_a_listing_that_is_there_is_left(tmp_path: Path) -> None:
    """By a file's name or in a folder."""
    path = tmp_path / TORCH.replace(".jsonl", ".interface.jsonl")
    path.write_text("mine\n")
    main(["torch", str(tmp_path), "--only-new"])
    main(["torch", str(path), "--only-new"])
    assert path.read_text() == "mine\n"
    assert [*tmp_path.iterdir()] == [path]


def test_a_record_whose_listing_is_missing_is_left_alone(tmp_path: Path) -> None:
    """Nothing new is no failure, so the listing is made after it."""
    for suffix in (".jsonl", ".values.xz"):
        name = TORCH.replace(".jsonl", suffix)
        shutil.copy(RECORDS / name, tmp_path / name)
    ran = run(tmp_path, "suites/test_lesson.py", "--jax=off", f"--record={tmp_path}", "--only-new")
    assert ran.code == 0, ran.out
    assert (tmp_path / TORCH).read_bytes() == (RECORDS / TORCH).read_bytes()
