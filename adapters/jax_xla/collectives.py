"""Which collectives does a compiled program have, with which mesh axes, groups and bytes?

This module parses the replica groups of XLA and maps them to mesh axes. It does not know which
question the program answers.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from adapters.answer import Collective
from adapters.jax_xla.hlo import HloError, Instruction, Module
from cases import layout
from cases.model import PASSES, CollectiveKind, Mesh, Pass

KINDS: dict[str, CollectiveKind] = {
    "all-gather": "all-gather",
    "all-reduce": "all-reduce",
    "reduce-scatter": "reduce-scatter",
    "all-to-all": "all-to-all",
    "ragged-all-to-all": "all-to-all",
    "collective-permute": "collective-permute",
    "collective-broadcast": "broadcast",
}

# Part of the names of optimizer ops, which run in a ``jax.named_scope`` of this name.
UPDATE = "/update/"

Groups = tuple[tuple[int, ...], ...]

_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(r"mesh\[([^\]]*)\](?:, device_ids=\((.*)\))? \{(.*)\}")
_ORDER = re.compile(r"\[([\d,]+)\](?:T\(([\d,]+)\))?")
_SIZE = re.compile(r"'?([^'=]+)'?=(\d+)")
_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_AXIS = re.compile(r"'?([^':]+)'?(?::\((\d+)\)(\d+))?")


def _ints(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split(",") if one.strip())


def _iota(sizes: str, order: str | None) -> NDArray[Any]:
    ids = np.arange(math.prod(_ints(sizes))).reshape(_ints(sizes))
    return ids.transpose(_ints(order)) if order else ids


def _tuples(ids: NDArray[Any]) -> Groups:
    return tuple(tuple(map(int, group)) for group in ids)


def _lists(text: str) -> Groups:
    return tuple(_ints(group) for group in re.findall(r"\{([\d,]*)\}", text[1:-1]))


@lru_cache(maxsize=1024)
def parse_groups(text: str, count: int) -> Groups:
    """The groups of ids in a ``replica_groups`` attribute. There are ``count`` ids in all.

    The formats are lists ``{{0,1},{2,3}}`` (``{}`` is all ids), iotas ``[2,2]<=[2,2]T(1,0)``, and
    mesh axes ``mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'a','b':(1)2}``. There ``:(p)s`` is the
    sub-axis of size s after a major part of size p.

    Raises:
        HloError: the format is unknown.
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
    # Every axis is split where a sub-axis begins or ends. Each factor becomes a dim.
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
def find_axes(mesh: Mesh, found: Groups) -> tuple[str, ...]:
    """The mesh axes that form these groups of positions, in mesh order. () if none do."""
    wanted = {frozenset(group) for group in found}
    # The smallest set of axes comes first, so it never contains an axis of size 1.
    for count in range(len(mesh.axes) + 1):
        for axes in itertools.combinations(mesh.names, count):
            if {frozenset(group) for group in layout.axis_groups(mesh, axes)} == wanted:
                return axes
    return ()


def started_collective(opcode: str) -> str | None:
    """The collective that an opcode starts. None for ``-done`` and for any other opcode."""
    kind = opcode.removesuffix("-start")
    return kind if kind in KINDS else None


def count_collectives(module: Module) -> Counter[str]:
    """The number of collectives in the whole text, by opcode, even in computations not called."""
    return Counter(
        base
        for computation in module.computations.values()
        for instruction in computation.values()
        if (base := started_collective(instruction.opcode)) is not None
    )


def _called(instruction: Instruction) -> Iterator[str]:
    for key in ("calls", "to_apply", "condition", "body", "true_computation", "false_computation"):
        if key in instruction.attributes:
            yield instruction.attributes[key].lstrip("%")
    for key in ("branch_computations", "called_computations"):
        if key in instruction.attributes:
            names = instruction.attributes[key].strip("{}").split(",")
            yield from (name.strip().lstrip("%") for name in names)


class _CallSite(msgspec.Struct, frozen=True):
    """The context of an instruction: its computation, the op names of the callers, and the pass."""

    computation: str
    in_loop: bool = False
    within: str = ""
    pass_: Pass = "forward"


def _name(instruction: Instruction, at: _CallSite) -> str:
    # The name of an op lists the transformations and scopes that made it, as in
    # jit(f)/transpose(jvp())/mul. Inside shard_map, the name starts there. The partitioner gives a
    # collective the name of the op that needs it, or no name.
    found = _NAME.search(instruction.attributes.get("metadata", ""))
    return f"{at.within}/{found[1]}" if found else at.within


def _pass(name: str) -> Pass:
    if UPDATE in name:
        return "update"
    return "backward" if "transpose(" in name else "forward"


def _walk(module: Module, at: _CallSite) -> Iterator[tuple[_CallSite, Instruction]]:
    """Every reachable collective, with the latest pass among its name, its caller and operands."""
    if at.computation not in module.computations:
        raise HloError(f"no computation is called {at.computation}")
    last: dict[str, Pass] = {}
    for instruction in module.computations[at.computation].values():
        name = _name(instruction, at)
        needed = [last[one] for one in instruction.operands if one in last]
        pass_ = last[instruction.name] = max(_pass(name), at.pass_, *needed, key=PASSES.index)
        if started_collective(instruction.opcode) is not None:
            yield _CallSite(at.computation, at.in_loop, at.within, pass_), instruction
        elif not instruction.opcode.endswith(("-done", "-update")):
            in_loop = at.in_loop or instruction.opcode == "while"
            for called in _called(instruction):
                yield from _walk(module, _CallSite(called, in_loop, name, pass_))


def find_collectives(
    module: Module, mesh: Mesh, positions: tuple[int, ...], late: bool = False
) -> tuple[Collective, ...]:
    """Every collective that the entry computation reaches, in program order.

    ``late``: without the collectives of the forward pass. ``positions[i]``: the mesh position of
    partition i.

    The op name of a collective or its caller says to which pass it belongs. Without a name, it is
    the latest pass of the caller and the operands. A start and its done count as one. A tuple of
    operands is one collective with the bytes of all. A loop body and every branch of a conditional
    count once, and a computation counts once per call.

    Raises:
        HloError: a collective over replicas, or an unknown format of groups.
    """
    return tuple(
        _collective(module.computations[at.computation], instruction, mesh, positions, at)
        for at, instruction in _walk(module, _CallSite(module.entry))
        if at.pass_ != "forward" or not late
    )


def _collective(
    computation: dict[str, Instruction],
    instruction: Instruction,
    mesh: Mesh,
    positions: tuple[int, ...],
    at: _CallSite,
) -> Collective:
    attributes = instruction.attributes
    base = started_collective(instruction.opcode)
    assert base is not None
    if "channel_id" not in attributes:
        # Without a channel, the ids are replicas. JAX compiles one replica of many partitions.
        raise HloError(f"{instruction.name}: a collective over replicas")
    if unknown := [one for one in instruction.operands if one not in computation]:
        raise HloError(f"{instruction.name}: no instruction is called {', '.join(unknown)}")
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
        ids = parse_groups(attributes.get("replica_groups", "{}"), len(positions))
        spans = base in ("all-reduce", "all-gather", "reduce-scatter")
        if spans and attributes.get("use_global_device_ids") != "true":
            # These ids are also replicas, so every group spans all partitions.
            ids = (tuple(range(len(positions))),)
        found = tuple(tuple(positions[one] for one in group) for group in ids)
        axes, group = find_axes(mesh, found), max(map(len, found))
    name = _name(instruction, at)
    pass_ = _pass(name) if name else at.pass_
    return Collective(KINDS[base], axes, group, size, pass_, at.in_loop)
