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
from adapters.code_digest import digest_code
from adapters.protocol import VERSION, Hello
from adapters.registry import FRAMEWORKS
from cases.arrays import pack, unpack
from cases.catalogue import catalogue
from suites import matrix
from suites.matrix import environments, question_digests, summary
from suites.missing_questions import (
    Environment,
    MissingQuestions,
    RecordingOptions,
    find_missing_questions,
    nearly_equal,
    record_files,
)
from suites.sources import pinned_releases
from tests.runs import ROOT

TOX = (sys.executable, "-m", "tox")
PYTHON = f"py{sys.version_info.major}{sys.version_info.minor}"
RELEASES = ("0.1", "0.2", "0.3")
SUBJECTS = FRAMEWORKS["jax"].subjects

# An environment that takes its answers from a record, as `--only-new` asks for them: which runs
# there were, and how many questions each answered, is in a file; what a release does is said by
# files beside it.
SCRIPT = """
import pathlib, shutil, sys
sys.path.insert(0, sys.argv[1])
from adapters import record
release, target, *words = sys.argv[2:]
here = pathlib.Path(__file__).parent
past = (here / "runs").read_text().split() if (here / "runs").exists() else []
again = release in past
folder = here / ("second" if again else "made")
answers = record.load(folder / f"jax-{release}.jsonl")
if "-k" in words:
    answers = answers.with_only({words[words.index("-k") + 1]})
text = pathlib.Path(target) / f"jax-{release}.jsonl"
fails = (here / f"fails-{release}").exists() or (again and (here / f"breaks-{release}").exists())
there = record.load(text) if text.exists() else answers.with_only(())
asked = there.lines.keys() ^ (there.lines.keys() | answers.lines.keys())
with open(here / "runs", "a") as runs:
    print(release, len(asked), *words, file=runs)
if fails:
    sys.exit("no such release")
record.save(text, record.merge([there, answers.with_only(asked)]) if there.lines else answers)
listing = text.with_suffix(".interface.jsonl")
if not listing.exists():
    shutil.copy(folder / listing.name, listing)
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
            text, values, interface = record_files(folder / name, "jax", release)
            if first is None:
                record.write(text, Hello(VERSION, "jax", release, "3.11.7"), answers(value))
                first = text
            else:
                head, _, rest = first.read_bytes().partition(b"\n")
                text.write_bytes(
                    head.replace(RELEASES[0].encode(), release.encode()) + b"\n" + rest
                )
                shutil.copy(record_files(folder / name, "jax", RELEASES[0])[1], values)
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
    command = f"{sys.executable} script.py {ROOT}"
    commands = "".join(
        f"\n    {PYTHON}-jax-{one}: {command} {one} {{env:RECORDS}}/ {{posargs}}"
        for one in RELEASES
    )
    (root / "tox.ini").write_text(
        f"[tox]\nenv_list =\nno_package = true\n[testenv]\nrunner = virtualenv\n"
        f"labels = records\nallowlist_externals = *\ncommands ={commands}\n"
    )
    return root


def plan(project: Path, **fields: Any) -> RecordingOptions:
    """Into the project's own folder."""
    return RecordingOptions(TOX, project, project / "records", **fields)


ALL = len(catalogue())


def due(todo_of: RecordingOptions, one: Environment) -> MissingQuestions:
    """What one release is to be asked for today's catalogue."""
    return find_missing_questions(todo_of, one, question_digests())


def runs(project: Path) -> list[str]:
    """What was run, in order, each with how many questions it answered."""
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
    todo_of = plan(project, runs=1)
    found = matrix.run(todo_of, listed)
    assert runs(project) == [f"{one} {ALL}" for one in RELEASES]
    failures = {name[-3:]: one.failure.splitlines()[:1] for name, one in found.items()}
    assert failures == {"0.1": ["no record"], "0.2": ["recorded, but tox ended with 3"], "0.3": []}
    assert "no such release" in found[f"{PYTHON}-jax-0.1"].failure
    assert sorted(path.name for path in todo_of.folder.glob("*.jsonl")) == [
        "jax-0.2.interface.jsonl", "jax-0.2.jsonl", "jax-0.3.interface.jsonl", "jax-0.3.jsonl",
    ]  # fmt: skip
    # Neither environments nor what was downloaded for them: logs of what went wrong.
    left = {path.relative_to(project / ".tox" / matrix.WORK_FOLDER) for path in
            (project / ".tox" / matrix.WORK_FOLDER).rglob("*") if path.is_file()}  # fmt: skip
    assert {str(path) for path in left} == {f"{PYTHON}-jax-0.1/1.log", f"{PYTHON}-jax-0.2/1.log"}
    assert not [*(project / ".tox").glob(f"{PYTHON}-*")]
    out = capsys.readouterr().out
    assert f"2 of 3, {PYTHON}-jax-0.2: no record; recording\n" in out
    assert "minutes" in out
    (project / "fails-0.1").unlink()
    found = matrix.run(todo_of, listed)
    assert runs(project) == [f"{one} {ALL}" for one in (*RELEASES, "0.1")]
    assert [one.ran for one in found.values()] == [True, False, False]
    assert [*summary(found)] == ["3 environments: 2 there already, 1 recorded, 0 failed"]
    assert f"2 of 3, {PYTHON}-jax-0.2: there\n" in capsys.readouterr().out


