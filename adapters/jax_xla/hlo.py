"""Which collectives does a compiled program hold? Read from its HLO text, parsed exactly.

Knows the grammar of HLO text and where a collective's groups lie on a mesh. Refuses to know
JAX, and what the program was for. The grammar is that of XLA's ``hlo/parser/hlo_parser.cc``
and of the printers beside it; what does not fit is an `HloError`, never skipped.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

import msgspec
import numpy as np

from adapters.answer import Collective, Kind
from cases import layout
from cases.model import Mesh

KINDS: dict[str, Kind] = {
    "all-gather": "all-gather",
    "all-reduce": "all-reduce",
    "reduce-scatter": "reduce-scatter",
    "all-to-all": "all-to-all",
    "ragged-all-to-all": "all-to-all",
    "collective-permute": "collective-permute",
    "collective-broadcast": "broadcast",
}

_BYTES = {"pred": 1, "token": 0, "opaque": 0} | {
    name: int(re.findall(r"\d+", name)[0]) // 8
    for name in (
        "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "bf16", "f16", "f32", "f64",
        "c64", "c128", "f8e5m2", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e5m2fnuz",
        "f8e4m3fnuz", "f8e3m4", "f8e8m0fnu",
    )
}  # fmt: skip

Groups = tuple[tuple[int, ...], ...]


class HloError(ValueError):
    """Text that is not the HLO that this module knows; says where it stopped."""


class Shape(msgspec.Struct, frozen=True):
    """An array's element type and dims, or a tuple's ``parts``."""

    dtype: str
    dims: tuple[int, ...] = ()
    parts: tuple[Shape, ...] = ()

    @property
    def bytes(self) -> int:
        """Size in memory; HloError for an element type without whole bytes."""
        if self.dtype == "tuple":
            return sum(part.bytes for part in self.parts)
        if self.dtype not in _BYTES:
            raise HloError(f"element type {self.dtype!r} has no known size")
        return math.prod(self.dims) * _BYTES[self.dtype]


class Instruction(msgspec.Struct, frozen=True):
    """One line of a computation; ``operands`` are names, empty for literals."""

    name: str
    shape: Shape
    opcode: str
    operands: tuple[str, ...]
    attributes: dict[str, str]


class Module(msgspec.Struct, frozen=True):
    """``computations`` by name, each with its instructions by name, in the order printed."""

    name: str
    attributes: dict[str, str]
    computations: dict[str, dict[str, Instruction]]
    entry: str


# --- the grammar


_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|/\*.*?\*/|[()\[\]{},\n]', re.DOTALL)
_OPEN = {"(": ")", "[": "]", "{": "}"}
_WORD = re.compile(r"%?([\w.\-]+)")
_SPACE = re.compile(r"(?:\s|/\*.*?\*/)*", re.DOTALL)
_ARRAY = re.compile(r"(\w+)\[([^\]]*)\]")
_ATTRIBUTE = re.compile(r"([\w\-]+)=(.*)", re.DOTALL)
# What may stand between the header and the first computation: numbered rows under a title.
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_LITERALS = ("parameter", "constant")


def _fail(text: str, at: int, wanted: str) -> HloError:
    line = text.count("\n", 0, at) + 1
    return HloError(f"line {line}: wanted {wanted}, found {text[at : at + 60]!r}")


def _pieces(text: str, at: int, stop: str) -> tuple[list[str], int]:
    """Comma-separated pieces from ``at`` to the first ``stop`` outside brackets and quotes.

    Returns them and where ``stop`` is.
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
    # A bounded dynamic dim is written <=n.
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
        # The printer puts a comma in the middle of one value: mesh[…], device_ids=(…) {…}.
        if found[1] == "device_ids" and attributes.get("replica_groups", "").startswith("mesh["):
            attributes["replica_groups"] += ", " + piece
        else:
            attributes[found[1]] = found[2]
    return attributes


def _instruction(text: str, at: int) -> tuple[Instruction, int]:
    at = at + 5 if text.startswith("ROOT ", at) else at
    name, at = _word(text, at)
    shape, at = _shape(text, _space(text, _literal(text, at, " = ")))
    opcode, at = _word(text, _space(text, at))
    operands, at = _pieces(text, _literal(text, at, "("), ")")
    # An operand may be written with its shape before it.
    names = () if opcode in _LITERALS else tuple(one.split()[-1].lstrip("%") for one in operands)
    pieces, end = _pieces(text, at + 1, "\n")
    return Instruction(name, shape, opcode, names, _attributes(pieces, text, at)), end


