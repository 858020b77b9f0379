"""How are a framework's answers kept? One file per release, and two runs give the same bytes.

A record is xz-compressed lines of JSON: a header, then one line per question in the order of their
ids. It holds no date, process, path or stack. Refuses to know what a right answer is.
"""

from __future__ import annotations

import hashlib
import lzma
import os
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from adapters import normal, protocol
from adapters.answer import Answer, Unsupported
from adapters.normal import normalise
from adapters.protocol import Hello
from cases.errors import BadInput, Where
from cases.model import Question

# Raised whenever a line changes its meaning; a record of another format is turned away.
FORMAT = 1

# Shards repeat from case to case: a tenth of what gzip makes of them, whose window is small.
_PRESET = 6
_A_RECORD = "a record, as pytest --record writes it"


class Header(msgspec.Struct, frozen=True):
    """The first line: what was asked, and how many lines follow.

    ``python`` is major and minor only, as more would tell apart runs that agree.
    """

    format: int
    framework: str
    release: str
    python: str
    facts: tuple[str, ...]
    subjects: tuple[str, ...]
    count: int


class Line(msgspec.Struct, frozen=True):
    """Every subject's answer to one question; ``answers`` is JSON, read when it is wanted.

    ``digest`` is that of the question as it was asked. ``unstable`` names the subjects whose
    answers were not the same in every run.
    """

    id: str
    digest: str
    answers: msgspec.Raw
    unstable: tuple[str, ...] = ()


class _Format(msgspec.Struct, frozen=True):
    format: int


_encoder = msgspec.json.Encoder()
_format = msgspec.json.Decoder(_Format)
_header = msgspec.json.Decoder(Header)
_line = msgspec.json.Decoder(Line)
_answers = msgspec.json.Decoder(tuple[Answer, ...])


class Record:
    """A record that was read. Answers as a `adapters.host.Worker` does, with none at work."""

    def __init__(self, path: str, header: Header, lines: dict[str, Line], subjects: Sequence[str]):
        self.path = path
        self.header = header
        self.lines = lines
        self.subjects = tuple(subjects)

    def hello(self) -> Hello:
        """What the framework said that it is, when the record was made."""
        header = self.header
        return Hello(
            protocol.VERSION, header.framework, header.release, header.python, header.facts
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
        try:
            return _answers.decode(self.lines[id].answers)
        except msgspec.DecodeError as error:
            found = f"no answers ({error})"
            raise BadInput(self.path, id, "answers", found, "one per subject") from None

    def close(self) -> None:
        """Nothing to end."""


def load(
    path: str | Path, framework: str | None = None, subjects: Sequence[str] | None = None
) -> Record:
    """Read a record, of ``framework`` if one is named, to answer as ``subjects``.

    Without ``subjects``, those that it has.

    Raises:
        BadInput: it cannot be read, is cut short or damaged, of another format or framework,
            or two of its lines are of one question.
    """
    where = Where(str(path))
    first, *rest = _read(Path(path), where).split(b"\n")
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
    return Record(str(path), header, lines, header.subjects if subjects is None else subjects)


def _read(path: Path, where: Where) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise where.bad(f"{error.strerror}", _A_RECORD) from None
    if not data.startswith(b"\xfd7zXZ"):
        raise where.bad("a file that is not xz-compressed", _A_RECORD)
    decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    try:
        text = decoder.decompress(data)
    except lzma.LZMAError:
        raise where.bad("a damaged file", _A_RECORD) from None
    if not decoder.eof:
        raise where.bad("a file cut short", _A_RECORD)
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
    """Keep the answers of one run. The file is there whole or not at all.

    Raises:
        ValueError: a question is there twice, or not every question has the same subjects.
        OSError: the file cannot be written.
    """
    lines: dict[str, Line] = {}
    subjects: tuple[str, ...] | None = None
    for question, given in answers:
        if question.id in lines:
            raise ValueError(f"two answers to {question.id}")
        its_subjects = tuple(answer.subject for answer in given)
        if subjects is not None and its_subjects != subjects:
            raise ValueError(f"answers of {its_subjects} to {question.id}, not of {subjects}")
        subjects = its_subjects
        kept = msgspec.Raw(_encoder.encode(tuple(map(normalise, given))))
        lines[question.id] = Line(question.id, digest(question), kept)
    header = Header(
        FORMAT,
        hello.framework,
        hello.release,
        ".".join(hello.python.split(".")[:2]),
        tuple(map(normal.text, hello.facts)),
        subjects or (),
        len(lines),
    )
    _write(Path(path), header, lines)


def _write(path: Path, header: Header, lines: dict[str, Line]) -> None:
    rows = [header, *(lines[id] for id in sorted(lines))]
    # Beside the record, so that putting it in its place is one step.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with lzma.open(draft, "wb", preset=_PRESET) as file:
            for row in rows:
                file.write(_encoder.encode(row) + b"\n")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def merge(path: str | Path, records: Sequence[Record]) -> None:
    """One record of several: parts of one run, or repeated runs, of one release.

    Where they differ on a question, the answers of the first that has it are kept, and the
    subjects whose answers differ are marked unstable.

    Raises:
        BadInput: they are not of one release, or a question is not the same in all.
        ValueError: there are none.
        OSError: the file cannot be written.
    """
    if not records:
        raise ValueError("no records to merge")
    first = records[0]
    lines = dict(first.lines)
    holder = dict.fromkeys(lines, first)
    for record in records[1:]:
        for field in ("framework", "release", "python", "facts", "subjects"):
            found, wanted = getattr(record.header, field), getattr(first.header, field)
            if found != wanted:
                raise BadInput(record.path, "", field, repr(found), f"{wanted!r} as {first.path}")
        for id, line in record.lines.items():
            have = lines.setdefault(id, line)
            earlier = holder.setdefault(id, record)
            if have.digest != line.digest:
                raise BadInput(
                    record.path, id, "digest", line.digest, f"{have.digest} as {earlier.path}"
                )
            shaky = {*have.unstable, *line.unstable, *differing(earlier, record, id)}
            lines[id] = msgspec.structs.replace(have, unstable=tuple(sorted(shaky)))
    _write(Path(path), msgspec.structs.replace(first.header, count=len(lines)), lines)


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
    if bytes(one.lines[id].answers) == bytes(other.lines[id].answers):
        return ()
    left, right = ({a.subject: a for a in record.kept(id)} for record in (one, other))
    return tuple(subject for subject in left if left[subject] != right.get(subject))


def digest(question: Question) -> str:
    """Sixteen hex digits that differ where two questions do.

    Fields left at their defaults do not count, so a record stays good when questions get a
    new field.
    """
    text = msgspec.json.encode(_said(question), order="deterministic")
    return hashlib.sha256(text).hexdigest()[:16]


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
