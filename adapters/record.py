"""How are a framework's answers kept? A text that git can diff, and beside it a file of arrays.

``torch-2.13.0.jsonl`` is lines of JSON: a header, then one line per question in the order of their
ids, with answers as `adapters.kept` writes them. ``torch-2.13.0.values.xz`` has the arrays that are
not small, each under the digest that the lines name. Two runs of one release give the same bytes:
nothing in a record is a date, process, path or stack. Refuses to know what a right answer is.

``python -m adapters.record repeat RECORD RUN...`` marks as unstable in RECORD what further runs of
the same release answered otherwise; ``python -m adapters.record replace RECORD PART...`` puts the
lines of newer, partial recordings in the place of its own.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from adapters import kept, normal, protocol, values
from adapters.answer import Answer, Unsupported
from adapters.normal import normalise
from adapters.protocol import Hello, Promises
from adapters.short import read_mesh, say_mesh, short
from adapters.values import Values
from cases.errors import BadInput, Where
from cases.model import Mesh, Question

# Raised whenever a line changes its meaning; a record of another format is turned away.
FORMAT = 2

_A_RECORD = "a record, as pytest --record writes it"
_PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


class Header(msgspec.Struct, frozen=True):
    """The first line: what was asked of what, and how many lines follow.

    ``python`` is major and minor only and ``platform`` ("linux-x86_64") without its version, as
    more would tell apart runs that agree. ``suite``: the version of this project. ``values``:
    digest of the arrays that belong to the lines. ``unseen`` and ``promises``: as in `Hello`.
    """

    format: int
    framework: str
    release: str
    python: str
    platform: str
    suite: str
    facts: tuple[str, ...]
    unseen: tuple[str, ...]
    subjects: tuple[str, ...]
    count: int
    values: str
    promises: Promises = {}


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """Every subject's answer to one question; ``answers`` is JSON, read when it is wanted.

    ``digest`` is that of the question as it was asked, ``mesh`` the question's. ``unstable``
    names the subjects whose answers were not the same in every run.
    """

    id: str
    digest: str
    mesh: str | Mesh
    answers: msgspec.Raw
    unstable: tuple[str, ...] = ()


class _Format(msgspec.Struct, frozen=True):
    format: int


class _Row(msgspec.Struct, frozen=True):
    """A line that is yet to be encoded."""

    digest: str
    mesh: Mesh
    answers: tuple[Answer, ...]
    unstable: tuple[str, ...] = ()


_encoder = msgspec.json.Encoder()
_format = msgspec.json.Decoder(_Format)
_header = msgspec.json.Decoder(Header)
_line = msgspec.json.Decoder(Line)


class Record:
    """A record that was read. Answers as a `adapters.host.Worker` does, with none at work."""

    def __init__(
        self,
        path: str,
        header: Header,
        lines: dict[str, Line],
        values: Values,
        subjects: Sequence[str],
    ):
        self.path = path
        self.header = header
        self.lines = lines
        self.subjects = tuple(subjects)
        self._values = values

    def hello(self) -> Hello:
        """What the framework said that it is, when the record was made."""
        header = self.header
        return Hello(
            protocol.VERSION,
            header.framework,
            header.release,
            header.python,
            header.facts,
            unseen=header.unseen,
            promises=header.promises,
        )

    def ask(self, question: Question) -> None:
        """Nothing to do: every answer is there, or never will be."""

    def answer(self, question: Question) -> tuple[Answer, ...]:
        """One answer per subject, in order; `Unsupported` where the record has none.

        Raises:
            BadInput: the record's line is no list of answers.
        """
        line = self.lines.get(question.id)
        found: dict[str, Answer] = {}
        if line is None:
            why = "not in the record"
        elif line.digest != digest(question):
            why = "the record has another version of this question"
        else:
            why = "not in the record"
            found = {answer.subject: answer for answer in self.kept(question.id)}
        return tuple(
            found.get(subject) or Answer(question.id, subject, Unsupported(why))
            for subject in self.subjects
        )

    def kept(self, id: str) -> tuple[Answer, ...]:
        """The answers to the question called ``id`` as they were kept; KeyError if none were.

        Raises:
            BadInput: the record's line is no list of answers.
        """
        line = self.lines[id]
        mesh = self.mesh(id)
        try:
            return kept.decode(line.answers, id, mesh, self._values)
        except kept.Unreadable as error:
            where = Where(self.path, id, ("answers", *error.keys))
            raise where.bad(error.found, error.wanted) from None

    def mesh(self, id: str) -> Mesh:
        """The mesh of the question called ``id``; KeyError if there is none.

        Raises:
            BadInput: the record's line names no mesh.
        """
        mesh = self.lines[id].mesh
        if isinstance(mesh, Mesh):
            return mesh
        try:
            return read_mesh(mesh)
        except ValueError as error:
            raise BadInput(self.path, id, "mesh", repr(mesh), str(error)) from None

    def line_digest(self, id: str) -> str:
        """Sixteen hex digits, the same of two lines only if question and answers are the same.

        Reads no answer, so it is quick. KeyError if the record has no such line.
        """
        line = self.lines[id]
        return _sixteen(line.digest.encode() + b" " + line.answers)

    def close(self) -> None:
        """Nothing to end."""


def load(
    path: str | Path, framework: str | None = None, subjects: Sequence[str] | None = None
) -> Record:
    """Read a record, of ``framework`` if one is named, to answer as ``subjects``.

    ``path`` is that of the text; its arrays lie beside it. Without ``subjects``, those that it
    has. Answers are read when they are asked for.

    Raises:
        BadInput: it cannot be read, is cut short or damaged, of another format or framework,
            two of its lines are of one question, or its arrays are another record's.
    """
    path = Path(path)
    where = Where(str(path))
    first, *rest = _read(path, where).split(b"\n")
    header = _head(first, where)
    if framework is not None and header.framework != framework:
        raise where.bad(
            f"a record of {header.framework} {header.release}", f"a record of {framework}"
        )
    # What follows the last line's end.
    rest = rest[:-1] if rest and not rest[-1] else rest
    lines: dict[str, Line] = {}
    for number, text in enumerate(rest, start=2):
        try:
            line = _line.decode(text)
        except msgspec.DecodeError as error:
            found = f"no answers ({error})"
            raise BadInput(str(path), "", f"line {number}", found, "one question's") from None
        if line.id in lines:
            raise BadInput(str(path), line.id, "", "two lines of it", "one")
        lines[line.id] = line
    if len(lines) != header.count:
        raise where.bad(f"{len(lines)} questions", f"the {header.count} that its header says")
    its = values.read(values.path_beside(path), header.values, str(path))
    return Record(str(path), header, lines, its, header.subjects if subjects is None else subjects)


def header(path: str | Path) -> Header:
    """The header of a record, without reading the rest.

    Raises:
        BadInput: it cannot be read, or is no record of this format.
    """
    where = Where(str(path))
    try:
        with open(path, "rb") as file:
            first = file.readline()
    except OSError as error:
        raise where.bad(f"{error.strerror}", _A_RECORD) from None
    return _head(first, where)


def _read(path: Path, where: Where) -> bytes:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise where.bad(f"{error.strerror}", _A_RECORD) from None
    if text.startswith(values.XZ):
        found = "an xz-compressed file (a record of format 1, or the arrays of one)"
        raise where.bad(found, f"the text of a record of format {FORMAT}")
    return text


def _head(text: bytes, where: Where) -> Header:
    try:
        found = _format.decode(text).format
        if found != FORMAT:
            raise where.bad(f"format {found}", f"format {FORMAT}")
        return _header.decode(text)
    except msgspec.DecodeError as error:
        raise BadInput(where.file, "", "line 1", f"no header ({error})", _A_RECORD) from None


def write(
    path: str | Path,
    hello: Hello,
    answers: Iterable[tuple[Question, tuple[Answer, ...]]],
) -> None:
    """Keep the answers of one run of this machine. Both files are there whole or not at all.

    Raises:
        ValueError: a question is there twice, or not every question has the same subjects.
        OSError: a file cannot be written.
    """
    rows: dict[str, _Row] = {}
    subjects: tuple[str, ...] | None = None
    for question, given in answers:
        if question.id in rows:
            raise ValueError(f"two answers to {question.id}")
        its_subjects = tuple(answer.subject for answer in given)
        if subjects is not None and its_subjects != subjects:
            raise ValueError(f"answers of {its_subjects} to {question.id}, not of {subjects}")
        subjects = its_subjects
        rows[question.id] = _Row(digest(question), question.mesh, tuple(map(normalise, given)))
    header = Header(
        FORMAT,
        hello.framework,
        hello.release,
        ".".join(hello.python.split(".")[:2]),
        platform_name(),
        suite(),
        tuple(map(normal.text, hello.facts)),
        tuple(map(normal.text, hello.unseen)),
        subjects or (),
        len(rows),
        "",
        hello.promises,
    )
    _write(Path(path), header, rows)


def platform_name() -> str:
    """This machine's platform as headers have it: ``linux-x86_64``."""
    return f"{sys.platform}-{platform.machine()}"


