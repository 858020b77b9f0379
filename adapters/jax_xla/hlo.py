"""Which computations, instructions, shapes and attributes does HLO text have?

The grammar is that of XLA's ``hlo/parser/hlo_parser.cc`` and its printers. Text that does not fit
raises `HloError`. Nothing is skipped. This module does not know what an instruction does.
"""

from __future__ import annotations

import math
import re

import msgspec

_BYTES = {"pred": 1, "token": 0, "opaque": 0} | {
    name: int(re.findall(r"\d+", name)[0]) // 8
    for name in (
        "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "bf16", "f16", "f32", "f64",
        "c64", "c128", "f8e5m2", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e5m2fnuz",
        "f8e4m3fnuz", "f8e3m4", "f8e8m0fnu",
    )
}  # fmt: skip


class HloError(ValueError):
    """The text does not fit the grammar. The message says where."""


class Shape(msgspec.Struct, frozen=True):
    """The element type and dims of an array, or the ``parts`` of a tuple."""

    dtype: str
    dims: tuple[int, ...] = ()
    parts: tuple[Shape, ...] = ()

    @property
    def bytes(self) -> int:
        """The size in memory. HloError if the size of the element type is unknown."""
        if self.dtype == "tuple":
            return sum(part.bytes for part in self.parts)
        if self.dtype not in _BYTES:
            raise HloError(f"element type {self.dtype!r} has no known size")
        return math.prod(self.dims) * _BYTES[self.dtype]


class Instruction(msgspec.Struct, frozen=True):
    """One line of a computation, or an element of a tuple without its own line, named ``x#2``.

    ``operands``: names. Empty for parameters and constants.
    """

    name: str
    shape: Shape
    opcode: str
    operands: tuple[str, ...]
    attributes: dict[str, str]


class Module(msgspec.Struct, frozen=True):
    """A module. ``computations``: instructions by name for each computation, in printed order."""

    name: str
    attributes: dict[str, str]
    computations: dict[str, dict[str, Instruction]]
    entry: str


_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|/\*.*?\*/|[()\[\]{},\n]', re.DOTALL)
_OPEN = {"(": ")", "[": "]", "{": "}"}
_WORD = re.compile(r"%?([\w.\-]+)")
_COMPUTATION = re.compile(r"%|[\w.\-]+ \{")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_SPACE = re.compile(r"(?:\s|/\*.*?\*/)*", re.DOTALL)
# A bounded dynamic dim is written <=n.
_ARRAY = re.compile(r"(\w+)\[((?:(?:<=)?\d+(?:,(?:<=)?\d+)*)?)\]")
_ATTRIBUTE = re.compile(r"([\w\-]+)=(.*)", re.DOTALL)
# Titles of the tables that may follow the header. Each table has numbered rows.
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_LITERALS = ("parameter", "constant")


def _fail(text: str, at: int, wanted: str) -> HloError:
    line = text.count("\n", 0, at) + 1
    return HloError(f"line {line}: wanted {wanted}, found {text[at : at + 60]!r}")


def _pieces(text: str, at: int, stop: str) -> tuple[list[str], int]:
    """Comma-separated pieces from ``at`` to the first ``stop`` outside brackets and quotes.

    Returns the pieces and the position of ``stop``.
    """
    open_: list[str] = []
    pieces = []
    start = at
    for mark in _MARK.finditer(text, at):
        sign = mark[0]
        if sign in _OPEN:
            open_.append(_OPEN[sign])
        elif not open_ and sign in (stop, ","):
            if piece := text[start : mark.start()].strip():
                pieces.append(piece)
            start = mark.end()
            if sign == stop:
                return pieces, mark.start()
        elif sign in ")]}" and (not open_ or open_.pop() != sign):
            raise _fail(text, mark.start(), "brackets in pairs")
    raise _fail(text, at, repr(stop))


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _word(text: str, at: int) -> tuple[str, int]:
    found = _WORD.match(text, at)
    if found is None:
        raise _fail(text, at, "a name")
    return found[1], found.end()


def _literal(text: str, at: int, sign: str) -> int:
    if not text.startswith(sign, at):
        raise _fail(text, at, repr(sign))
    return at + len(sign)


