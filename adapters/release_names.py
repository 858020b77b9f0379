"""Where is a name of a framework in a release? A table has a place for each span of releases.

One table for each framework, as data: `adapters.torch_dtensor.names`, `adapters.jax_xla.names`.
Knows no framework, and not what a name does.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
from packaging.version import Version


class NameLocation(msgspec.Struct, frozen=True):
    """Where a name is, from release ``since`` on and before release ``until``.

    ``since``: the first release that has it there, or the oldest that is asked ("2.2"). ``path``:
    dotted, with its module. ``call``: a sentence on how its call differs from the place before; ""
    if it does not. ``until``: the first release that no longer has it there; "" if there is none.
    """

    since: str
    path: str
    call: str = ""
    until: str = ""


Names = Mapping[str, tuple[NameLocation, ...]]


@lru_cache(maxsize=1024)
def _release(text: str) -> Version:
    # A pre-release has what the release after it will have.
    return Version(Version(text).base_version)


def find_location(names: Names, wanted: str, release: str) -> NameLocation | None:
    """Where ``wanted`` is in a release such as "2.13.0+cpu"; None if the release lacks it.

    Local tags do not count, and a pre-release counts as the release after it.

    Raises:
        KeyError: the table does not have it.
        packaging.version.InvalidVersion: not a PEP 440 version.
    """
    asked = _release(release)
    for found in names[wanted]:
        if _release(found.since) <= asked and not (found.until and _release(found.until) <= asked):
            return found
    return None


def format_missing(names: Names, wanted: str, framework: str, release: str) -> str:
    """A sentence that a release has no ``wanted``, and when there is one.

    "torch 2.4.1 has no local_map, which is there since 2.5".

    Raises:
        KeyError: the table does not have it.
    """
    asked = _release(release)
    public = Version(release).public
    later = [one.since for one in names[wanted] if _release(one.since) > asked]
    if later:
        when = f", which is there since {min(later, key=_release)}"
    else:
        gone = [one.until for one in names[wanted] if one.until and _release(one.until) <= asked]
        when = f", which is gone since {max(gone, key=_release)}" if gone else ""
    return f"{framework} {public} has no {wanted}{when}"


def import_path(path: str) -> Any:
    """What is at a dotted path. Imports the modules on the way.

    Raises:
        ImportError, AttributeError: nothing is there.
    """
    parts = path.split(".")
    found: Any = importlib.import_module(parts[0])
    for count, part in enumerate(parts[1:], start=2):
        if not hasattr(found, part):
            importlib.import_module(".".join(parts[:count]))
        found = getattr(found, part)
    return found