@cache
def suite() -> str:
    """The version of this project, by its own ``pyproject.toml``."""
    version = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]["version"]
    assert isinstance(version, str)
    return version


def _write(path: Path, header: Header, rows: dict[str, _Row]) -> None:
    arrays = Values()
    lines = [
        Line(
            id,
            row.digest,
            short(row.mesh, say_mesh, read_mesh),
            kept.encode(row.answers, row.mesh, arrays),
            row.unstable,
        )
        for id, row in sorted(rows.items())
    ]
    content = arrays.content()
    said = {"count": len(rows), "values": values.digest(content)}
    head = msgspec.structs.replace(header, **said)
    text = b"".join(_encoder.encode(row) + b"\n" for row in (head, *lines))
    # Beside the record, so that putting it in its place is one step. The text comes last: it is
    # by the text that files which do not belong together are noticed.
    parts = [(values.path_beside(path), values.pack(content)), (path, text)]
    drafts = [target.with_name(f".{target.name}.{os.getpid()}") for target, _ in parts]
    try:
        for draft, (_, data) in zip(drafts, parts, strict=True):
            draft.write_bytes(data)
        for draft, (target, _) in zip(drafts, parts, strict=True):
            draft.replace(target)
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)


def merge(path: str | Path, records: Sequence[Record]) -> None:
    """One record of several: parts of one run, or repeated runs, of one release.

    Where they differ on a question, the answers of the first that has it are kept, and the
    subjects whose answers differ are marked unstable.

    Raises:
        BadInput: they are not of one release, or a question is not the same in all.
        ValueError: there are none.
        OSError: a file cannot be written.
    """
    if not records:
        raise ValueError("no records to merge")
    first = records[0]
    rows: dict[str, _Row] = {}
    holder: dict[str, Record] = {}
    for record in records:
        _check_same(record, first, _OF_ONE_RUN)
        for id, line in record.lines.items():
            earlier = holder.setdefault(id, record)
            have = rows.setdefault(id, _row(record, id))
            if have.digest != line.digest:
                raise BadInput(
                    record.path, id, "digest", line.digest, f"{have.digest} as {earlier.path}"
                )
            shaky = {*have.unstable, *line.unstable, *differing(earlier, record, id)}
            rows[id] = msgspec.structs.replace(have, unstable=tuple(sorted(shaky)))
    _write(Path(path), first.header, rows)


