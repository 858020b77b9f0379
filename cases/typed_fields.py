"""Which data does a file hold? TOML or JSON as plain data, and typed fields.

Every reader takes a value and its place. It returns the typed value or raises `BadInput`.
Converts no value to another type. Refuses to know what a case is.
"""

from __future__ import annotations

import json
import keyword
import math
import re
import sys
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from cases.errors import BadInput, Where, format_count, format_known, format_value

# A case file of this size has some 50,000 cases. A larger file is not a case file.
MAX_BYTES = 16 * 2**20

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOML_LINE = re.compile(r"(?P<what>.*) \(at line (?P<line>\d+), column (?P<column>\d+)\)", re.S)


def read_toml(path: Path, noun: str = "case") -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        BadInput: the file cannot be read or is not TOML 1.0.
    """
    where = Where(str(path), noun=noun)
    text = _read(path, where)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise where.error("lists nested too deeply to read", "TOML") from None
    except tomllib.TOMLDecodeError as error:
        what = str(error).removesuffix(" (at end of document)")
        at = f"line {_line(text, len(text))}"
        if read := _TOML_LINE.fullmatch(what):
            what, at = read["what"], f"line {read['line']}, column {read['column']}"
        raise where.error(f"{what} at {at}", "TOML") from None
    except ValueError:
        raise _too_many_digits(text, "TOML", where) from None


def read_json(path: Path, noun: str = "case") -> Any:
    """The value of a JSON file. NaN and Infinity are read. A duplicate key is refused.

    Raises:
        BadInput: the file cannot be read or is not JSON.
    """
    where = Where(str(path), noun=noun)
    text = _read(path, where)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise where.error(f"key {format_value(twice)} twice in one object", "each key once")
        return table

    try:
        return json.loads(text, object_pairs_hook=once)
    except RecursionError:
        raise where.error("lists nested too deeply to read", "JSON") from None
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}"
        raise where.error(f"{error.msg} at {at}", "JSON") from None
    except ValueError:
        raise _too_many_digits(text, "JSON", where) from None


def _too_many_digits(text: str, form: str, where: Where) -> BadInput:
    # Python limits the digits of an integer, and the parsers do not say where it is.
    most = sys.get_int_max_str_digits()
    digits = re.search(rf"\d(_?\d){{{most}}}", text)
    at = f" at line {_line(text, digits.start())}" if digits else ""
    return where.error(f"an integer of too many digits{at}", form)


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _read(path: Path, where: Where) -> str:
    wanted = "a readable file"
    try:
        if path.is_dir():
            raise where.error("a folder", "a file")
        if path.exists() and not path.is_file():
            raise where.error("something that is not a regular file", "a file")
        with path.open("rb") as file:
            body = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise where.error((error.strerror or type(error).__name__).lower(), wanted) from None
    except ValueError:
        raise where.error("a NUL in its name", wanted) from None
    if len(body) > MAX_BYTES:
        raise where.error(f"more than {MAX_BYTES:,} bytes", f"at most {MAX_BYTES:,}")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise where.error(f"byte 0x{body[error.start]:02x} on line {line}", "UTF-8") from None


def table(value: Any, where: Where, known: Collection[str] | None = None) -> dict[str, Any]:
    """A table. With ``known``, it may have only these keys.

    Raises:
        BadInput: it is no table, or has an unknown key.
    """
    if not isinstance(value, dict):
        raise where.error(format_value(value), "a table")
    if known is not None:
        for key in value:
            if key not in known:
                raise where.error(
                    f"key {format_value(key)}", format_known("a known key", key, known)
                )
    return value


def items(value: Any, where: Where, wanted: str = "a list") -> list[Any]:
    """A list; ``wanted`` describes it in an error."""
    if not isinstance(value, list):
        raise where.error(format_value(value), wanted)
    return value


def text(value: Any, where: Where, wanted: str = "a string") -> str:
    """A string that can be written as UTF-8."""
    if not isinstance(value, str):
        raise where.error(format_value(value), wanted)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise where.error(format_value(value), "a string of whole characters") from None
    return value


def texts(value: Any, where: Where, wanted: str = "a list of strings") -> tuple[str, ...]:
    """A list of strings."""
    return tuple(text(one, where.at(i)) for i, one in enumerate(items(value, where, wanted)))


def flag(value: Any, where: Where) -> bool:
    """True or false, and no other value that is truthy or falsy."""
    if not isinstance(value, bool):
        raise where.error(format_value(value), "true or false")
    return value


def integer(value: Any, where: Where, low: int, wanted: str) -> int:
    """An integer of at least ``low`` that fits in 64 bits. A bool is no integer."""
    if type(value) is not int or not low <= value < 2**63:
        raise where.error(format_value(value), wanted)
    return value


def number(value: Any, where: Where, wanted: str = "a finite number of 64 bits") -> int | float:
    """A finite number that fits in 64 bits. A bool is no number."""
    ok = type(value) is int and -(2**63) <= value < 2**63
    if not ok and not (type(value) is float and math.isfinite(value)):
        raise where.error(format_value(value), wanted)
    return value  # type: ignore[no-any-return]


def identifier(value: Any, where: Where) -> str:
    """A name that Python and a step allow: ASCII letters, digits and _."""
    name = text(value, where, "a name")
    if not _IDENTIFIER.fullmatch(name):
        raise where.error(format_value(name), "a name of letters, digits and _")
    if keyword.iskeyword(name):
        raise where.error(f"{format_value(name)}, a reserved word of Python", "another name")
    return name


def shape(value: Any, where: Where, wanted_ndim: int | None = None) -> tuple[int, ...]:
    """A list of sizes, each an integer of at least 0."""
    sizes = items(value, where, "a list of sizes")
    if wanted_ndim is not None and len(sizes) != wanted_ndim:
        raise where.error(format_count(len(sizes), "integer"), f"{wanted_ndim}, one per tensor dim")
    return tuple(
        integer(size, where.at(i), 0, "an integer of at least 0") for i, size in enumerate(sizes)
    )


def one_of(value: Any, where: Where, what: str, known: Collection[str]) -> str:
    """One of the strings in ``known``. The error names the nearest."""
    name = text(value, where, what)
    if name not in known:
        raise where.error(format_value(name), format_known(what, name, known))
    return name


def exclusive(raw: dict[str, Any], one: str, other: str, where: Where) -> None:
    """Refuses a table that has both keys."""
    if one in raw and other in raw:
        raise where.error(f"both {one} and {other}", "one of them")
