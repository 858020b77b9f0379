"""How is an error in a file told? In one line: the place, what was found, what is wanted.

Refuses to know what a case or a divergence is.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable

import msgspec

_BARE = re.compile(r"[\w/-]+")


class BadInput(Exception):
    """A file of cases, causes or answers that cannot be used.

    ``case`` is the id of the case, or of what ``noun`` names; "" if there is no id. ``key`` is
    the path of the wrong value, such as ``inputs.x.placements[1]``. `str` gives one line.
    """

    def __init__(
        self, file: str, case: str, key: str, found: str, wanted: str, noun: str = "case"
    ) -> None:
        super().__init__(file, case, key, found, wanted, noun)
        self.file = file
        self.case = case
        self.key = key
        self.found = found
        self.wanted = wanted
        self.noun = noun

    def __str__(self) -> str:
        where = [self.file, f'{self.noun} "{self.case}"' if self.case else "", self.key]
        said = f"found {self.found}, wanted {self.wanted}"
        return _one_line(": ".join([*filter(None, where), said]))


class Where(msgspec.Struct, frozen=True):
    """A place in a file. ``keys``: table keys and list indices, outermost first."""

    file: str
    case: str = ""
    keys: tuple[str | int, ...] = ()
    noun: str = "case"

    def at(self, *keys: str | int) -> Where:
        """The place under ``keys``."""
        return Where(self.file, self.case, self.keys + keys, self.noun)

    def error(self, found: str, wanted: str) -> BadInput:
        """The error for what was found here."""
        path = ""
        for key in self.keys:
            if isinstance(key, int):
                path += f"[{key}]"
            elif not _BARE.fullmatch(key):
                path += f"[{format_value(key)}]"
            else:
                path += f".{key}" if path else key
        return BadInput(self.file, self.case, path, found, wanted, self.noun)


def format_value(value: object) -> str:
    """A value of a file for an error line, in at most 80 characters."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() if value.bit_length() > 200:
            return f"an integer of {value.bit_length()} bits"
        case list():
            return f"a list of {len(value)}"
        case dict():
            return "a table"
        case str() | int() | float():
            text = repr(value)
        case _:
            text = str(value)
    return text if len(text) <= 80 else text[:78] + "…" + text[-1:]


def format_count(number: int, what: str) -> str:
    """``1 device``, ``2 devices``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def nearest_name(name: str, known: Iterable[str]) -> str:
    """The known name whose spelling is nearest to ``name``; "" if no name is known."""
    close = difflib.get_close_matches(name[:80], sorted(known), n=1, cutoff=0.0)
    return close[0] if close else ""


def format_known(what: str, name: str, known: Collection[str]) -> str:
    """What is wanted in place of an unknown name: all known names if few, else the nearest."""
    if len(known) <= 6:
        return f"{what}: {', '.join(known) or 'there is none'}"
    return f"{what}, the nearest being {nearest_name(name, known)!r}"


def _one_line(text: str) -> str:
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
