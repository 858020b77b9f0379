"""How are releases, axes and long texts written in short? For pages, commands and scripts alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from cases.model import Mesh


def format_axes(mesh: Mesh) -> str:
    """The axes of a mesh with their sizes: ``dp=2, tp=4``."""
    return ", ".join(f"{axis}={size}" for axis, size in mesh.axes)


def first_few(texts: Iterable[str], most: int) -> str:
    """The first of several texts, and how many more there are."""
    listed = list(texts)
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more:,} more" if more > 0 else "")


def shorten(text: str, most: int) -> str:
    """At most ``most`` characters of a text, with a sign where it goes on."""
    return text if len(text) <= most else text[: most - 2].rstrip() + " …"


def format_releases(releases: Sequence[str], some: Iterable[str]) -> str:
    """Some of these releases, consecutive ones as a range: ``2.5.1–2.8.0, 2.10.0``."""
    found = group_releases(releases, some)
    texts = (f"{run[0]}–{run[-1]}" if len(run) > 1 else run[0] for run in found)
    return ", ".join(texts) or "none"


def group_releases(releases: Sequence[str], some: Iterable[str]) -> list[list[str]]:
    """Some of these releases, consecutive ones in one list."""
    wanted, found = {*some}, list[list[str]]()
    for before, release in pairwise(("", *releases)):
        if release in wanted:
            if found and found[-1][-1] == before:
                found[-1].append(release)
            else:
                found.append([release])
    return found