def _shape(text: str, at: int) -> tuple[Shape, int]:
    if text.startswith("(", at):
        parts = []
        at = _space(text, at + 1)
        while not text.startswith(")", at):
            part, at = _shape(text, at)
            parts.append(part)
            at = _space(text, at + 1 if text.startswith(",", at) else at)
        return Shape("tuple", parts=tuple(parts)), at + 1
    found = _ARRAY.match(text, at)
    if found is None:
        raise _fail(text, at, "a shape")
    dims = tuple(int(size.removeprefix("<=")) for size in found[2].split(",") if size)
    at = found.end()
    if text.startswith("{", at):
        _, at = _pieces(text, at + 1, "}")
        at += 1
    return Shape(found[1], dims), at


def _attributes(pieces: list[str], text: str, at: int) -> dict[str, str]:
    attributes: dict[str, str] = {}
    for piece in pieces:
        found = _ATTRIBUTE.fullmatch(piece)
        if found is None:
            raise _fail(text, at, f"name=value, not {piece!r},")
        # One value contains a comma: mesh[…], device_ids=(…) {…}.
        if found[1] == "device_ids" and attributes.get("replica_groups", "").startswith("mesh["):
            attributes["replica_groups"] += ", " + piece
        else:
            attributes[found[1]] = found[2]
    return attributes


def _operand(text: str) -> str:
    # A shape, or a comment with the index of the operand, may precede the name.
    return _COMMENT.sub("", text).split()[-1].lstrip("%")


def _instruction(text: str, at: int) -> tuple[Instruction, int]:
    at = at + 5 if text.startswith("ROOT ", at) else at
    name, at = _word(text, at)
    shape, at = _shape(text, _space(text, _literal(text, at, " = ")))
    opcode, at = _word(text, _space(text, at))
    operands, at = _pieces(text, _literal(text, at, "("), ")")
    names = () if opcode in _LITERALS else tuple(map(_operand, operands))
    pieces, end = _pieces(text, at + 1, "\n")
    return Instruction(name, shape, opcode, names, _attributes(pieces, text, at)), end


def _unfold(operand: str, instructions: dict[str, Instruction]) -> None:
    """Add an instruction for an operand ``x#2``, which is element 2 of the tuple x."""
    of, sign, index = operand.rpartition("#")
    if not sign or operand in instructions:
        return
    _unfold(of, instructions)
    parts = instructions[of].shape.parts if of in instructions else ()
    if not index.isdecimal() or int(index) >= len(parts):
        raise HloError(f"no tuple {of} with an element {index}")
    instructions[operand] = Instruction(
        operand, parts[int(index)], "get-tuple-element", (of,), {"index": index}
    )


def _computation(text: str, at: int) -> tuple[str, dict[str, Instruction], int]:
    name, at = _word(text, at)
    # The short text of old releases has no parameters and no result shape.
    if text.startswith(" (", at):
        _, at = _pieces(text, at + 2, ")")
        _, at = _shape(text, _literal(text, at, ") -> "))
    at = _space(text, _literal(text, at, " {"))
    instructions: dict[str, Instruction] = {}
    while not text.startswith("}", at):
        instruction, at = _instruction(text, at)
        for operand in instruction.operands:
            _unfold(operand, instructions)
        instructions[instruction.name] = instruction
        at = _space(text, at)
    # After the brace there may be an attribute, such as execution_thread="host", or a comment.
    _, at = _pieces(text, at + 1, "\n")
    return name, instructions, at


def parse(text: str) -> Module:
    """The module of HLO text.

    Raises:
        HloError: the text does not fit the grammar. The message names the line.
    """
    # A blank line ends a table. A line end ends everything else.
    text += "\n\n"
    name, at = _word(text, _literal(text, _space(text, 0), "HloModule "))
    pieces, at = _pieces(text, at, "\n")
    attributes = _attributes(pieces, text, at)
    computations = {}
    entry = ""
    while (at := _space(text, at)) < len(text):
        if text.startswith(_TABLES, at):
            at = text.index("\n\n", at)
            continue
        is_entry = text.startswith("ENTRY ", at)
        if not is_entry and not _COMPUTATION.match(text, at):
            raise _fail(text, at, "a computation")
        called, instructions, at = _computation(text, at + 6 if is_entry else at)
        computations[called] = instructions
        entry = called if is_entry else entry
    if not entry:
        raise HloError("a module without ENTRY")
    return Module(name, attributes, computations, entry)