def test_a_second_run_marks_what_is_unstable_and_goes_on_after_a_break(project: Path) -> None:
    """What the first run has is kept over a break in the second."""
    one = environments(TOX, project)[2]
    (project / "breaks-0.3").touch()
    todo_of = plan(project, runs=2, keep=True)
    assert matrix.record_release(todo_of, one, due(todo_of, one)).failure.startswith("no record")
    assert not [*todo_of.folder.iterdir()]
    (project / "breaks-0.3").unlink()
    assert matrix.record_release(todo_of, one, due(todo_of, one)).failure == ""
    # The first, the one that broke, and that again.
    assert runs(project) == [f"0.3 {ALL}"] * 3
    lines = record.load(record_files(todo_of.folder, "jax", "0.3")[0]).lines
    assert [id for id, line in lines.items() if line.unstable] == [catalogue()[0].id]
    # The environment was to be kept.
    assert (project / ".tox" / one.name).exists()
    assert not (project / ".tox" / matrix.WORK_FOLDER / one.name).exists()


def test_a_run_by_other_code_is_done_again(project: Path) -> None:
    """What was recorded before a change of an adapter may be answered otherwise now."""
    one = environments(TOX, project)[0]
    work = project / ".tox" / matrix.WORK_FOLDER / one.name
    (work / "1").mkdir(parents=True)
    for path in record_files(project / "made", "jax", "0.1"):
        shutil.copy(path, work / "1")
    (work / "1" / "by").write_text("another")
    todo_of = plan(project, runs=1)
    assert matrix.record_release(todo_of, one, due(todo_of, one)).failure == ""
    assert runs(project) == [f"0.1 {ALL}"]


def test_two_runs_must_list_the_same_interface(project: Path, made: Path) -> None:
    """Nothing in it is left to chance; the record is not taken."""
    (project / "second").unlink()
    shutil.copytree(made / "second", project / "second")
    record_files(project / "second", "jax", "0.3")[2].write_text("{1}\n")
    one = environments(TOX, project)[2]
    todo_of = plan(project)
    found = matrix.record_release(todo_of, one, due(todo_of, one)).failure
    assert "another listing than" in found
    assert "wanted the same in every run" in found
    assert not [*todo_of.folder.iterdir()]


def test_words_for_pytest_are_handed_on(project: Path) -> None:
    """As after ``--``; and a part of the cases is never taken for all that there is."""
    one = environments(TOX, project)[0]
    todo_of = plan(project, runs=1, words=("-k", catalogue()[1].id))
    assert matrix.record_release(todo_of, one, due(todo_of, one)).failure == ""
    assert runs(project) == [f"0.1 1 -k {catalogue()[1].id}"]


@pytest.fixture
def recorded(project: Path) -> RecordingOptions:
    """A project whose first release is recorded, as the catalogue is."""
    todo_of = plan(project)
    for path in record_files(project / "made", "jax", "0.1"):
        shutil.copy(path, todo_of.folder)
    return todo_of


def first() -> Environment:
    """The environment of the first release."""
    return Environment(f"{PYTHON}-jax-0.1", "jax", "0.1")


def less(todo_of: RecordingOptions, edited: str, *ids: str) -> record.Record:
    """A record that was made before some questions were there, one in other words, one since gone.

    One of its lines is such as other code writes.
    """
    path = record_files(todo_of.folder, "jax", "0.1")[0]
    one = record.load(path)
    one = one.with_only(one.lines.keys() - {*ids})
    texts = {**one.texts, "gone": one.texts[edited].replace(edited.encode(), b"gone")}
    wording = one.lines[edited].digest.encode()
    texts[edited] = texts[edited].replace(wording, b"0" * 16)
    odd = next(id for id in texts if id not in (edited, "gone"))
    texts[odd] = texts[odd].replace(b'{"id":', b'{ "id":')
    lines = {id: msgspec.json.decode(text, type=record.Line) for id, text in texts.items()}
    record.save(path, record.Record(one.path, one.header, lines, texts, one.values, one.subjects))
    return record.load(path)


