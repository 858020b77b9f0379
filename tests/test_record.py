"""Are answers kept whole, and to the byte the same from one run to the next?"""

from __future__ import annotations

import lzma
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from adapters import array_store
from adapters.answer import (
    Answer,
    Collective,
    Crashed,
    Done,
    End,
    Hung,
    Observed,
    Refused,
    Unsupported,
)
from adapters.array_store import ArrayStore, path_beside
from adapters.protocol import VERSION, Hello, Promise
from adapters.record import (
    Record,
    digest_question,
    load,
    main,
    merge,
    record_of,
    save,
    suite_version,
    write,
)
from adapters.record_codec import encode
from adapters.scrub import scrub_answer, scrub_text
from adapters.worker_client import WorkerClient
from cases.arrays import pack
from cases.errors import BadInput
from cases.model import Foreign, Question, Step
from tests.runs import ROOT
from tests.test_worker_client import question

BLIND = "sends are not counted"
PROMISES = {"toy/1": Promise(("shards", "full"), unless_partial=("full",))}
HELLO = Hello(VERSION, "toy", "1.0+cpu", "3.11.7", ("gloo", "8 ranks"), 4321, (BLIND,), PROMISES)
SUBJECTS = ("toy/1", "toy/2")
Kept = tuple[Question, tuple[Answer, ...]]


def answered(name: str, end: End | None = None, value: float = 1.0) -> Kept:
    """A question, and an answer of each subject; the first ends with ``end``."""
    array = pack(np.full((5, 7), value, np.float32))
    seen = Observed("y", "float32", (5, 7), shards=(array, None), full=(array,))
    fired = Collective("all-gather", ("a",), 2, 12, "backward")
    first = Answer(name, SUBJECTS[0], end or Done(), (seen,), (fired,))
    return question(name), (first, Answer(name, SUBJECTS[1], Done()))


def other(**fields: object) -> Hello:
    """Another release or the like says hello."""
    return msgspec.structs.replace(HELLO, **fields)


def kept(path: Path, answers: Iterable[Kept], hello: Hello = HELLO) -> Path:
    """A record of these answers."""
    write(path, hello, answers)
    return path


def both(path: Path) -> tuple[bytes, bytes]:
    """The bytes of a record's two files."""
    return path.read_bytes(), path_beside(path).read_bytes()


def test_what_was_answered_is_read_back(tmp_path: Path) -> None:
    """NaN and refusals too; of the Python only major and minor."""
    answers = [answered("b", Refused("ValueError", "no", "y")), answered("a", value=np.nan)]
    read = load(kept(tmp_path / "r", answers), "toy")
    for asked, wanted in answers:
        read.ask(asked)
        assert read.answer(asked) == wanted
    facts = ("gloo", "8 ranks")
    said = Hello(VERSION, "toy", "1.0+cpu", "3.11", facts, unseen=(BLIND,), promises=PROMISES)
    assert read.hello() == said
    assert read.header.subjects == SUBJECTS
    assert read.header.count == 2


def test_a_record_from_before_there_were_promises_is_read(tmp_path: Path) -> None:
    """It promises nothing; its answers are what they were."""
    path = kept(tmp_path / "r", [answered("a")])
    text = path.read_bytes()
    promises = b',"promises":' + msgspec.json.encode(PROMISES)
    assert promises in text
    path.write_bytes(text.replace(promises, b""))
    read = load(path)
    assert read.hello().promises == {}
    assert read.stored_answers("a") == answered("a")[1]


def test_the_header_says_where_and_with_what_it_was_made(tmp_path: Path) -> None:
    """Of the platform no version, which would tell apart runs that agree."""
    header = load(kept(tmp_path / "r", [])).header
    assert header.platform == f"{sys.platform}-{platform.machine()}"
    assert f'version = "{header.suite}"' in (ROOT / "pyproject.toml").read_text()
    assert header.suite == suite_version()


def test_a_live_worker_s_answers_are_read_back(tmp_path: Path) -> None:
    """What travelled between processes is kept as it was."""
    worker = WorkerClient("toy", "tests.toys.plain", SUBJECTS)
    try:
        asked = [question(f"q{i}", size=i) for i in range(9)]
        answers = [(one, worker.answer(one)) for one in asked]
        hello = worker.hello()
    finally:
        worker.close()
    assert hello is not None
    read = load(kept(tmp_path / "r", answers, hello), "toy", SUBJECTS)
    assert [read.answer(one) for one in asked] == [given for _, given in answers]