def _computation(text: str, at: int) -> tuple[str, dict[str, Instruction], int]:
    name, at = _word(text, at)
    _, at = _pieces(text, _literal(text, at, " ("), ")")
    _, at = _shape(text, _literal(text, at, ") -> "))
    at = _space(text, _literal(text, at, " {"))
    instructions = {}
    while not text.startswith("}", at):
        instruction, at = _instruction(text, at)
        instructions[instruction.name] = instruction
        at = _space(text, at)
    # What follows the brace, such as execution_thread="host", is an attribute.
    _, at = _pieces(text, at + 1, "\n")
    return name, instructions, at


def parse(text: str) -> Module:
    """The module that HLO text says.

    Raises:
        HloError: the text leaves the grammar; names the line.
    """
    # A blank line ends a table, and a line end every other thing.
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
        if not is_entry and text[at] != "%":
            raise _fail(text, at, "a computation")
        called, instructions, at = _computation(text, at + 6 if is_entry else at)
        computations[called] = instructions
        entry = called if is_entry else entry
    if not entry:
        raise HloError("a module without ENTRY")
    return Module(name, attributes, computations, entry)


# --- groups


_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(r"mesh\[([^\]]*)\](?:, device_ids=\((.*)\))? \{(.*)\}")
_ORDER = re.compile(r"\[([\d,]+)\](?:T\(([\d,]+)\))?")
_SIZE = re.compile(r"'?([^'=]+)'?=(\d+)")
_AXIS = re.compile(r"'?([^':]+)'?(?::\((\d+)\)(\d+))?")


def _ints(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split(",") if one.strip())


def _iota(sizes: str, order: str | None) -> np.ndarray:
    ids = np.arange(math.prod(_ints(sizes))).reshape(_ints(sizes))
    return ids.transpose(_ints(order)) if order else ids


def _tuples(ids: np.ndarray) -> Groups:
    return tuple(tuple(map(int, group)) for group in ids)


def _lists(text: str) -> Groups:
    return tuple(_ints(group) for group in re.findall(r"\{([\d,]*)\}", text[1:-1]))


@lru_cache(maxsize=1024)
def groups(text: str, count: int) -> Groups:
    """The groups of ids that a ``replica_groups`` attribute names, of ``count`` ids in all.

    Lists ``{{0,1},{2,3}}`` (``{}`` is everyone), iotas ``[2,2]<=[2,2]T(1,0)``, and mesh axes
    ``mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'a','b':(1)2}``, where ``:(p)s`` is the
    sub-axis of size s after p of the axis.

    Raises:
        HloError: none of these.
    """
    if text.startswith("{"):
        return _lists(text) or (tuple(range(count)),)
    if iota := _IOTA.fullmatch(text):
        return _tuples(_iota(iota[2], iota[3]).reshape(_ints(iota[1])))
    if named := _MESH.fullmatch(text):
        return _mesh_groups(named[1], named[2], named[3])
    raise HloError(f"unknown replica groups {text!r}")