def test_a_record_grows_by_what_is_new_and_nothing_else_changes(
    project: Path, recorded: RecordingOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two new, one in other words, one gone: three are asked, twice; the rest is as it was."""
    one, two, three = (case.id for case in catalogue()[:3])
    old = less(recorded, three, one, two)
    why = due(recorded, first()).why
    assert why == "questions: 2 new, 1 changed, 1 no longer there"
    (found,) = matrix.run(recorded, [first()]).values()
    assert found.failure == ""
    assert runs(project) == ["0.1 3"] * 2
    made = record.load(record_files(recorded.folder, "jax", "0.1")[0])
    assert {id: line.digest for id, line in made.lines.items()} == question_digests()
    new = {one, two, three}
    kept = {id: text for id, text in old.texts.items() if id not in (*new, "gone")}
    assert {id: text for id, text in made.texts.items() if id not in new} == kept
    assert len(kept) == ALL - 3
    # The second run answers the first question otherwise.
    assert [id for id, line in made.lines.items() if line.unstable] == [one]
    assert msgspec.structs.replace(made.header, count=0) == msgspec.structs.replace(
        old.header, count=0
    )
    assert record_files(recorded.folder, "jax", "0.1")[2].read_text() == "{}\n"
    assert due(recorded, first()).why == ""
    assert f": {why}; recording\n" in capsys.readouterr().out


def test_what_is_gone_goes_without_a_run(project: Path, recorded: RecordingOptions) -> None:
    """And takes nothing with it."""
    path = record_files(recorded.folder, "jax", "0.1")[0]
    before = path.read_bytes()
    ids = catalogue()[3].id
    less(recorded, ids)
    one = record.load(path)
    record.save(path, one.with_only(one.lines.keys() - {ids}))
    digests = {id: digest for id, digest in question_digests().items() if id != ids}
    todo_of = find_missing_questions(recorded, first(), digests)
    assert todo_of.why == "questions: 1 no longer there"
    assert matrix.record_release(recorded, first(), todo_of).failure == ""
    assert runs(project) == []
    lines = [line for line in before.splitlines()[1:] if b'"%b"' % ids.encode() not in line]
    assert len(path.read_bytes().splitlines()) - 1 == len(lines) == ALL - 1


def test_a_missing_listing_is_made_in_one_run(project: Path, recorded: RecordingOptions) -> None:
    """The record stays as it is."""
    text, values, listing = record_files(recorded.folder, "jax", "0.1")
    before = text.read_bytes(), values.read_bytes()
    listing.unlink()
    assert due(recorded, first()).why == "no interface"
    assert matrix.record_release(recorded, first(), due(recorded, first())).failure == ""
    assert runs(project) == ["0.1 0"]
    assert listing.read_text() == "{}\n"
    assert (text.read_bytes(), values.read_bytes()) == before


def test_again_asks_all_anew_or_what_words_select(
    project: Path, recorded: RecordingOptions
) -> None:
    text, _, listing = record_files(recorded.folder, "jax", "0.1")
    listing.write_text("old\n")
    old = record.load(text)
    asked = catalogue()[0].id
    # So that the first run is the second of this release, and answers the first question otherwise.
    (project / "runs").write_text("0.1 0\n")
    some = plan(project, again=True, words=("-k", asked))
    assert due(some, first()).why == "once more"
    assert matrix.record_release(some, first(), due(some, first())).failure == ""
    made = record.load(text)
    assert {id for id in made.texts if made.texts[id] != old.texts[id]} == {asked}
    assert listing.read_text() == "{}\n"
    assert matrix.record_release(
        plan(project, again=True), first(), due(plan(project, again=True), first())
    )
    assert runs(project)[1:] == [f"0.1 1 -k {asked}"] * 2 + [f"0.1 {ALL}"] * 2


def test_a_change_of_code_is_told_and_asks_nothing(
    recorded: RecordingOptions, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor does a record that names none."""
    text = record_files(recorded.folder, "jax", "0.1")[0]
    for code, note in (
        ("", "this record does not say which code of the adapter it was made with"),
        ("0" * 16, "the adapter's code has changed since this record was made"),
        (digest_code(FRAMEWORKS["jax"].adapter), ""),
    ):
        one = record.load(text)
        one.header = msgspec.structs.replace(one.header, code=code)
        record.save(text, one)
        matrix.run(recorded, [first()])
        out = capsys.readouterr().out
        assert out.splitlines() == [f"1 of 1, {first().name}: there"] + [f"    {note}"] * bool(note)
    assert runs(project) == []


def test_answers_are_verified(project: Path, recorded: RecordingOptions) -> None:
    """Those that a seed chooses, once; one that differs is shown and fails, and nothing changes."""
    before = [path.read_bytes() for path in record_files(recorded.folder, "jax", "0.1")]
    some = plan(project, verify=5, seed=1)
    assert due(some, first()).checked == due(some, first()).checked
    assert due(some, first()).checked != due(plan(project, verify=5, seed=2), first()).checked
    assert matrix.record_release(some, first(), due(some, first())).failure == ""
    every = plan(project, verify=ALL + 1)
    assert due(every, first()).why == f"{ALL} to verify"
    found = matrix.record_release(every, first(), due(every, first())).failure.splitlines()
    assert runs(project) == ["0.1 5", f"0.1 {ALL}"]
    assert found[0].startswith(f"1 of {ALL} answers differ from the record's (seed 0; what the rec")
    assert found[1] == f"    {catalogue()[0].id}: {', '.join(SUBJECTS)}"
    assert found[2].startswith("        was ")
    assert "one" in found[2]
    assert found[3].startswith("        is  ")
    assert "two" in found[3]
    assert len(found) == 4
    assert [path.read_bytes() for path in record_files(recorded.folder, "jax", "0.1")] == before


def test_what_is_rounded_otherwise_is_no_other_answer() -> None:
    """As near as the case asks; a value further off, a text or a value less is another."""
    id = "log-by-x-x4-s1"
    kept = record.load(ROOT / "records" / f"torch-{pinned_releases()['torch']}.jsonl")
    case = next(case for case in catalogue() if case.id == id)
    (was,) = kept.stored_answers(id)

    def changed(**fields: Any) -> Answer:
        last = msgspec.structs.replace(was.seen[-1], **fields)
        return msgspec.structs.replace(was, seen=(*was.seen[:-1], last))

    def off(factor: float) -> Answer:
        value = unpack(was.seen[-1].full[0])
        return changed(full=(pack((value * factor).astype(value.dtype)),))

    assert off(1 + 2e-7) != was
    assert nearly_equal(case, was, off(1 + 2e-7))
    assert not nearly_equal(case, was, off(1.01))
    assert not nearly_equal(case, was, changed(full=()))
    assert not nearly_equal(case, was, changed(dtype="float64"))
    assert not nearly_equal(case, was, changed(note="other"))
    assert not nearly_equal(case, was, changed(shards=None))


def test_what_is_unstable_is_not_verified(project: Path, recorded: RecordingOptions) -> None:
    """It differs by its nature."""
    text = record_files(recorded.folder, "jax", "0.1")[0]
    second = record.load(record_files(project / "second", "jax", "0.1")[0])
    record.save(text, record.merge([record.load(text), second]))
    checked = due(plan(project, verify=ALL), first()).checked
    assert {*question_digests()} - {*checked} == {catalogue()[0].id}


def test_what_is_new_is_kept_though_an_answer_was_not_verified(
    project: Path, recorded: RecordingOptions
) -> None:
    """In one go; only the first run asks what is to be verified."""
    first_id, second_id, third_id = (case.id for case in catalogue()[:3])
    less(recorded, third_id, second_id)
    (project / "runs").write_text("0.1 0\n")
    every = plan(project, verify=ALL)
    found = matrix.record_release(every, first(), due(every, first())).failure
    assert found.startswith(f"1 of {ALL - 2} answers differ")
    assert f"    {first_id}: " in found
    assert runs(project)[1:] == [f"0.1 {ALL}", "0.1 2"]
    assert due(recorded, first()).why == ""


def test_a_record_that_is_none_is_made_whole(project: Path, recorded: RecordingOptions) -> None:
    """It is not there, damaged, or of another release."""
    text, values, _ = record_files(recorded.folder, "jax", "0.1")
    other = Environment(f"{PYTHON}-jax-0.2", "jax", "0.2")
    assert due(recorded, other) == MissingQuestions(
        "no record", None, question_digests(), listing=True
    )
    shutil.copy(text, record_files(recorded.folder, "jax", "0.2")[0])
    shutil.copy(values, record_files(recorded.folder, "jax", "0.2")[1])
    assert due(recorded, other) == MissingQuestions(
        "a record of 0.1", None, question_digests(), listing=True
    )
    text.write_bytes(text.read_bytes()[:-9])
    assert "found no answers" in due(recorded, first()).why
    assert due(recorded, first()).kept is None


@pytest.mark.parametrize(
    "words", [["--verify", "-1"], ["--verify", "3", "--again"], ["--verify", "3", "--", "-k", "x"]]
)
def test_what_is_to_be_verified_is_chosen_once(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """By chance, not by hand."""
    assert matrix.main(words) == 2
    assert capsys.readouterr().err.startswith(f"--verify: found {' '.join(words)}, wanted a number")


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
    found = listed(ROOT / "tox.ini")
    releases = set()
    for name, settings in found.items():
        _, framework, release = name.split("-")
        pins = [dep for dep in settings["deps"] if dep.partition("==")[0].startswith(framework)]
        assert [dep.partition("==")[2] for dep in pins] == [release], name
        releases.add((framework, release))
    assert {*pinned_releases().items()} <= releases
    assert len(releases) == len(found)