def test_two_runs_give_the_same_bytes(tmp_path: Path) -> None:
    """Whatever chance told apart, and in whatever order they were asked."""
    line = "ProcessGroup of pid {0}: connect to [127.0.0.1]:4{0} failed, object at 0x7f00{0}"
    one = [answered("a", Refused("E", line.format(1234), "y")), answered("b")]
    crash = Crashed("SIGKILL", 2, "chatter of process 1234")
    other = [answered("b"), answered("a", Refused("E", line.format(5678), "y"))]
    later = msgspec.structs.replace(HELLO, python="3.11.9", pid=9)
    (tmp_path / "elsewhere").mkdir()
    first = kept(tmp_path / "one", [*one, answered("c", crash)])
    again = [answered("c", Crashed("SIGKILL", 2)), *other]
    second = kept(tmp_path / "elsewhere" / "two", again, later)
    assert both(first) == both(second)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("at /usr/lib/python3/torch/a.py:12", "at <path>/a.py:12"),
        ("open '/tmp/tmp_x1y2/f.txt' failed", "open '<path>' failed"),
        ("[/torch/gloo/pair.cc:53] closed [127.0.0.1]:4321", "[<path>/pair.cc:53] closed <host>"),
        ("to [localhost]:29500 or 10.0.0.7:3, port 29500", "to <host> or <host>, port <n>"),
        ("connect to [node-3.local]:54321", "connect to <host>"),
        ("pid 17 of process 18 (pid=19)", "pid <n> of process <n> (pid=<n>)"),
        ("<C object at 0x7f3a12bc> 140234512345678", "<C object at <address>> <n>"),
        ("[rank3]: Rank 2 and rank=1", "[rank<n>]: Rank <n> and rank=<n>"),
        ("raised on rank 3 at 12:01:59.123", "raised on rank <n> at <time>"),
        ("timed out after 30012 milliseconds", "timed out after <n> milliseconds"),
    ],
)  # fmt: skip
def test_chance_is_taken_out_of_a_text(said: str, wanted: str) -> None:
    """Once and for all."""
    assert scrub_text(said) == wanted
    assert scrub_text(wanted) == wanted


@pytest.mark.parametrize(
    "said",
    [
        "dim 0 of size 5 should be divisible by 4",
        "got S(0)/S(1) and P('dp', ('tp',))",
        "https://github.com/pytorch/pytorch/pull/193224",
        "expected rank 2, found f32[8,4]{1,0} in jit(f)/main/add",
        "torch 2.13.0 has no aten::foo.default",
        "no answer in 30 s",
        "x[0]:1 and 12345678 bytes",
    ],
)
def test_meaning_is_left_in_a_text(said: str) -> None:
    """Numbers, layouts and links are no chance."""
    assert scrub_text(said) == said


def test_stacks_and_output_are_left_out_and_all_text_is_normalised() -> None:
    """Of every kind of end."""
    say, clean = "object at 0x7f00aa11", "object at <address>"
    seen = Observed("y", "f", (), Foreign(say), disagreements=(say,), note=say)
    wanted = Observed("y", "f", (), Foreign(clean), disagreements=(clean,), note=clean)
    ends: list[tuple[End, End]] = [
        (Done(), Done()),
        (Refused("E", say, "y"), Refused("E", clean, "y")),
        (Unsupported(say, "y"), Unsupported(clean, "y")),
        (Crashed(say, 3, say), Crashed(clean)),
        (Hung(say, "y", say, (say, say)), Hung(clean, "y", clean)),
    ]
    for end, clean_end in ends:
        answer = Answer("q", "toy/1", end, (seen,), None, (say,))
        assert scrub_answer(answer) == Answer("q", "toy/1", clean_end, (wanted,), None, (clean,))
        assert scrub_answer(scrub_answer(answer)) == scrub_answer(answer)


def test_what_the_record_lacks_is_unsupported(tmp_path: Path) -> None:
    """A question, a subject, or this version of the question."""
    path = kept(tmp_path / "r", [answered("a")])
    subjects = ("toy/2", "toy/3")
    read = load(path, "toy", subjects)
    two, three = read.answer(question("a"))
    assert two == answered("a")[1][1]
    assert three == Answer("a", "toy/3", Unsupported("not in the record"))
    for asked, why in (
        (question("z"), "not in the record"),
        (question("a", size=6), "the record has another version of this question"),
    ):
        wanted = tuple(Answer(asked.id, subject, Unsupported(why)) for subject in subjects)
        assert read.answer(asked) == wanted


