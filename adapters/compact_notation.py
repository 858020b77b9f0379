"""How is a part of an answer written in few signs? Layouts, meshes, collectives, ends and the like.

Every text has one reader, which accepts nothing else. What the notation cannot say (an axis with an
odd name, a NaN with odd bits) stays as it is: see `compact`. Refuses to know what a record is.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, TypeVar, get_args

import numpy as np

from adapters.answer import Collective, Done, End, Refused, Unsupported, format_end
from cases.arrays import Array, numpy_dtype, pack, unpack
from cases.model import CollectiveKind, Layout, Mesh

T = TypeVar("T")

# None, in a list that has one text per device.
ABSENT = "-"

# The longest text of an array that is written out, and the most elements that may fit.
_LONGEST = 40
_MOST = 20

_TYPE = re.compile(r"(\w+)\[((?:\d+(?:,\d+)*)?)\]")
_MESH = re.compile(r"[^\s=]+=\d+(?: [^\s=]+=\d+)*(?: on (\d+(?:,\d+)*))?")
_ENTRY = r"(?:\w+|\(\w+(?:,\w+)+\))"
_LAYOUT = re.compile(rf"P\(((?:{_ENTRY}(?:,{_ENTRY})*)?)\)((?: \w+\(\w+\))*)")
_COLLECTIVE = re.compile(
    rf"({'|'.join(get_args(CollectiveKind))}) (-|[^\s,]+(?:,[^\s,]+)*) (\d+) (\d+)B"
    r"( backward| update)?( in-loop)?"
)
_OFFSET = re.compile(r"\(\)|-?\d+(?:,-?\d+)*")
_REFUSED = re.compile(r"refused at (.*?): ([\w.]+): (.*)", re.S)
_UNSUPPORTED = re.compile(r"unsupported(?: at (.+?))?: (.*)", re.S)
_RUN = re.compile(r"(.+) x(\d{1,6})", re.S)


def compact(thing: T, say: Callable[[T], str], read: Callable[[str], T]) -> str | T:
    """A thing as ``say`` writes it, if ``read`` then gives back the very same; else the thing."""
    text = say(thing)
    try:
        return text if read(text) == thing else thing
    except ValueError:
        return thing


def group_runs(texts: Iterable[str]) -> tuple[str, ...]:
    """A list in which equal neighbours are written once: ``#3f… x4``."""
    pairs = [(text, len(list(same))) for text, same in itertools.groupby(texts)]
    return tuple(text if count == 1 else f"{text} x{count}" for text, count in pairs)


def parse_runs(texts: Iterable[str]) -> list[tuple[str, int]]:
    """The texts that `group_runs` wrote, each with how often it stands in a row."""
    found = []
    for text in texts:
        run = _RUN.fullmatch(text) if " x" in text else None
        found.append((text, 1) if run is None else (run[1], int(run[2])))
    return found


def expand_runs(texts: Iterable[str]) -> list[str]:
    """The list that `group_runs` was given."""
    return [text for text, count in parse_runs(texts) for _ in range(count)]


def format_type(dtype: str, shape: tuple[int, ...]) -> str:
    """``float32[8,4]``."""
    return f"{dtype}[{','.join(map(str, shape))}]"


@lru_cache(maxsize=4096)
def parse_type(text: str) -> tuple[str, tuple[int, ...]]:
    """The dtype and shape that `format_type` was given; ValueError if none could be."""
    found = _match(_TYPE, text, "a dtype and shape, as float32[8,4]")
    return found[1], _numbers(found[2])


@lru_cache(maxsize=4096)
def format_mesh(mesh: Mesh) -> str:
    """``a=2 b=4``, and ``on 3,1,2,0`` where devices are not in order."""
    text = " ".join(f"{name}={size}" for name, size in mesh.axes)
    if mesh.devices == tuple(range(mesh.size)):
        return text
    return f"{text} on {','.join(map(str, mesh.devices))}"


@lru_cache(maxsize=4096)
def parse_mesh(text: str) -> Mesh:
    """The mesh that `format_mesh` was given; ValueError if none could be."""
    found = _match(_MESH, text, "a mesh, as a=2 b=4")
    axes = tuple(part.split("=") for part in text.partition(" on ")[0].split(" "))
    mesh = Mesh(tuple((name, int(size)) for name, size in axes), ())
    devices = _numbers(found[1]) if found[1] else tuple(range(mesh.size))
    return Mesh(mesh.axes, devices)


