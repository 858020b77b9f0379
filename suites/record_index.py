"""Which records does a folder have? By framework and release, oldest first.

Refuses to know what they hold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

from adapters import record
from adapters.record import Record
from adapters.registry import FRAMEWORKS
from cases.errors import Where
from suites.sources import public_release, record_path

# Records by framework.
RecordIndex = Mapping[str, Sequence[Record]]
# The paths of records, each with its framework.
RecordPaths = tuple[tuple[str, Path], ...]

_NAME = re.compile(r"([a-z_]+)-(.+?)\.jsonl")


def find_records(folder: Path) -> RecordPaths:
    """The records of a folder, by framework, oldest first.

    Raises:
        BadInput: there is none.
    """
    found = []
    if not folder.is_dir():
        raise Where(str(folder)).error("no folder", "a folder of records")
    for path in folder.iterdir():
        match = _NAME.fullmatch(path.name)
        if match and match[1] in FRAMEWORKS and (release := _version(match[2])):
            found.append((match[1], release, path))
    if not found:
        raise Where(str(folder)).error(
            "no record", "a folder of records, such as torch-2.13.0.jsonl"
        )
    order = list(FRAMEWORKS)
    found.sort(key=lambda one: (order.index(one[0]), one[1]))
    return tuple((name, path) for name, _, path in found)


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def load_records(paths: RecordPaths) -> dict[str, list[Record]]:
    """Records by framework, in the order given.

    Raises:
        BadInput: one cannot be read, or is of another release than its name says.
    """
    shelf: dict[str, list[Record]] = {name: [] for name in FRAMEWORKS}
    for name, path in paths:
        one = record.load(path, name, FRAMEWORKS[name].subjects)
        due = record_path(path.parent, name, release_of(one)).name
        if path.name != due:
            raise Where(str(path)).error(f"a record of {name} {release_of(one)}", f"{due} for it")
        shelf[name].append(one)
    return shelf


def release_of(one: Record) -> str:
    """The release that a record is of, without its local tag."""
    return public_release(one.header.release)