def test_the_digest_differs_where_questions_do() -> None:
    """In any field, and in the type of a number."""
    base = question()
    (step,) = base.steps
    others = [
        question(size=6),
        question(context="x"),
        msgspec.structs.replace(base, fresh=True),
        *(
            msgspec.structs.replace(base, steps=(msgspec.structs.replace(step, **change),))
            for change in ({"args": ("x", 1)}, {"args": ("x", 1.0)}, {"args": ("x", True)},
                           {"to": None}, {"params": {"axis": 0}})
        ),
    ]  # fmt: skip
    assert len({digest_question(one) for one in [base, *others]}) == len(others) + 1
    again = msgspec.json.decode(msgspec.json.encode(base), type=Question)
    assert digest_question(again) == digest_question(base)


def test_the_digest_does_not_know_defaults_or_the_order_of_parameters() -> None:
    """So it outlives new fields."""
    said = [
        Step("y", "sum", ("x",), {"axis": 0, "keepdims": True}),
        Step("y", "sum", ("x",), {"keepdims": True, "axis": 0}, None),
    ]
    asked = [Question("q", question().mesh, steps=(step,)) for step in said]
    assert digest_question(asked[0]) == digest_question(asked[1]) == "b1dfaf7b6d492872"


def merged(path: Path, *records: Record) -> Path:
    """A record of several."""
    save(path, merge(records))
    return path


def test_runs_that_differ_are_marked_unstable(tmp_path: Path) -> None:
    """In the subjects that differ, in whatever order they are merged."""
    one = load(kept(tmp_path / "1", [answered("a"), answered("b"), answered("c")]))
    two = load(kept(tmp_path / "2", [answered("b", value=2.0), answered("c"), answered("d")]))
    path = merged(tmp_path / "m", one, two)
    whole = load(path, "toy")
    assert {id: line.unstable for id, line in whole.lines.items()} == {
        "a": (), "b": ("toy/1",), "c": (), "d": (),
    }  # fmt: skip
    assert whole.answer(question("b")) == answered("b")[1]
    assert whole.answer(question("d")) == answered("d")[1]
    assert both(merged(tmp_path / "again", whole, one)) == both(path)
    assert both(merged(tmp_path / "back", one, whole)) == both(path)


def test_parts_of_a_run_merge_into_the_bytes_of_the_whole(tmp_path: Path) -> None:
    """As parts of a run on several machines do."""
    answers = [answered(f"q{i}") for i in range(7)]
    whole = kept(tmp_path / "whole", answers)
    parts = [load(kept(tmp_path / f"{i}", answers[i::3])) for i in range(3)]
    assert both(merged(tmp_path / "m", *parts)) == both(whole)


def test_records_of_two_releases_or_questions_do_not_merge(tmp_path: Path) -> None:
    """The message says which, and where."""
    one = load(kept(tmp_path / "1", [answered("a")]))
    other = msgspec.structs.replace(HELLO, release="1.1")
    two = load(kept(tmp_path / "2", [answered("a")], other))
    with pytest.raises(BadInput, match=r"release: found '1\.1', wanted '1\.0\+cpu' as"):
        merge([one, two])
    edited = [(question("a", size=6), answered("a", value=2.0)[1])]
    three = load(kept(tmp_path / "3", edited))
    with pytest.raises(BadInput, match=r'case "a": digest: found \w+, wanted \w+ as'):
        merge([one, three])


def test_a_question_twice_or_without_a_subject_is_not_written(tmp_path: Path) -> None:
    """Neither of the two files."""
    with pytest.raises(ValueError, match="two answers to a"):
        write(tmp_path / "r", HELLO, [answered("a"), answered("a")])
    asked, (first, _) = answered("b")
    with pytest.raises(ValueError, match=r"answers of \('toy/1',\) to b, not of"):
        write(tmp_path / "r", HELLO, [answered("a"), (asked, (first,))])
    assert list(tmp_path.iterdir()) == []


