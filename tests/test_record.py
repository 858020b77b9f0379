"""Are answers kept whole, small, and to the byte the same from one run to the next?"""

from __future__ import annotations

import lzma
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from adapters import record
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
from adapters.host import Worker
from adapters.normal import normalise, text
from adapters.protocol import VERSION, Hello
from adapters.record import compare, digest, load, merge, write
from cases.arrays import pack
from cases.errors import BadInput
from cases.model import Foreign, Question, Step
from tests.test_host import question

HELLO = Hello(VERSION, "toy", "1.0+cpu", "3.11.7", ("gloo", "8 ranks"), 4321)
SUBJECTS = ("toy/1", "toy/2")
Kept = tuple[Question, tuple[Answer, ...]]


def answered(name: str, end: End | None = None, value: float = 1.0) -> Kept:
    """A question, and an answer of each subject; the first ends with ``end``."""
    array = pack(np.full((2, 3), value, np.float32))
    seen = Observed("y", "float32", (2, 3), shards=(array, None), full=(array,))
    fired = Collective("all-gather", ("a",), 2, 12, "backward")
    first = Answer(name, SUBJECTS[0], end or Done(), (seen,), (fired,))
    return question(name), (first, Answer(name, SUBJECTS[1], Done()))


def kept(path: Path, answers: Iterable[Kept], hello: Hello = HELLO) -> Path:
    """A record of these answers."""
    write(path, hello, answers)
    return path


def test_what_was_answered_is_read_back(tmp_path: Path) -> None:
    answers = [answered("b", Refused("ValueError", "no", "y")), answered("a", value=np.nan)]
    read = load(kept(tmp_path / "r", answers), "toy")
    for asked, wanted in answers:
        read.ask(asked)
        assert read.answer(asked) == wanted
    assert read.hello() == Hello(VERSION, "toy", "1.0+cpu", "3.11", ("gloo", "8 ranks"))
    assert read.header.subjects == SUBJECTS
    assert read.header.count == 2


def test_a_live_worker_s_answers_are_read_back(tmp_path: Path) -> None:
    worker = Worker("toy", "tests.toys.plain", SUBJECTS)
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
    line = "ProcessGroup of pid {0}: connect to [127.0.0.1]:4{0} failed, object at 0x7f00{0}"
    one = [answered("a", Refused("E", line.format(1234), "y")), answered("b")]
    crash = Crashed("SIGKILL", 2, "chatter of process 1234")
    other = [answered("b"), answered("a", Refused("E", line.format(5678), "y"))]
    later = msgspec.structs.replace(HELLO, python="3.11.9", pid=9)
    (tmp_path / "elsewhere").mkdir()
    first = kept(tmp_path / "one", [*one, answered("c", crash)])
    again = [answered("c", Crashed("SIGKILL", 2)), *other]
    second = kept(tmp_path / "elsewhere" / "two", again, later)
    assert first.read_bytes() == second.read_bytes()


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
    assert text(said) == wanted
    assert text(wanted) == wanted


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
    assert text(said) == said


def test_stacks_and_output_are_left_out_and_all_text_is_normalised() -> None:
    say, clean = "object at 0x7f00aa11", "object at <address>"
    seen = Observed("y", "f", (), Foreign(say), disagreements=(say,), note=say)
    wanted = Observed("y", "f", (), Foreign(clean), disagreements=(clean,), note=clean)
    ends: list[tuple[End, End]] = [
        (Done(), Done()),
        (Refused("E", say, "y"), Refused("E", clean, "y")),
        (Unsupported(say, "y"), Unsupported(clean, "y")),
        (Crashed(say, 3, say), Crashed(clean, 3)),
        (Hung(say, "y", say, (say, say)), Hung(clean, "y", clean)),
    ]
    for end, clean_end in ends:
        answer = Answer("q", "toy/1", end, (seen,), None, (say,))
        assert normalise(answer) == Answer("q", "toy/1", clean_end, (wanted,), None, (clean,))
        assert normalise(normalise(answer)) == normalise(answer)


def test_what_the_record_lacks_is_unsupported(tmp_path: Path) -> None:
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
    assert len({digest(one) for one in [base, *others]}) == len(others) + 1
    again = msgspec.json.decode(msgspec.json.encode(base), type=Question)
    assert digest(again) == digest(base)


def test_the_digest_does_not_know_defaults_or_the_order_of_parameters() -> None:
    said = [
        Step("y", "sum", ("x",), {"axis": 0, "keepdims": True}),
        Step("y", "sum", ("x",), {"keepdims": True, "axis": 0}, None),
    ]
    asked = [Question("q", question().mesh, steps=(step,)) for step in said]
    assert digest(asked[0]) == digest(asked[1]) == "b1dfaf7b6d492872"


def test_runs_that_differ_are_marked_unstable(tmp_path: Path) -> None:
    one = load(kept(tmp_path / "1", [answered("a"), answered("b"), answered("c")]))
    two = load(kept(tmp_path / "2", [answered("b", value=2.0), answered("c"), answered("d")]))
    assert compare(one, two) == ("b",)
    merge(tmp_path / "m", [one, two])
    merged = load(tmp_path / "m", "toy")
    assert {id: line.unstable for id, line in merged.lines.items()} == {
        "a": (), "b": ("toy/1",), "c": (), "d": (),
    }  # fmt: skip
    assert merged.answer(question("b")) == answered("b")[1]
    assert merged.answer(question("d")) == answered("d")[1]
    merge(tmp_path / "again", [load(tmp_path / "m"), one])
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()
    merge(tmp_path / "back", [one, load(tmp_path / "m")])
    assert (tmp_path / "back").read_bytes() == (tmp_path / "m").read_bytes()


