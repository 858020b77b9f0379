"""Do the pairs of records come out as each pair does by itself? And is nothing left out?"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from adapters import record
from adapters.answer import Answer, Collective, Refused
from adapters.record import Record
from adapters.registry import FRAMEWORKS, framework_of, subjects
from cases.arrays import pack, unpack
from cases.catalogue import FAMILIES, family
from cases.errors import BadInput
from cases.ledger import LEDGER, load_ledger
from cases.model import Case
from reports import pairs as command
from suites.judge import judge
from suites.record_index import find_records, load_records, release_of
from suites.release_pairs import count, join_tallies, judge_all_releases, op_of, verdicts_of_pair
from suites.sources import RECORDS, pinned_releases, record_path
from suites.verdict import OUTCOMES, Verdict
from tests.runs import run

CAUSES = load_ledger(LEDGER, subjects())
# Some of every family.
CASES = (
    *family("lesson"),
    *(case for name in FAMILIES if name != "lesson" for case in family(name)[::90][:3]),
)
BY_ID = {case.id: case for case in CASES}
CHANGED = "lesson-s0-to-r"


def committed(framework: str) -> Record:
    """The record of the release that the project runs."""
    path = record_path(RECORDS, framework, pinned_releases()[framework])
    return record.load(path, framework, FRAMEWORKS[framework].subjects)


def wrong(answer: Answer) -> Answer:
    """An answer whose results are all another."""
    seen = []
    for one in answer.seen:
        values = [unpack(array) for array in one.full]
        full = tuple(pack(~v if v.dtype == bool else (v + 1).astype(v.dtype)) for v in values)
        seen.append(msgspec.structs.replace(one, full=full))
    return msgspec.structs.replace(answer, seen=tuple(seen))


def gathers(answer: Answer) -> Answer:
    """An answer with a collective too many at every step."""
    more = Collective("all-gather", (), 4, 64)
    seen = tuple(
        msgspec.structs.replace(one, collectives=(*one.collectives, more))
        if one.collectives is not None
        else one
        for one in answer.seen
    )
    return msgspec.structs.replace(answer, seen=seen)


def refuses(answer: Answer) -> Answer:
    """A refusal in an answer's place."""
    return Answer(answer.question, answer.subject, Refused("ValueError", "not today", "y"))


MISTAKES = {"": None, "wrong": wrong, "gathers": gathers, "refuses": refuses}
RELEASES = {
    "torch": {"2.2.2": "", "2.4.1": "", "2.5.1": "wrong", "2.13.0": "refuses", "2.15.0": "gathers"},
    "jax": {"0.4.30": "refuses", "0.10.2": "", "0.12.0.1": "wrong"},
}


