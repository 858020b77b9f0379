"""Which releases have a folder of records, and what changed from each to the next?

Reads records, listings of interfaces and names tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from adapters import interface as listed
from adapters import record
from adapters.record import Record
from adapters.registry import FRAMEWORKS, load_part
from adapters.release_names import Names
from cases.catalogue import catalogue
from cases.model import Case
from reports.drift.answer_changes import compare_records
from reports.drift.grouping import group_changes
from reports.drift.interface_changes import Listing, find_imports, find_interface_changes
from reports.drift.model import FrameworkHistory, Release, Upgrade
from suites.record_index import find_records
from suites.sources import RECORDS, public_release


def catalogue_by_id() -> dict[str, Case]:
    """The catalogue, by id."""
    return {case.id: case for case in catalogue()}


@lru_cache(maxsize=1)
def committed_histories() -> tuple[FrameworkHistory, ...]:
    """The histories of the committed records."""
    return read_histories(RECORDS, catalogue_by_id())


def read_histories(folder: Path, known: Mapping[str, Case]) -> tuple[FrameworkHistory, ...]:
    """Each framework through the releases that a folder has. ``known``: the catalogue, by id.

    Raises:
        BadInput: there is no record, or one of them or of the listings cannot be read.
    """
    paths = find_records(folder)
    digests = {id: record.digest_question(case.question) for id, case in known.items()}
    return tuple(
        _read_history(name, [path for other, path in paths if other == name], known, digests)
        for name in FRAMEWORKS
        if any(other == name for other, _ in paths)
    )


def _read_history(
    framework: str, paths: Sequence[Path], known: Mapping[str, Case], digests: Mapping[str, str]
) -> FrameworkHistory:
    names = read_names_table(framework)
    releases, borders, listings = [], list[Upgrade](), dict[str, Listing]()
    last: Record | None = None
    # Two records at a time: all of them together would fill the memory.
    for path in paths:
        kept = record.load(path, framework)
        release = public_release(kept.header.release)
        listing = read_listing(path)
        releases.append(_release(kept, listing is not None))
        if listing is not None:
            listings[release] = listing
        if last is not None:
            borders.append(
                _with_interface(compare_records(last, kept, known, digests), names, listings)
            )
        last = kept
    found = [finding for one in borders for finding in group_changes(one, known)]
    return FrameworkHistory(
        framework, tuple(releases), tuple(borders), tuple(found), find_imports(listings.items())
    )


def _release(kept: Record, has_listing: bool) -> Release:
    head = kept.header
    return Release(
        head.framework, public_release(head.release), head.python, head.platform, head.unseen,
        head.count, has_listing,
    )  # fmt: skip


def _with_interface(one: Upgrade, names: Names, listings: Mapping[str, Listing]) -> Upgrade:
    older, newer = listings.get(one.older), listings.get(one.newer)
    if older is None or newer is None:
        return one
    more = find_interface_changes(one.framework, names, older, newer, (one.older, one.newer))
    return msgspec.structs.replace(one, changes=(*one.changes, *more), listed=True)


def read_listing(record: Path) -> Listing | None:
    """The interface of a release, from the file beside its record; None if there is no such file.

    Raises:
        BadInput: it cannot be read.
    """
    path = record.with_name(record.name.removesuffix(".jsonl") + ".interface.jsonl")
    return listed.load(path).facts if path.exists() else None


def read_names_table(framework: str) -> Names:
    """The table of a framework's names; empty for one whose interface is not listed."""
    if not FRAMEWORKS[framework].interface:
        return {}
    names: Names = load_part(framework, "interface").NAMES
    return names
