"""How are a framework's answers kept? A text that git can diff, and beside it a file of arrays.

``torch-2.13.0.jsonl`` has lines of JSON: a header, then one line per question in the order of their
ids, with answers as `adapters.record_codec` writes them. ``torch-2.13.0.values.xz`` has the arrays
that are not small, each under the digest that the lines name. Two runs of one release give the same
bytes: a record has no date, process, path or stack. Refuses to know what a right answer is.

``python -m adapters.record RECORD RUN...`` adds to RECORD the questions that further runs of the
same release were asked, and marks as unstable the answers that differ between runs.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tomllib
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from adapters import array_store, protocol, record_codec, scrub
from adapters.answer import Answer, Unsupported
from adapters.array_store import ArrayStore
from adapters.compact_notation import compact, format_mesh, parse_mesh
from adapters.protocol import Hello, Promises
from adapters.scrub import scrub_answer
from cases.errors import BadInput, Where
from cases.model import Mesh, Question

# Raise it when a line changes its meaning. A record of another format is refused.
FORMAT = 2

_A_RECORD = "a record, as pytest --record writes it"
_PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


class Header(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first line: which framework answered, where, and how many lines follow.

    ``python`` is major and minor only and ``platform`` ("linux-x86_64") has no version, since more
    would separate runs that agree. ``suite``: the version of this project. ``values``: digest of
    the arrays that belong to the lines. ``unseen`` and ``promises``: as in `Hello`. ``code``: the
    `adapters.code_digest` of the code that gave the answers; "" if unknown. Lines that were added
    later change only ``count`` and ``values``.
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
    code: str = ""


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """Every subject's answer to one question; ``answers`` is JSON, decoded when needed.

    ``digest`` is that of the question as it was asked, ``mesh`` the question's. ``unstable`` names
    the subjects whose answers were not the same in every run.
    """

    id: str
    digest: str
    mesh: str | Mesh
    answers: msgspec.Raw
    unstable: tuple[str, ...] = ()


class _Format(msgspec.Struct, frozen=True):
    format: int


_encoder = msgspec.json.Encoder()
_format = msgspec.json.Decoder(_Format)
_header = msgspec.json.Decoder(Header)
_line = msgspec.json.Decoder(Line)


class Record:
    """A record that was read, or is to be saved. It answers as a `WorkerClient` does.

    ``texts``: every line as it stands in the file, by id, so that lines which only another version
    of this project can read are kept.
    """

    def __init__(
        self,
        path: str,
        header: Header,
        lines: dict[str, Line],
        texts: dict[str, bytes],
        values: ArrayStore,
        subjects: Sequence[str],
    ):
        self.path = path
        self.header = header
        self.lines = lines
        self.texts = texts
        self.values = values
        self.subjects = tuple(subjects)

    def hello(self) -> Hello:
        """What the framework said about itself when the record was made."""
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
        """Do nothing: every answer is there, or never will be."""

    def answer(self, question: Question) -> tuple[Answer, ...]:
        """One answer per subject, in order; `Unsupported` if the record has none.

        Raises:
            BadInput: the record's line is no list of answers.
        """
        line = self.lines.get(question.id)
        found: dict[str, Answer] = {}
        if line is None:
            why = "not in the record"
        elif line.digest != digest_question(question):
            why = "the record has another version of this question"
        else:
            why = "not in the record"
            found = {answer.subject: answer for answer in self.stored_answers(question.id)}
        return tuple(
            found.get(subject) or Answer(question.id, subject, Unsupported(why))
            for subject in self.subjects
        )

    def stored_answers(self, id: str) -> tuple[Answer, ...]:
        """The answers to the question called ``id`` as they were kept; KeyError if there are none.

        Raises:
            BadInput: the record's line is no list of answers.
        """
        line = self.lines[id]
        mesh = self.mesh(id)
        try:
            return record_codec.decode(line.answers, id, mesh, self.values)
        except record_codec.UnreadableAnswer as error:
            where = Where(self.path, id, ("answers", *error.keys))
            raise where.error(error.found, error.wanted) from None

    def mesh(self, id: str) -> Mesh:
        """The mesh of the question called ``id``; KeyError if there is none.

        Raises:
            BadInput: the record's line names no mesh.
        """
        mesh = self.lines[id].mesh
        if isinstance(mesh, Mesh):
            return mesh
        try:
            return parse_mesh(mesh)
        except ValueError as error:
            raise BadInput(self.path, id, "mesh", repr(mesh), str(error)) from None

    def line_digest(self, id: str) -> str:
        """Sixteen hex digits, the same for two lines only if question and answers are the same.

        Decodes no answer, so it is quick. KeyError if the record has no such line.
        """
        line = self.lines[id]
        return _hex_digest(line.digest.encode() + b" " + line.answers)

    def has(self, question: Question) -> bool:
        """Whether it has this very question, word for word."""
        line = self.lines.get(question.id)
        return line is not None and line.digest == digest_question(question)

    def with_only(self, ids: Collection[str]) -> Record:
        """The same record with the lines of these questions only."""
        lines = {id: line for id, line in self.lines.items() if id in ids}
        texts = {id: self.texts[id] for id in lines}
        return Record(self.path, self.header, lines, texts, self.values, self.subjects)

    def check_can_extend(self, hello: Hello, subjects: Sequence[str]) -> None:
        """Refuse a framework that cannot add to this record.

        Raises:
            BadInput: it has another release, Python, platform, or other subjects.
        """
        _check_same(self, _header_of(hello, subjects), "as runs here")

    def close(self) -> None:
        """Nothing to end."""


def load(
    path: str | Path, framework: str | None = None, subjects: Sequence[str] | None = None
) -> Record:
    """Read a record, of ``framework`` if one is named, to answer as ``subjects``.

    ``path`` is that of the text; its arrays are beside it. Without ``subjects``, it answers as
    those that it has. Answers are decoded when they are asked for.

    Raises:
        BadInput: it cannot be read, is cut short or damaged, has another format or framework, two
            of its lines are of one question, or its arrays belong to another record.
    """
    path = Path(path)
    where = Where(str(path))
    first, *rest = _read(path, where).split(b"\n")
    header = _head(first, where)
    if framework is not None and header.framework != framework:
        raise where.error(
            f"a record of {header.framework} {header.release}", f"a record of {framework}"
        )
    # The part after the end of the last line.
    rest = rest[:-1] if rest and not rest[-1] else rest
    lines: dict[str, Line] = {}
    texts: dict[str, bytes] = {}
    for number, text in enumerate(rest, start=2):
        try:
            line = _line.decode(text)
        except msgspec.DecodeError as error:
            found = f"no answers ({error})"
            raise BadInput(str(path), "", f"line {number}", found, "one question's") from None
        if line.id in lines:
            raise BadInput(str(path), line.id, "", "two lines of it", "one")
        lines[line.id], texts[line.id] = line, text
    if len(lines) != header.count:
        raise where.error(f"{len(lines)} questions", f"the {header.count} that its header says")
    its = array_store.read(array_store.path_beside(path), header.values, str(path))
    as_whom = header.subjects if subjects is None else subjects
    return Record(str(path), header, lines, texts, its, as_whom)


def read_header(path: str | Path) -> Header:
    """The header of a record, without reading the rest.

    Raises:
        BadInput: it cannot be read, or is no record of this format.
    """
    where = Where(str(path))
    try:
        with open(path, "rb") as file:
            first = file.readline()
    except OSError as error:
        raise where.error(f"{error.strerror}", _A_RECORD) from None
    return _head(first, where)


def _read(path: Path, where: Where) -> bytes:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise where.error(f"{error.strerror}", _A_RECORD) from None
    if text.startswith(array_store.XZ):
        found = "an xz-compressed file (a record of format 1, or the arrays of one)"
        raise where.error(found, f"the text of a record of format {FORMAT}")
    return text


def _head(text: bytes, where: Where) -> Header:
    try:
        found = _format.decode(text).format
        if found != FORMAT:
            raise where.error(f"format {found}", f"format {FORMAT}")
        return _header.decode(text)
    except msgspec.DecodeError as error:
        raise BadInput(where.file, "", "line 1", f"no header ({error})", _A_RECORD) from None


def write(
    path: str | Path,
    hello: Hello,
    answers: Iterable[tuple[Question, tuple[Answer, ...]]],
    code: str = "",
) -> None:
    """Keep the answers of one run on this machine, as `record_of` and `save` do."""
    save(path, record_of(hello, answers, code))


def record_of(
    hello: Hello, answers: Iterable[tuple[Question, tuple[Answer, ...]]], code: str = ""
) -> Record:
    """A record of the answers of one run on this machine, not saved yet.

    Raises:
        ValueError: a question is there twice, or not every question has the same subjects.
    """
    lines: dict[str, Line] = {}
    arrays = ArrayStore()
    subjects: tuple[str, ...] | None = None
    for question, given in answers:
        if question.id in lines:
            raise ValueError(f"two answers to {question.id}")
        its_subjects = tuple(answer.subject for answer in given)
        if subjects is not None and its_subjects != subjects:
            raise ValueError(f"answers of {its_subjects} to {question.id}, not of {subjects}")
        subjects = its_subjects
        mesh = question.mesh
        said = record_codec.encode(tuple(map(scrub_answer, given)), mesh, arrays)
        lines[question.id] = Line(
            question.id, digest_question(question), compact(mesh, format_mesh, parse_mesh), said
        )
    header = _header_of(hello, subjects or (), code)
    texts = {id: _encoder.encode(line) for id, line in lines.items()}
    return Record("what was answered here", header, lines, texts, arrays, subjects or ())


def _header_of(hello: Hello, subjects: Sequence[str], code: str = "") -> Header:
    """The header without what the lines show themselves."""
    return Header(
        FORMAT,
        hello.framework,
        hello.release,
        ".".join(hello.python.split(".")[:2]),
        platform_name(),
        suite_version(),
        tuple(map(scrub.scrub_text, hello.facts)),
        tuple(map(scrub.scrub_text, hello.unseen)),
        tuple(subjects),
        0,
        "",
        hello.promises,
        code,
    )


def platform_name() -> str:
    """This machine's platform as headers have it: ``linux-x86_64``."""
    return f"{sys.platform}-{platform.machine()}"