def written(folder: Path, framework: str, release: str, mistake: str, ids: set[str]) -> None:
    """A record of a release: the committed one's answers, those to ``ids`` with a mistake."""
    own = committed(framework)
    change = MISTAKES[mistake]
    rows = [
        (
            case.question,
            tuple(
                change(answer) if change and case.id in ids else answer
                for answer in own.answer(case.question)
            ),
        )
        for case in CASES
    ]
    hello = msgspec.structs.replace(own.hello(), release=release)
    record.write(record_path(folder, framework, release), hello, rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of eight releases, half of whose cases some of them answer wrongly."""
    made = tmp_path_factory.mktemp("records")
    half = {case.id for case in CASES[::2]} | {CHANGED}
    for framework, releases in RELEASES.items():
        for release, mistake in releases.items():
            written(made, framework, release, mistake, half)
    return made


def by_itself(case: Case, pair: list[Record]) -> list[Verdict]:
    """The verdicts of one pair, as `judge` has them."""
    answers = {answer.subject: answer for one in pair for answer in one.answer(case.question)}
    promises = {name: some for one in pair for name, some in one.header.promises.items()}
    return judge(case, answers, CAUSES, promises=promises).verdicts


def test_every_pair_comes_out_as_it_does_by_itself(folder: Path) -> None:
    """Line for line, for right answers and wrong ones."""
    shelf = load_records(find_records(folder))
    for case in CASES:
        judged = tuple(judge_all_releases(case, shelf, CAUSES))
        for torch in shelf["torch"]:
            for jax in shelf["jax"]:
                names = {"torch": release_of(torch), "jax": release_of(jax)}
                ours = verdicts_of_pair(judged, names)
                theirs = by_itself(case, [torch, jax])
                assert sorted(ours, key=by_subject) == sorted(theirs, key=by_subject), (case, names)


def by_subject(verdict: Verdict) -> tuple[str, bool]:
    """A subject's own verdicts, then those beside another framework, each in the same order."""
    return verdict.subject, verdict.against in ("torch", "jax/jit")


def test_what_is_counted_is_what_the_pairs_gave(folder: Path) -> None:
    """Also where the cases were dealt to several."""
    shelf = load_records(find_records(folder))
    parts = [count(CASES[i::3], shelf, CAUSES) for i in range(3)]
    tally = join_tallies(parts)
    assert tally.cases == len(CASES)
    pair = [shelf["torch"][2], shelf["jax"][0]]
    verdicts = [verdict for case in CASES for verdict in by_itself(case, pair)]
    wanted = [sum(one.verdict == outcome for one in verdicts) for outcome in OUTCOMES]
    assert tally.pair(("torch", "2.5.1"), ("jax", "0.4.30")) == wanted
    assert wanted[OUTCOMES.index("divergence")] > 0


def test_the_same_answers_are_judged_once(folder: Path) -> None:
    """Releases that answer alike share a cell."""
    shelf = load_records(find_records(folder))
    case = BY_ID[CHANGED]
    groups = [one.releases for one in judge_all_releases(case, shelf, ()) if one.subject == "torch"]
    assert groups == [("2.2.2", "2.4.1"), ("2.5.1",), ("2.13.0",), ("2.15.0",)]


@pytest.mark.parametrize(("torch", "jax"), [("2.13.0", "0.12.0.1"), ("2.2.2", "0.4.30")])
def test_a_pair_is_what_replaying_it_gives(
    folder: Path, tmp_path: Path, torch: str, jax: str
) -> None:
    """``pytest --torch=RECORD --jax=RECORD`` has the same lines."""
    sources = [f"--torch={record_path(folder, 'torch', torch)}"]
    sources.append(f"--jax={record_path(folder, 'jax', jax)}")
    ran = run(tmp_path, "suites/test_lesson.py", *sources)
    shelf = load_records(find_records(folder))
    ours = [
        msgspec.to_builtins(verdict)
        for case in family("lesson")
        for verdict in verdicts_of_pair(
            judge_all_releases(case, shelf, CAUSES), {"torch": torch, "jax": jax}
        )
    ]
    assert len(ran.verdicts) > 100
    assert ran.verdicts == sorted(ours, key=lambda one: (one["case"], one["subject"]))


def test_what_a_record_was_not_asked_is_not_comparable(folder: Path, tmp_path: Path) -> None:
    """Neither a question that it lacks nor another of the same name is taken for its answer."""
    own, case = committed("torch"), BY_ID[CHANGED]
    other = msgspec.structs.replace(case.question, context="inference")
    for release, question in (("2.3.0", None), ("2.4.0", other), ("2.5.0", case.question)):
        rows = [] if question is None else [(question, own.answer(case.question))]
        hello = msgspec.structs.replace(own.hello(), release=release)
        record.write(record_path(tmp_path, "torch", release), hello, rows)
    shelf = load_records(find_records(tmp_path)) | {
        "jax": load_records(find_records(folder))["jax"][1:2]
    }
    judged = tuple(judge_all_releases(case, shelf, CAUSES))
    for torch in shelf["torch"]:
        pair = [torch, *shelf["jax"]]
        names = {one.header.framework: one.header.release for one in pair}
        assert verdicts_of_pair(judged, names) == by_itself(case, pair)
    alone = {
        one.releases: {v.verdict for v in one.verdicts} for one in judged if one.subject == "torch"
    }
    assert alone == {
        ("2.3.0",): {"not comparable"}, ("2.4.0",): {"not comparable"}, ("2.5.0",): {"agree"},
    }  # fmt: skip


def test_one_framework_is_held_against_the_reference_alone(folder: Path) -> None:
    """Where there is no record of torch, JAX has no aspect beside it."""
    shelf = {
        name: records
        for name, records in load_records(find_records(folder)).items()
        if name == "jax"
    }
    shelf["torch"] = []
    found = list(judge_all_releases(BY_ID[CHANGED], shelf, CAUSES))
    assert {framework_of(one.subject) for one in found} == {"jax"}
    assert {one.base for one in found} == {""}
    assert {verdict.against for one in found for verdict in one.verdicts} == {"reference"}


def test_records_are_found_by_release_and_nothing_else_is(folder: Path, tmp_path: Path) -> None:
    """Oldest first by PEP 440; arrays and interfaces are no records."""
    (folder / "torch-2.2.2.interface.jsonl").write_text("{}\n")
    found = [path.name for _, path in find_records(folder)]
    assert found == [
        "torch-2.2.2.jsonl", "torch-2.4.1.jsonl", "torch-2.5.1.jsonl", "torch-2.13.0.jsonl",
        "torch-2.15.0.jsonl", "jax-0.4.30.jsonl", "jax-0.10.2.jsonl", "jax-0.12.0.1.jsonl",
    ]  # fmt: skip
    with pytest.raises(BadInput, match="found no record, wanted a folder of records"):
        find_records(tmp_path)
    with pytest.raises(BadInput, match="found no folder, wanted a folder of records"):
        find_records(tmp_path / "none")


def test_a_record_under_another_name_is_refused(tmp_path: Path) -> None:
    """A copy under another name would be counted as a release."""
    written(tmp_path, "torch", "2.13.0", "", set())
    for name in ("torch-2.13.0.jsonl", "torch-2.13.0.values.xz"):
        (tmp_path / name.replace("2.13.0", "2.13.1")).write_bytes((tmp_path / name).read_bytes())
    with pytest.raises(
        BadInput, match=r"2.13.1.jsonl.*found a record of torch 2.13.0, wanted torch-2.13.0.jsonl"
    ):
        load_records(find_records(tmp_path))


@pytest.mark.parametrize(
    ("step", "op"),
    [
        ("y", "redistribute"),
        ("y/full", "redistribute/full"),
        ("x", "input"),
        (None, "program"),
        ("backward", "backward"),
    ],
)
def test_a_divergence_is_told_by_the_op_of_its_step(step: str | None, op: str) -> None:
    """Passes of a recipe have none, and are told by their name."""
    assert op_of(BY_ID[CHANGED], step) == op


def test_the_command_tells_of_every_pair(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counts as a matrix and as data, what no cause explains, and how it ends."""
    path = tmp_path / "pairs.json"
    assert command.main([str(folder), "--case", CHANGED, "--json", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("divergence, torch by jax")
    assert lines[at + 1].split() == ["0.4.30", "0.10.2", "0.12.0.1"]
    rows = {line.split()[0]: line.split()[1:] for line in lines[at + 2 : at + 7]}
    assert [*rows] == [*RELEASES["torch"]]
    assert "torch ending: refused" in lines
    assert any(
        line.startswith(f"    redistribute: 2.13.0 (1): {CHANGED}; got refused at y: ValueError")
        for line in lines
    )
    assert lines[-1].startswith("records: 5 of torch x 3 of jax; 1 cases")
    data = msgspec.json.decode(path.read_bytes())
    told = {
        (one["base_release"], one["release"]): one["verdicts"]["divergence"]
        for one in data["pairs"]
    }
    assert len(told) == 15
    assert [pair for pair, n in told.items() if n == 0] == [
        ("2.2.2", "0.10.2"),
        ("2.4.1", "0.10.2"),
    ]
    assert all(
        rows[torch][["0.4.30", "0.10.2", "0.12.0.1"].index(jax)] == str(n)
        for (torch, jax), n in told.items()
    )
    assert {one["verdict"]["case"] for one in data["divergences"]} == {CHANGED}


def test_the_command_tells_which_records_lack_questions(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line of another question is compared with nothing, and says so."""
    shutil.copytree(folder, tmp_path / "other")
    path = tmp_path / "other" / "jax-0.10.2.jsonl"
    own = BY_ID[CHANGED].question
    path.write_text(path.read_text().replace(record.digest_question(own), "0" * 16))
    command.main([str(folder), "--case", CHANGED])
    assert "questions that a record lacks" not in capsys.readouterr().out
    command.main([str(path.parent), "--case", CHANGED])
    lines = capsys.readouterr().out.splitlines()
    (at,) = (n for n, line in enumerate(lines) if "questions that a record lacks" in line)
    assert lines[at + 1] == f"    jax 0.10.2: 1 of 1 questions, such as {CHANGED}"
    assert lines[at + 2] == ""


def test_the_command_refuses_what_is_no_folder_of_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, before anything is judged."""
    assert command.main([str(tmp_path)]) == 2
    assert "wanted a folder of records" in capsys.readouterr().err