def _mesh_groups(axes: str, devices: str | None, grouped: str) -> Groups:
    sizes = {}
    for piece in axes.split(","):
        if (found := _SIZE.fullmatch(piece)) is None:
            raise HloError(f"unknown mesh axis {piece!r}")
        sizes[found[1]] = int(found[2])
    refs = []
    for piece in grouped.split(","):
        if (found := _AXIS.fullmatch(piece)) is None or found[1] not in sizes:
            raise HloError(f"unknown axis {piece!r} of mesh {axes}")
        begin = int(found[2] or 1)
        refs.append((found[1], begin, begin * int(found[3] or sizes[found[1]])))
    # Every axis is cut where a sub-axis begins or ends; each factor is a dim of its own.
    factors: list[tuple[str, int, int]] = []
    for name, size in sizes.items():
        cuts = sorted({1, size}.union(*({begin, end} for ref, begin, end in refs if ref == name)))
        factors += [(name, begin, end) for begin, end in itertools.pairwise(cuts)]
    inside = [
        at
        for ref, begin, end in refs
        for at, (name, low, high) in enumerate(factors)
        if name == ref and begin <= low and high <= end
    ]
    outside = [at for at in range(len(factors)) if at not in inside]
    if devices is None:
        ids = np.arange(math.prod(sizes.values()))
    elif order := _ORDER.fullmatch(devices):
        ids = _iota(order[1], order[2])
    else:
        ids = np.array(_ints(devices))
    ids = ids.reshape([end // begin for _, begin, end in factors]).transpose(outside + inside)
    return _tuples(ids.reshape(-1, math.prod(end // begin for _, begin, end in refs)))


@lru_cache(maxsize=1024)
def axes_of(mesh: Mesh, found: Groups) -> tuple[str, ...]:
    """The mesh axes whose groups of positions these are, in mesh order; () if there are none."""
    wanted = {frozenset(group) for group in found}
    long = [name for name, size in mesh.axes if size > 1]
    for count in range(len(long) + 1):
        for axes in itertools.combinations(long, count):
            if {frozenset(group) for group in layout.groups(mesh, axes)} == wanted:
                return axes
    return ()


# --- collectives


def started(opcode: str) -> str | None:
    """The collective that an opcode starts; None for ``-done`` and for everything else."""
    kind = opcode.removesuffix("-start")
    return kind if kind in KINDS else None


def counts(module: Module) -> Counter[str]:
    """How often each collective stands anywhere in the text, called or not, by opcode."""
    return Counter(
        base
        for computation in module.computations.values()
        for instruction in computation.values()
        if (base := started(instruction.opcode)) is not None
    )


def _called(instruction: Instruction) -> Iterator[str]:
    for key in ("calls", "to_apply", "condition", "body", "true_computation", "false_computation"):
        if key in instruction.attributes:
            yield instruction.attributes[key].lstrip("%")
    for key in ("branch_computations", "called_computations"):
        if key in instruction.attributes:
            names = instruction.attributes[key].strip("{}").split(",")
            yield from (name.strip().lstrip("%") for name in names)


def _walk(module: Module, name: str, in_loop: bool) -> Iterator[tuple[str, Instruction, bool]]:
    for instruction in module.computations[name].values():
        if started(instruction.opcode) is not None:
            yield name, instruction, in_loop
        elif not instruction.opcode.endswith(("-done", "-update")):
            for called in _called(instruction):
                yield from _walk(module, called, in_loop or instruction.opcode == "while")


def collectives(module: Module, mesh: Mesh, positions: tuple[int, ...]) -> tuple[Collective, ...]:
    """Every collective that the entry computation reaches, in program order.

    ``positions[i]`` is the mesh position of partition i. A start and its done are one; a
    tuple of operands is one with the bytes of all; a loop body counts once, every branch of
    a conditional too, and a computation as often as it is called.

    Raises:
        HloError: a collective over replicas, or groups of no known spelling.
    """
    return tuple(
        _collective(module.computations[name], instruction, mesh, positions, in_loop)
        for name, instruction, in_loop in _walk(module, module.entry, False)
    )


def _collective(
    computation: dict[str, Instruction],
    instruction: Instruction,
    mesh: Mesh,
    positions: tuple[int, ...],
    in_loop: bool,
) -> Collective:
    attributes = instruction.attributes
    base = started(instruction.opcode)
    assert base is not None
    if "channel_id" not in attributes:
        # Without a channel the ids are replicas; JAX compiles one replica of many partitions.
        raise HloError(f"{instruction.name}: a collective over replicas")
    size = sum(computation[operand].shape.bytes for operand in instruction.operands)
    if base == "collective-permute":
        pairs = [
            (positions[source], positions[target])
            for source, target in _lists(attributes["source_target_pairs"])
        ]
        where = layout.coordinates(mesh)
        axes = tuple(
            axis
            for axis in mesh.names
            if any(where[source][axis] != where[target][axis] for source, target in pairs)
        )
        group = math.prod(mesh[axis] for axis in axes)
    else:
        ids = groups(attributes.get("replica_groups", "{}"), len(positions))
        spans = base in ("all-reduce", "all-gather", "reduce-scatter")
        if spans and attributes.get("use_global_device_ids") != "true":
            # These ids are replicas too: every group spans all partitions.
            ids = (tuple(range(len(positions))),)
        found = tuple(tuple(positions[one] for one in group) for group in ids)
        axes, group = axes_of(mesh, found), max(map(len, found))
    return Collective(KINDS[base], axes, group, size, in_loop=in_loop)