@lru_cache(maxsize=4096)
def format_layout(layout: Layout) -> str:
    """A PartitionSpec without quotes, then what is pending: ``P(a,(b,c),None) sum(d) max(e)``."""
    entries = [
        f"({','.join(axes)})" if len(axes) > 1 else "".join(axes) or "None" for axes in layout.dims
    ]
    pending = "".join(f" {reduction}({axis})" for axis, reduction in layout.partial)
    return f"P({','.join(entries)}){pending}"


@lru_cache(maxsize=4096)
def parse_layout(text: str) -> Layout:
    """The layout that `format_layout` was given; ValueError if none could be."""
    found = _match(_LAYOUT, text, "a layout, as P(a,(b,c),None) sum(d)")
    entries = [entry.strip("()") for entry in re.findall(_ENTRY, found[1])]
    pending = [part.rstrip(")").split("(") for part in found[2].split()]
    return Layout(
        tuple(() if entry == "None" else tuple(entry.split(",")) for entry in entries),
        tuple((axis, reduction) for reduction, axis in pending),
    )


@lru_cache(maxsize=4096)
def format_collective(fired: Collective) -> str:
    """Kind, axes, devices in a group, bytes of the operand: ``all-gather a,b 4 128B backward``."""
    text = f"{fired.kind} {','.join(fired.axes) or ABSENT} {fired.group} {fired.bytes}B"
    later = "" if fired.pass_ == "forward" else f" {fired.pass_}"
    return f"{text}{later}{' in-loop' if fired.in_loop else ''}"


@lru_cache(maxsize=4096)
def parse_collective(text: str) -> Collective:
    """The collective that `format_collective` was given; ValueError if none could be."""
    found = _match(_COLLECTIVE, text, "a collective, as all-gather a,b 4 128B backward")
    kind: Any = found[1]
    axes = () if found[2] == ABSENT else tuple(found[2].split(","))
    pass_: Any = found[5].strip() if found[5] else "forward"
    return Collective(kind, axes, int(found[3]), int(found[4]), pass_, found[6] is not None)


def format_offset(offset: tuple[int, ...] | None) -> str:
    """``0,4``; ``()`` of a scalar, `ABSENT` of None."""
    return ABSENT if offset is None else ",".join(map(str, offset)) or "()"


def parse_offset(text: str) -> tuple[int, ...] | None:
    """The offset that `format_offset` was given; ValueError if none could be."""
    if text == ABSENT:
        return None
    return _numbers(_match(_OFFSET, text, "an offset, as 0,4")[0].strip("()"))


def format_short_end(end: End) -> str:
    """How an answer ended; "" for a crash or a hang, which needs more than a short text."""
    return format_end(end) if isinstance(end, Done | Refused | Unsupported) else ""


def parse_end(text: str) -> End:
    """The end that `format_short_end` was given; ValueError if none could be."""
    if text == "done":
        return Done()
    if found := _REFUSED.fullmatch(text):
        return Refused(found[2], found[3], found[1])
    found = _match(_UNSUPPORTED, text, "an end: done, refused at …: …, unsupported: …")
    return Unsupported(found[2], found[1] or "")


def format_array(array: Array) -> str:
    """The elements as nested lists without their dtype: ``[[0,1],[2,3]]``; "" if that is long."""
    if array.size > _MOST:
        return ""
    try:
        elements = unpack(array)
    except ValueError:
        return ""
    if elements.dtype.kind == "c":
        return ""
    if elements.dtype.kind in "biu":
        listed = elements.tolist()
    else:
        # The fewest digits that tell a number from its neighbours; for a complex number, of each
        # half.
        wide = elements if elements.dtype.itemsize > 4 else elements.astype(np.float32)
        flat = np.array([float(str(one)) for one in wide.ravel()], np.float64)
        listed = flat.reshape(array.shape).tolist()
    text = json.dumps(listed, separators=(",", ":"))
    return text if len(text) <= _LONGEST else ""


@lru_cache(maxsize=16384)
def parse_array(text: str, dtype: str) -> Array:
    """The array that `format_array` was given; ValueError if none could be."""
    wanted = f"elements of {dtype}, as [[0,1],[2,3]]"
    try:
        # What does not fit raises an error below.
        with np.errstate(all="ignore"):
            array = pack(np.array(json.loads(text)).astype(numpy_dtype(dtype)))
    except (ValueError, TypeError, OverflowError):
        raise ValueError(wanted) from None
    if format_array(array) != text:
        raise ValueError(wanted)
    return array


def _match(pattern: re.Pattern[str], text: str, wanted: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if found is None:
        raise ValueError(wanted)
    return found


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()
