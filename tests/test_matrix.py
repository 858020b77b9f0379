"""Is every release recorded by one line and one command? And is no work done twice, none lost?"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapters import record
from adapters.answer import Answer, Done, Unsupported
from adapters.protocol import VERSION, Hello
from adapters.registry import FRAMEWORKS
from cases.catalogue import catalogue
from suites import matrix
from suites.matrix import Environment, Plan, environments, files, stale, summary, wanted
from suites.sources import pinned
from tests.runs import ROOT

TOX = (sys.executable, "-m", "tox")
PYTHON = f"py{sys.version_info.major}{sys.version_info.minor}"
RELEASES = ("0.1", "0.2", "0.3")
SUBJECTS = FRAMEWORKS["jax"].subjects

# An environment that records by copying: which runs there were is in a file, and what a release
# does is said by files beside it.
SCRIPT = """
import pathlib, shutil, sys
release, target, *words = sys.argv[1:]
here = pathlib.Path(__file__).parent
with open(here / "runs", "a") as runs:
    print(release, *words, file=runs)
again = (here / "runs").read_text().split().count(release) > 1
if (here / f"fails-{release}").exists() or (again and (here / f"breaks-{release}").exists()):
    sys.exit("no such release")
for path in (here / ("second" if again else "made")).glob(f"jax-{release}.*"):
    shutil.copy(path, target)
sys.exit(3 if (here / f"diverges-{release}").exists() else 0)
"""


def answers(value: str) -> list[tuple[Any, tuple[Answer, ...]]]:
    """One to every question of the catalogue, and to the first in these words."""
    rows = []
    for n, case in enumerate(catalogue()):
        end = Unsupported(value) if n == 0 else Done()
        rows.append((case.question, tuple(Answer(case.id, one, end) for one in SUBJECTS)))
    return rows


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of three releases, and a second one of the last that differs in one answer."""
    folder = tmp_path_factory.mktemp("toy")
    for name, value in (("made", "one"), ("second", "two")):
        (folder / name).mkdir()
        first: Path | None = None
        for release in RELEASES:
            text, values, interface = files(folder / name, "jax", release)
            if first is None:
                record.write(text, Hello(VERSION, "jax", release, "3.11.7"), answers(value))
                first = text
            else:
                head, _, rest = first.read_bytes().partition(b"\n")
                text.write_bytes(
                    head.replace(RELEASES[0].encode(), release.encode()) + b"\n" + rest
                )
                shutil.copy(files(folder / name, "jax", RELEASES[0])[1], values)
            interface.write_text("{}\n")
    return folder


