"""Is a record that cannot be used refused in one line, which says where and why?"""

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from adapters.array_store import path_beside
from adapters.record import load
from cases.errors import BadInput
from tests.test_record import answered, kept
from tests.test_worker_client import question


def lines(path: Path) -> list[bytes]:
    """The lines of a record."""
    return path.read_bytes().splitlines(keepends=True)


Damage = Callable[[Path], bytes]
DAMAGE: dict[str, tuple[Damage, str]] = {
    "empty": (lambda path: b"", "line 1: found no header (Input data was truncated"),
    "text": (lambda path: b"[[case]]\n", "line 1: found no header ("),
    "format 1": (
        lambda path: lzma.compress(path.read_bytes()),
        "found an xz-compressed file (a record of format 1, or the arrays of one), wanted the text",
    ),
    "its values": (
        lambda path: path_beside(path).read_bytes(),
        "found an xz-compressed file (a record of format 1, or the arrays of one), wanted the text",
    ),
    "format 1 as text": (
        lambda path: b'{"format":1,"old":[]}\n' + b"".join(lines(path)[1:]),
        "found format 1, wanted format 2",
    ),
    "future format": (
        lambda path: b'{"format":3,"new":[]}\n' + b"".join(lines(path)[1:]),
        "found format 3, wanted format 2",
    ),
    "another JSON file": (lambda path: b'{"case": 1}\n', "line 1: found no header ("),
    "bad header": (
        lambda path: lines(path)[0].replace(b'"count":2', b'"count":"two"'),
        "line 1: found no header (Expected `int`, got `str` - at `$.count`), wanted a record",
    ),
    "a line less": (
        lambda path: b"".join(lines(path)[:-1]),
        "found 1 questions, wanted the 2 that its header says",
    ),
    "a line more": (
        lambda path: b"".join([*lines(path), lines(path)[1].replace(b'"a"', b'"z"')]),
        "found 3 questions, wanted the 2 that its header says",
    ),
    "a line twice": (
        lambda path: b"".join([*lines(path)[:2], lines(path)[1]]),
        'case "a": found two lines of it, wanted one',
    ),
    "cut short": (
        lambda path: path.read_bytes()[:-30],
        "line 3: found no answers (Input data was truncated), wanted one question's",
    ),
    "no text": (
        lambda path: path.read_bytes()[:-9] + b"\xff\xfe" + path.read_bytes()[-7:],
        "line 3: found no answers (",
    ),
}  # fmt: skip


def refused(path: Path) -> str:
    """The line that says what is wrong with a record, which names one of its files."""
    with pytest.raises(BadInput) as error:
        load(path, "toy")
    said = str(error.value)
    assert "\n" not in said
    return said


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_bad_record_is_refused_in_one_line(tmp_path: Path, damage: str) -> None:
    """When it is loaded."""
    path = kept(tmp_path / "r", [answered("a"), answered("b")])
    change, said = DAMAGE[damage]
    path.write_bytes(change(path))
    assert refused(path).startswith(f"{path}: {said}")


VALUES: dict[str, tuple[Damage, str]] = {
    "empty": (lambda path: b"", "found a file that is not xz-compressed, wanted the values of"),
    "cut short": (lambda path: path.read_bytes()[:-30], "found a file cut short, wanted"),
    "text": (
        lambda path: b"[[case]]\n",
        "found a file that is not xz-compressed, wanted the values of",
    ),
    "damaged": (
        lambda path: path.read_bytes()[:-8] + bytes(4) + path.read_bytes()[-4:],
        "found a damaged file, wanted the values of",
    ),
    "of nothing": (lambda path: lzma.compress(b""), "found values of another run (digest e3b0c44"),
}


@pytest.mark.parametrize("damage", VALUES)
def test_a_bad_file_of_values_is_refused_in_one_line(tmp_path: Path, damage: str) -> None:
    """Before any answer is read."""
    path = kept(tmp_path / "r", [answered("a"), answered("b")])
    change, said = VALUES[damage]
    path_beside(path).write_bytes(change(path_beside(path)))
    assert refused(path).startswith(f"{path_beside(path)}: {said}")


def test_the_values_of_another_run_are_refused(tmp_path: Path) -> None:
    """As when one of the two files was copied, or a run ended between them."""
    path = kept(tmp_path / "r.jsonl", [answered("a")])
    other = kept(tmp_path / "s.jsonl", [answered("a", value=2.0)])
    wanted = load(path).header.values
    assert wanted != load(other).header.values
    path_beside(other).replace(path_beside(path))
    with pytest.raises(BadInput) as error:
        load(path)
    found = f"found values of another run (digest {load_digest(other)})"
    wanted = f"wanted the values of {path} (digest {wanted})"
    assert str(error.value) == f"{tmp_path}/r.values.xz: {found}, {wanted}"


def load_digest(path: Path) -> str:
    """The digest of values in a record's header."""
    found = msgspec.json.decode(lines(path)[0])["values"]
    assert isinstance(found, str)
    return found


def test_missing_values_are_refused(tmp_path: Path) -> None:
    """When the record is loaded, by the path where they should be."""
    path = kept(tmp_path / "r", [answered("a")])
    path_beside(path).unlink()
    said = f"found No such file or directory, wanted the values of {path}"
    assert refused(path) == f"{path_beside(path)}: {said}"


@pytest.mark.parametrize(
    ("name", "found"), [("none", "No such file or directory"), ("", "Is a directory")]
)
def test_a_record_that_cannot_be_opened_is_refused(tmp_path: Path, name: str, found: str) -> None:
    """As the system says why."""
    with pytest.raises(BadInput, match=f"found {found}, wanted a record"):
        load(tmp_path / name)


def test_a_record_of_another_framework_is_refused(tmp_path: Path) -> None:
    """By name and release."""
    path = kept(tmp_path / "r", [answered("a")])
    with pytest.raises(BadInput, match=r"found a record of toy 1\.0\+cpu, wanted a record of jax"):
        load(path, "jax")


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        (b'"toy/2":"done"', b'"toy/2":"fine"', r"answers\.toy/2\.end: found 'fine', wanted an end"),
        (b'"toy/2":"done"', b'"toy/2":3', r"answers: found no answers .Expected `str | object`"),
        (
            b'"full":"#',
            b'"full":"#a',
            r"answers\.toy/1\.seen\.y\.full: found '#a\w+', wanted an arr",
        ),
        (b'"mesh":"a=2"', b'"mesh":"a2"', r"mesh: found 'a2', wanted a mesh, as a=2 b=4"),
    ],
)
def test_a_bad_line_is_refused_when_it_is_read(
    tmp_path: Path, was: bytes, now: bytes, said: str
) -> None:
    """By file, case and key; the others are read."""
    path = kept(tmp_path / "r", [answered("a"), answered("b")])
    head, one, two = lines(path)
    assert was in two
    path.write_bytes(head + one + two.replace(was, now))
    read = load(path)
    assert read.answer(question("a")) == answered("a")[1]
    with pytest.raises(BadInput, match=rf'^{path}: case "b": {said}'):
        read.answer(question("b"))