@cache
def suite_version() -> str:
    """The version of this project, by its own ``pyproject.toml``."""
    version = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]["version"]
    assert isinstance(version, str)
    return version


def save(path: str | Path, record: Record) -> None:
    """Save a record into its two files; both are there whole or not at all.

    Lines are written as their texts stand, and every array that one of them names is in the other
    file.

    Raises:
        OSError: a file cannot be written.
    """
    path = Path(path)
    arrays = ArrayStore()
    for text in record.texts.values():
        record.values.share(text.decode(), arrays)
    content = arrays.content()
    said = {"count": len(record.lines), "values": array_store.digest(content)}
    head = _encoder.encode(msgspec.structs.replace(record.header, **said))
    data = b"".join(b"%b\n" % line for line in (head, *dict(sorted(record.texts.items())).values()))
    # They are written beside the record, so that moving each is one step. The text comes last,
    # since it is by the text that files which do not belong together are noticed.
    parts = [(array_store.path_beside(path), array_store.pack(content)), (path, data)]
    drafts = [target.with_name(f".{target.name}.{os.getpid()}") for target, _ in parts]
    try:
        for draft, (_, whole) in zip(drafts, parts, strict=True):
            draft.write_bytes(whole)
        for draft, (target, _) in zip(drafts, parts, strict=True):
            draft.replace(target)
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)