def test_parts_of_a_run_merge_into_the_bytes_of_the_whole(tmp_path: Path) -> None:
    answers = [answered(f"q{i}") for i in range(7)]
    whole = kept(tmp_path / "whole", answers)
    parts = [load(kept(tmp_path / f"{i}", answers[i::3])) for i in range(3)]
    merge(tmp_path / "m", parts)
    assert (tmp_path / "m").read_bytes() == whole.read_bytes()


def test_records_of_two_releases_or_questions_do_not_merge(tmp_path: Path) -> None:
    one = load(kept(tmp_path / "1", [answered("a")]))
    other = msgspec.structs.replace(HELLO, release="1.1")
    two = load(kept(tmp_path / "2", [answered("a")], other))
    with pytest.raises(BadInput, match=r"release: found '1\.1', wanted '1\.0\+cpu' as"):
        merge(tmp_path / "m", [one, two])
    edited = [(question("a", size=6), answered("a", value=2.0)[1])]
    three = load(kept(tmp_path / "3", edited))
    assert compare(one, three) == ()
    with pytest.raises(BadInput, match=r'case "a": digest: found \w+, wanted \w+ as'):
        merge(tmp_path / "m", [one, three])
    assert not (tmp_path / "m").exists()


def test_a_question_twice_or_without_a_subject_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two answers to a"):
        write(tmp_path / "r", HELLO, [answered("a"), answered("a")])
    asked, (first, _) = answered("b")
    with pytest.raises(ValueError, match=r"answers of \('toy/1',\) to b, not of"):
        write(tmp_path / "r", HELLO, [answered("a"), (asked, (first,))])
    assert list(tmp_path.iterdir()) == []


def lines(path: Path) -> list[bytes]:
    """The lines of a record."""
    return lzma.decompress(path.read_bytes()).splitlines(keepends=True)


def zipped(*parts: bytes) -> bytes:
    """An xz-compressed file of these lines."""
    return lzma.compress(b"".join(parts))


Damage = Callable[[Path], bytes]
DAMAGE: dict[str, tuple[Damage, str]] = {
    "empty": (lambda path: b"", "found a file that is not xz-compressed, wanted a record"),
    "text": (lambda path: b"[[case]]\n", "found a file that is not xz-compressed, wanted a record"),
    "cut short": (lambda path: path.read_bytes()[:-30], "found a file cut short"),
    "only the head": (lambda path: path.read_bytes()[:6], "found a file cut short"),
    "damaged": (
        lambda path: path.read_bytes()[:-8] + bytes(4) + path.read_bytes()[-4:],
        "found a damaged file, wanted a record",
    ),
    "zip of nothing": (lambda path: zipped(), "line 1: found no header (Input data was truncated"),
    "another JSON file": (lambda path: zipped(b'{"case": 1}\n'), "line 1: found no header ("),
    "future format": (
        lambda path: zipped(b'{"format":2,"new":[]}\n', *lines(path)[1:]),
        "found format 2, wanted format 1",
    ),
    "bad header": (
        lambda path: zipped(lines(path)[0].replace(b'"count":2', b'"count":"two"')),
        "line 1: found no header (Expected `int`, got `str` - at `$.count`), wanted a record",
    ),
    "a line less": (
        lambda path: zipped(*lines(path)[:-1]),
        "found 1 questions, wanted the 2 that its header says",
    ),
    "a line more": (
        lambda path: zipped(*lines(path), lines(path)[1].replace(b'"a"', b'"z"')),
        "found 3 questions, wanted the 2 that its header says",
    ),
    "a line twice": (
        lambda path: zipped(*lines(path)[:2], lines(path)[1]),
        'case "a": found two lines of it, wanted one',
    ),
    "a line cut": (
        lambda path: zipped(*lines(path)[:-1], lines(path)[-1][:-30]),
        "line 3: found no answers (Input data was truncated), wanted one question's",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_bad_record_is_refused_in_one_line(tmp_path: Path, damage: str) -> None:
    path = kept(tmp_path / "r", [answered("a"), answered("b")])
    change, said = DAMAGE[damage]
    path.write_bytes(change(path))
    with pytest.raises(BadInput) as error:
        load(path, "toy")
    assert str(error.value).startswith(f"{path}: {said}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "found"), [("none", "No such file or directory"), ("", "Is a directory")]
)
def test_a_record_that_cannot_be_opened_is_refused(tmp_path: Path, name: str, found: str) -> None:
    with pytest.raises(BadInput, match=f"found {found}, wanted a record"):
        load(tmp_path / name)


def test_a_record_of_another_framework_is_refused(tmp_path: Path) -> None:
    path = kept(tmp_path / "r", [answered("a")])
    with pytest.raises(BadInput, match=r"found a record of toy 1\.0\+cpu, wanted a record of jax"):
        load(path, "jax")


def test_a_line_with_no_answers_is_refused_when_it_is_read(tmp_path: Path) -> None:
    path = kept(tmp_path / "r", [answered("a"), answered("b")])
    path.write_bytes(zipped(*(line.replace(b'"Done"', b'"Fine"') for line in lines(path))))
    with pytest.raises(
        BadInput, match=r'case "a": answers: found no answers .Invalid value .Fine.'
    ):
        load(path).answer(question("a"))


def test_a_record_that_cannot_be_finished_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kept(tmp_path / "r", [answered("a")])
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(record, "_PRESET", 99)
        with pytest.raises(lzma.LZMAError):
            write(path, HELLO, [answered("b")])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