def replace(path: str | Path, records: Sequence[Record]) -> None:
    """One record of several, older first: of every question the lines of the last that has it.

    So a part of a record is made again. Header and marks of what is unstable are the newer's too.

    Raises:
        BadInput: they are not of one release, Python and platform.
        ValueError: there are none.
        OSError: a file cannot be written.
    """
    if not records:
        raise ValueError("no records to replace")
    last = records[-1]
    rows: dict[str, _Row] = {}
    for record in records:
        _check_same(record, records[0], _OF_ONE_RELEASE)
        rows |= {id: _row(record, id) for id in record.lines}
    _write(Path(path), last.header, rows)


# What every record that answers as one has in common, and runs of one suite besides.
_OF_ONE_RELEASE = ("framework", "release", "python", "platform", "subjects")
_OF_ONE_RUN = (*_OF_ONE_RELEASE, "suite", "facts", "unseen", "promises")


def _check_same(record: Record, other: Record, fields: Iterable[str]) -> None:
    for field in fields:
        found, wanted = getattr(record.header, field), getattr(other.header, field)
        if found != wanted:
            raise BadInput(record.path, "", field, repr(found), f"{wanted!r} as {other.path}")


def _row(record: Record, id: str) -> _Row:
    line = record.lines[id]
    return _Row(line.digest, record.mesh(id), record.kept(id), line.unstable)


def compare(one: Record, other: Record) -> tuple[str, ...]:
    """Ids of the questions that both were asked, word for word, and answer differently."""
    return tuple(
        id
        for id, line in one.lines.items()
        if id in other.lines and line.digest == other.lines[id].digest and differing(one, other, id)
    )


def differing(one: Record, other: Record, id: str) -> tuple[str, ...]:
    """Subjects whose answers to the question ``id`` differ; KeyError if one has no answers.

    Raises:
        BadInput: a line is no list of answers.
    """
    if one.line_digest(id) == other.line_digest(id):
        return ()
    left, right = ({a.subject: a for a in record.kept(id)} for record in (one, other))
    return tuple(subject for subject in left if left[subject] != right.get(subject))


def digest(question: Question) -> str:
    """Sixteen hex digits that differ where two questions do.

    Fields left at their defaults do not count, so a record stays good when questions get a
    new field.
    """
    text = msgspec.json.encode(_said(question), order="deterministic")
    return _sixteen(text)


def _sixteen(said: bytes) -> str:
    return hashlib.sha256(said).hexdigest()[:16]


def _said(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_said(part) for part in value]
    if not isinstance(value, msgspec.Struct):
        return value
    said = {}
    for name, default in _fields(type(value)):
        part = getattr(value, name)
        if part != default:
            said[name] = _said(part)
    return said


@cache
def _fields(struct: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    """Each field with its default, which for a field without one equals nothing."""
    factory = msgspec.NODEFAULT
    return tuple(
        (
            field.name,
            field.default if field.default_factory is factory else field.default_factory(),
        )
        for field in msgspec.structs.fields(struct)
    )


_MODES: dict[str, Callable[[Path, Sequence[Record]], None]] = {"repeat": merge, "replace": replace}


def main(words: Sequence[str]) -> str:
    """What is wrong with the command, or with a file it names; "" when RECORD is rewritten."""
    mode, *paths = words or [""]
    if mode not in _MODES or len(paths) < 2:
        return (
            "found "
            + (" ".join(words) or "nothing")
            + (", wanted repeat RECORD RUN... or replace RECORD PART...")
        )
    try:
        _MODES[mode](Path(paths[0]), [load(path) for path in paths])
    except BadInput as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or 0)