@pytest.fixture
def project(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with an environment for each of the three, beneath a tox that has another."""
    monkeypatch.setenv("TOX_WORK_DIR", str(tmp_path / "outer"))
    root = tmp_path / "project"
    root.mkdir()
    (root / "records").mkdir()
    for name in ("made", "second"):
        (root / name).symlink_to(made / name)
    (root / "script.py").write_text(SCRIPT)
    commands = "".join(
        f"\n    {PYTHON}-jax-{one}: {sys.executable} script.py {one} {{env:RECORDS}}/ {{posargs}}"
        for one in RELEASES
    )
    (root / "tox.ini").write_text(
        f"[tox]\nenv_list =\nno_package = true\n[testenv]\nrunner = virtualenv\n"
        f"labels = records\nallowlist_externals = *\ncommands ={commands}\n"
    )
    return root


def plan(project: Path, **fields: Any) -> Plan:
    """Into the project's own folder."""
    return Plan(TOX, project, project / "records", **fields)


def runs(project: Path) -> list[str]:
    """What was run, in order."""
    path = project / "runs"
    return path.read_text().splitlines() if path.exists() else []


def test_goes_on_after_a_failure_and_does_nothing_twice(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One release cannot be had, one has a divergence, one is right; then it can be had."""
    (project / "fails-0.1").touch()
    (project / "diverges-0.2").touch()
    listed = environments(TOX, project)
    assert [one.release for one in listed] == [*RELEASES]
    todo = plan(project, runs=1)
    found = matrix.run(todo, listed)
    assert runs(project) == ["0.1", "0.2", "0.3"]
    failures = {name[-3:]: one.failure.splitlines()[:1] for name, one in found.items()}
    assert failures == {"0.1": ["no record"], "0.2": ["recorded, but tox ended with 3"], "0.3": []}
    assert "no such release" in found[f"{PYTHON}-jax-0.1"].failure
    assert sorted(path.name for path in todo.folder.glob("*.jsonl")) == [
        "jax-0.2.interface.jsonl", "jax-0.2.jsonl", "jax-0.3.interface.jsonl", "jax-0.3.jsonl",
    ]  # fmt: skip
    # Neither environments nor what was downloaded for them: logs of what went wrong.
    left = {path.relative_to(project / ".tox" / matrix.WORK) for path in
            (project / ".tox" / matrix.WORK).rglob("*") if path.is_file()}  # fmt: skip
    assert {str(path) for path in left} == {f"{PYTHON}-jax-0.1/1.log", f"{PYTHON}-jax-0.2/1.log"}
    assert not [*(project / ".tox").glob(f"{PYTHON}-*")]
    out = capsys.readouterr().out
    assert f"2 of 3, {PYTHON}-jax-0.2: no record; recording\n" in out
    assert "minutes" in out
    (project / "fails-0.1").unlink()
    found = matrix.run(todo, listed)
    assert runs(project) == ["0.1", "0.2", "0.3", "0.1"]
    assert [one.ran for one in found.values()] == [True, False, False]
    assert [*summary(found)] == ["3 environments: 2 there already, 1 recorded, 0 failed"]
    assert f"2 of 3, {PYTHON}-jax-0.2: there\n" in capsys.readouterr().out


def test_a_second_run_marks_what_is_unstable_and_goes_on_after_a_break(project: Path) -> None:
    """What the first run has is kept over a break in the second."""
    one = environments(TOX, project)[2]
    (project / "breaks-0.3").touch()
    todo = plan(project, runs=2, keep=True)
    assert matrix.make(todo, one, wanted()).failure.startswith("no record")
    assert not [*todo.folder.iterdir()]
    (project / "breaks-0.3").unlink()
    assert matrix.make(todo, one, wanted()).failure == ""
    # The first, the one that broke, and that again.
    assert runs(project) == ["0.3"] * 3
    lines = record.load(files(todo.folder, "jax", "0.3")[0]).lines
    assert [id for id, line in lines.items() if line.unstable] == [catalogue()[0].id]
    # The environment was to be kept.
    assert (project / ".tox" / one.name).exists()
    assert not (project / ".tox" / matrix.WORK / one.name).exists()


def test_a_run_by_other_code_is_done_again(project: Path) -> None:
    """What was recorded before a change of an adapter may be answered otherwise now."""
    one = environments(TOX, project)[0]
    work = project / ".tox" / matrix.WORK / one.name
    (work / "1").mkdir(parents=True)
    for path in files(project / "made", "jax", "0.1"):
        shutil.copy(path, work / "1")
    (work / "1" / "by").write_text("another")
    assert matrix.make(plan(project, runs=1), one, wanted()).failure == ""
    assert runs(project) == ["0.1"]


def test_two_runs_must_list_the_same_interface(project: Path, made: Path) -> None:
    """Nothing in it is left to chance; the record is not taken."""
    (project / "second").unlink()
    shutil.copytree(made / "second", project / "second")
    files(project / "second", "jax", "0.3")[2].write_text("{1}\n")
    one = environments(TOX, project)[2]
    todo = plan(project)
    found = matrix.make(todo, one, wanted()).failure
    assert "another listing than" in found
    assert "wanted the same in every run" in found
    assert not [*todo.folder.iterdir()]


def test_words_for_pytest_are_handed_on(project: Path) -> None:
    """As after ``--``; and a part of the cases is never taken for all that there is."""
    one = environments(TOX, project)[0]
    todo = plan(project, runs=1, words=("-k", "x4"))
    assert matrix.make(todo, one, wanted()).failure == ""
    assert runs(project) == ["0.1 -k x4"]


def test_a_record_is_stale_unless_it_has_every_question_as_it_is(
    made: Path, tmp_path: Path
) -> None:
    """No record, another release, another question, one too many or too few, no interface."""
    one = Environment("py311-jax-0.1", "jax", "0.1")
    digests = wanted()
    assert stale(tmp_path, one, digests) == "no record"
    for path in files(made / "made", "jax", "0.1"):
        shutil.copy(path, tmp_path)
    assert stale(tmp_path, one, digests) == ""
    first = next(iter(digests))
    assert "0 not asked, 1 changed, 0 no longer" in stale(tmp_path, one, digests | {first: "0"})
    assert "1 not asked, 0 changed, 0 no longer" in stale(tmp_path, one, digests | {"new": "0"})
    fewer = {id: digest for id, digest in digests.items() if id != first}
    assert "0 not asked, 0 changed, 1 no longer" in stale(tmp_path, one, fewer)
    other = msgspec.structs.replace(one, release="0.2")
    text, _, interface = files(tmp_path, "jax", "0.1")
    shutil.copy(text, files(tmp_path, "jax", "0.2")[0])
    shutil.copy(files(tmp_path, "jax", "0.1")[1], files(tmp_path, "jax", "0.2")[1])
    assert stale(tmp_path, other, digests) == "a record of 0.1"
    interface.unlink()
    assert stale(tmp_path, one, digests) == "no interface"


def listed(ini: Path) -> dict[str, dict[str, Any]]:
    """The environments of a ``tox.ini`` that record, and what tox makes of them."""
    names = [one.name for one in environments((*TOX, "-c", str(ini)), ini.parent)]
    command = [*TOX, "config", "-c", str(ini), "--format", "json", "-e", ",".join(names)]
    keys = ["-k", "deps", "base_python", "runner", "commands", "labels", "ignore_outcome"]
    done = subprocess.run([*command, *keys], capture_output=True, text=True, check=True)
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)["env"]
    return found


@pytest.fixture(scope="module")
def uv() -> None:
    """Without tox-uv, tox would install it first."""
    pytest.importorskip("tox_uv", reason="tox-uv is not beside tox")


@pytest.mark.usefixtures("uv")
def test_one_line_in_tox_ini_adds_a_release(tmp_path: Path) -> None:
    """An environment that has it, in its Python, made by uv, and records it."""
    text = (ROOT / "tox.ini").read_text()
    line = "    py312-jax-0.99.1: jax[cpu]==0.99.1\n"
    before = "    py312-jax-0.12.0.1: jax[cpu]==0.12.0.1\n"
    assert before in text
    ini = tmp_path / "tox.ini"
    ini.write_text(text.replace(before, line + before))
    ours, theirs = listed(ROOT / "tox.ini"), listed(ini)
    assert theirs.keys() - ours.keys() == {"py312-jax-0.99.1"}
    added = theirs["py312-jax-0.99.1"]
    assert "jax[cpu]==0.99.1" in added["deps"]
    assert not any("torch" in one for one in added["deps"])
    assert added["base_python"] == ["py312"]
    assert added["runner"] == "uv-venv-runner"
    assert [one.split()[:3] for one in added["commands"]] == [
        ["pytest", "suites", "--torch=off"], ["python", "-m", "adapters.interface"],
    ]  # fmt: skip


@pytest.mark.usefixtures("uv")
def test_every_environment_that_records_has_the_release_of_its_name() -> None:
    """One of each framework is that which the project runs."""
    found = listed(ROOT / "tox.ini")
    releases = set()
    for name, settings in found.items():
        _, framework, release = name.split("-")
        pins = [dep for dep in settings["deps"] if dep.partition("==")[0].startswith(framework)]
        assert [dep.partition("==")[2] for dep in pins] == [release], name
        releases.add((framework, release))
    assert {*pinned().items()} <= releases
    assert len(releases) == len(found)