def merge(records: Sequence[Record]) -> Record:
    """Merge records of one release: repeated runs, parts of a run, or what was asked later.

    The first record that has a question keeps its line. Where others have different answers, the
    subjects that differ are marked as unstable in it.

    Raises:
        BadInput: they are not of one release, Python and platform, or a question is not the same in
            all.
        ValueError: there are no records.
    """
    if not records:
        raise ValueError("no records to merge")
    first = records[0]
    lines: dict[str, Line] = {}
    holder: dict[str, Record] = {}
    for record in records:
        _check_same(record, first.header, f"as {first.path}")
        for id, line in record.lines.items():
            earlier = holder.setdefault(id, record)
            have = lines.setdefault(id, line)
            if have.digest != line.digest:
                raise BadInput(
                    record.path, id, "digest", line.digest, f"{have.digest} as {earlier.path}"
                )
            shaky = {*have.unstable, *line.unstable, *find_differing_subjects(earlier, record, id)}
            lines[id] = msgspec.structs.replace(have, unstable=tuple(sorted(shaky)))
    texts: dict[str, bytes] = {}
    arrays = ArrayStore()
    for id, line in lines.items():
        record = holder[id]
        same = line.unstable == record.lines[id].unstable
        texts[id] = record.texts[id] if same else _encoder.encode(line)
        record.values.share(texts[id].decode(), arrays)
    return Record(first.path, first.header, lines, texts, arrays, first.subjects)


# What all records that can be merged have in common.
_OF_ONE_RELEASE = ("framework", "release", "python", "platform", "subjects", "unseen")


def _check_same(record: Record, other: Header, like: str) -> None:
    for field in _OF_ONE_RELEASE:
        found, wanted = getattr(record.header, field), getattr(other, field)
        if found != wanted:
            raise BadInput(record.path, "", field, repr(found), f"{wanted!r} {like}")


def find_differing_subjects(one: Record, other: Record, id: str) -> tuple[str, ...]:
    """Subjects whose answers to the question ``id`` differ; KeyError if one has no answers.

    Raises:
        BadInput: a line is no list of answers.
    """
    if one.line_digest(id) == other.line_digest(id):
        return ()
    left, right = ({a.subject: a for a in record.stored_answers(id)} for record in (one, other))
    return tuple(subject for subject in left if left[subject] != right.get(subject))


def digest_question(question: Question) -> str:
    """Sixteen hex digits that differ where two questions do.

    Fields left at their defaults do not count, so a record stays good when questions get a
    new field.
    """
    text = msgspec.json.encode(_without_defaults(question), order="deterministic")
    return _hex_digest(text)


def _hex_digest(said: bytes) -> str:
    return hashlib.sha256(said).hexdigest()[:16]


def _without_defaults(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_without_defaults(part) for part in value]
    if not isinstance(value, msgspec.Struct):
        return value
    said = {}
    for name, default in _fields(type(value)):
        part = getattr(value, name)
        if part != default:
            said[name] = _without_defaults(part)
    return said


@cache
def _fields(struct: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    """Each field with its default; a field without one has a default that equals nothing."""
    factory = msgspec.NODEFAULT
    return tuple(
        (
            field.name,
            field.default if field.default_factory is factory else field.default_factory(),
        )
        for field in msgspec.structs.fields(struct)
    )


def main(words: Sequence[str]) -> str:
    """Run the command; what is wrong with it or with a file, "" when RECORD is rewritten."""
    if len(words) < 2:
        return f"found {' '.join(words) or 'nothing'}, wanted RECORD RUN..."
    try:
        save(words[0], merge([load(path) for path in words]))
    except BadInput as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or 0)