def test_a_record_that_cannot_be_finished_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both files of it, and no draft."""
    path = kept(tmp_path / "r", [answered("a")])
    before = both(path)
    with monkeypatch.context() as patch:
        patch.setattr(array_store, "_PRESET", 99)
        with pytest.raises(lzma.LZMAError):
            write(path, HELLO, [answered("b")])
    assert both(path) == before
    assert sorted(tmp_path.iterdir()) == [path, path_beside(path)]


def test_a_folder_that_takes_no_second_file_keeps_the_old_record(tmp_path: Path) -> None:
    """Both drafts are there before either file is put in its place."""
    path = kept(tmp_path / "r", [answered("a")])
    before = both(path)
    draft = tmp_path / f".r.{os.getpid()}"
    draft.mkdir()
    with pytest.raises(IsADirectoryError):
        write(path, HELLO, [answered("b")])
    assert both(path) == before
    draft.rmdir()
    assert sorted(tmp_path.iterdir()) == [path, path_beside(path)]


def test_lines_of_one_digest_have_the_same_answers(tmp_path: Path) -> None:
    """And no other: to the same question, of all subjects."""
    one = load(kept(tmp_path / "1", [answered("a"), answered("b"), answered("c"), answered("d")]))
    edited = (question("d", size=6), answered("d")[1])
    other = [answered("a"), answered("b", value=2.0), answered("c", Crashed("SIGABRT")), edited]
    two = load(kept(tmp_path / "2", other))
    same = [id for id in "abcd" if one.line_digest(id) == two.line_digest(id)]
    assert same == ["a"]
    assert [id for id in "abcd" if one.stored_answers(id) == two.stored_answers(id)] == ["a", "d"]
    with pytest.raises(KeyError):
        one.line_digest("e")


def strange(text: bytes) -> bytes:
    """A line as other code would have written it: its keys in another order, with blanks."""
    line = msgspec.json.decode(text)
    said = msgspec.json.format(msgspec.json.encode(dict(reversed(line.items()))), indent=0)
    assert said != text
    return said


def test_a_line_that_stays_stays_as_it_is(tmp_path: Path) -> None:
    """To the byte, though this code would write it otherwise; with its arrays, without others."""
    old = load(kept(tmp_path / "old", [answered("a", value=3.0), answered("b"), answered("c")]))
    old.texts["a"], old.texts["b"] = map(strange, (old.texts["a"], old.texts["b"]))
    save(tmp_path / "strange", old)
    old = load(tmp_path / "strange")
    later = other(facts=("gloo", "9 ranks"))
    new = record_of(later, [answered("d", value=4.0), answered("c", value=5.0)], "other")
    path = merged(tmp_path / "m", old.with_only({"a"}), new)
    read = load(path)
    assert read.texts["a"] == old.texts["a"] == path.read_bytes().splitlines()[1]
    assert list(read.lines) == ["a", "c", "d"]
    for asked, given in (answered("a", value=3.0), answered("c", value=5.0)):
        assert read.answer(asked) == given
    # Only what its lines name, each with its list of shards.
    assert len(msgspec.json.decode(read.values.content().split(b"\n")[0])["arrays"]) == 3
    head = msgspec.structs.replace(read.header, count=3, values=old.header.values)
    assert head == old.header


def test_a_line_is_written_anew_only_where_a_mark_is_put(tmp_path: Path) -> None:
    """Of two that other code wrote, the one that is answered otherwise now."""
    old = load(kept(tmp_path / "old", [answered("a"), answered("b")]))
    old.texts = {id: strange(text) for id, text in old.texts.items()}
    again = record_of(HELLO, [answered("a"), answered("b", value=2.0)])
    texts = merge([old, again]).texts
    assert texts["a"] == old.texts["a"]
    assert texts["b"].endswith(b'"unstable":["toy/1"]}')


def test_a_list_takes_its_arrays_along(tmp_path: Path) -> None:
    """Shards under one reference, each under another."""
    arrays = tuple(pack(np.full((5, 7), i, np.float32)) for i in range(8))
    seen = Observed("y", "float32", (5, 7), shards=arrays)
    many = question("m"), tuple(Answer("m", one, Done(), (seen,)) for one in SUBJECTS)
    read = load(kept(tmp_path / "r", [many, answered("a", value=9.0)]))
    assert b'"shards":"#' in read.texts["m"]
    part = merged(tmp_path / "part", read.with_only({"m"}))
    assert load(part).answer(many[0]) == many[1]
    assert both(part) == both(kept(tmp_path / "alone", [many]))


def test_the_header_says_by_which_code(tmp_path: Path) -> None:
    """And one that was made before there was such a field is read, and saved as it was."""
    path = kept(tmp_path / "r", [answered("a")])
    before = both(path)
    assert load(path).header.code == ""
    assert b'"code"' not in before[0]
    save(path, load(path))
    assert both(path) == before
    write(path, HELLO, [answered("a")], "0123456789abcdef")
    assert load(path).header.code == "0123456789abcdef"


def test_a_record_has_a_question_word_for_word(tmp_path: Path) -> None:
    """Not another of its name."""
    read = load(kept(tmp_path / "r", [answered("a")]))
    assert read.has(question("a"))
    assert not read.has(question("a", size=6))
    assert not read.has(question("b"))


def test_a_record_is_of_what_says_hello(tmp_path: Path) -> None:
    """Whatever it was started with, and in whichever patch of its Python."""
    path = kept(tmp_path / "r", [answered("a")])
    read = load(path)
    read.check_can_extend(other(python="3.11.1", facts=()), SUBJECTS)
    with pytest.raises(BadInput, match=rf"^{path}: release: found '1\.0\+cpu', wanted '2' as runs"):
        read.check_can_extend(other(release="2"), SUBJECTS)
    with pytest.raises(BadInput, match=r"unseen: found .* as runs here"):
        read.check_can_extend(other(unseen=()), SUBJECTS)
    with pytest.raises(BadInput, match="subjects: found"):
        read.check_can_extend(HELLO, SUBJECTS[:1])


def test_what_is_not_of_one_release_is_not_put_together(tmp_path: Path) -> None:
    """Nor of one Python, nor of the same subjects, nor of what sees more."""
    one = load(kept(tmp_path / "1", [answered("a")]))
    asked, (first, _) = answered("a")
    others = {
        "release": kept(tmp_path / "2", [answered("a")], other(release="2")),
        "python": kept(tmp_path / "3", [answered("a")], other(python="3.12")),
        "subjects": kept(tmp_path / "4", [(asked, (first,))]),
        "unseen": kept(tmp_path / "5", [answered("a")], other(unseen=())),
    }  # fmt: skip
    for field, path in others.items():
        with pytest.raises(BadInput, match=rf"^{path}: {field}: found .* as {tmp_path}/1"):
            merge([one, load(path)])
    with pytest.raises(ValueError, match="no records"):
        merge([])


def test_a_further_run_is_added_by_command(tmp_path: Path) -> None:
    """What differs is marked, what is new is there."""
    path = kept(tmp_path / "r.jsonl", [answered("a"), answered("b")])
    again = kept(tmp_path / "s.jsonl", [answered("b", value=2.0), answered("c")])
    command = [sys.executable, "-m", "adapters.record", str(path), str(again)]
    subprocess.run(command, cwd=ROOT, check=True)
    marked = load(path)
    assert {id: line.unstable for id, line in marked.lines.items()} == {
        "a": (), "b": ("toy/1",), "c": (),
    }  # fmt: skip
    assert marked.stored_answers("b") == answered("b")[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "found nothing, wanted RECORD RUN..."),
        (["r"], "found r, wanted RECORD RUN..."),
        (["{}/none", "{}/none"], "{}/none: found No such file or directory, wanted a re"),
    ],
)
def test_a_bad_command_is_refused_in_one_line(tmp_path: Path, words: list[str], said: str) -> None:
    """By what was found, and what is wanted."""
    found = main([word.format(tmp_path) for word in words])
    assert found.startswith(said.format(tmp_path))
    assert "\n" not in found


@pytest.mark.parametrize("name", ["torch-2.13.0", "jax-0.10.2"])
def test_committed_records_are_what_is_written_of_their_answers(tmp_path: Path, name: str) -> None:
    """Every answer read and written again: the same bytes, small, in the order of their ids."""
    path = ROOT / "records" / f"{name}.jsonl"
    read = load(path)
    arrays = ArrayStore()
    for id, line in read.lines.items():
        assert encode(read.stored_answers(id), read.mesh(id), arrays) == line.answers
    assert arrays.content() == read.values.content()
    save(tmp_path / "again", read)
    assert both(tmp_path / "again") == both(path)
    assert list(read.lines) == sorted(read.lines)
    assert len(path.read_bytes()) < 2_500_000
    assert len(path_beside(path).read_bytes()) < 500_000
