"""What is a framework's public interface in a release? Names with signatures, defaults, prints.

``python -m adapters.interface FRAMEWORK OUT`` writes it down, under the interpreter that has the
framework. Everything is taken from the running framework: names by import and getattr with warnings
noted, signatures by `inspect`, defaults and prints by calls. Which modules, names and calls these
are is in the module that the framework's registry row names (`Source`). What a release lacks is
left out. Two runs give the same bytes. Refuses to know what changed between two releases.
"""

from __future__ import annotations

import argparse
import contextlib
import enum
import importlib
import inspect
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol, cast

import msgspec
from packaging.version import Version

from adapters.inspection import (
    deprecation_of_call,
    first_line,
    format_literal,
    format_signature,
    record_deprecation,
    remove_addresses,
)
from adapters.registry import FRAMEWORKS, load_part
from adapters.release_names import NameLocation, Names, find_location, import_path
from cases.errors import BadInput, Where

# Raise it when a line changes its meaning. A file of another format is refused.
FORMAT = 1

_WANTED = "an interface, as python -m adapters.interface writes it"

NameKind = Literal["class", "function", "module", "value", "gone"]


class Head(msgspec.Struct, frozen=True):
    """The first line. ``release`` without a local tag; ``python`` is major and minor only."""

    format: int
    framework: str
    release: str
    python: str
    count: int


class Name(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """One public name at one place from which it can be taken; a class's members follow it.

    ``path``: dotted, with its module. ``kind`` "gone": it cannot be taken, and ``warns`` has what
    the framework says about that. ``signature``: what follows ``def f`` in Python, without
    annotations; "" if Python cannot tell or the name is not callable. ``lives``: the module that
    defines it, by its own word. ``warns``: the first line of the deprecation that importing or
    plainly calling it tells. ``used``: the adapter's table has it, for this release or another.
    """

    path: str
    kind: NameKind
    signature: str = ""
    lives: str = ""
    warns: str = ""
    used: bool = False


class Default(msgspec.Struct, frozen=True, tag=True):
    """A default that matters, as measured: ``what`` in words, ``value`` as Python or in words."""

    what: str
    value: str


class Printed(msgspec.Struct, frozen=True, tag=True):
    """How something prints: ``what`` as it is made, ``text`` its `str`, and its `repr`."""

    what: str
    text: str
    repr: str


Fact = Name | Default | Printed


class Interface(msgspec.Struct, frozen=True):
    """All that one file holds, in its order: defaults, names and prints, each sorted."""

    head: Head
    facts: tuple[Fact, ...]


class Module(msgspec.Struct, frozen=True):
    """A module whose public names count: those in its ``__all__``, if it has one.

    Otherwise those that are defined in one of ``homes`` (modules with all inside them), by default
    the module itself. ``names``: these alone, classes without their members; a member has a dotted
    name.
    """

    path: str
    homes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class Source(Protocol):
    """The module that a framework's registry row names as ``interface``.

    ``NAMES``: its table, see `adapters.release_names`. ``ROOTS``: packages; members that classes of
    these define count. ``CALLS``: path -> a plain call, for the deprecation that it tells.
    ``DEFAULTS`` and ``PRINTED``: in words -> what is looked at. Any of the last three may raise
    ImportError or AttributeError if a release has no such thing. Attributes of what is printed are
    listed with the members of its class.
    """

    MODULES: tuple[Module, ...]
    ROOTS: tuple[str, ...]
    NAMES: Names
    CALLS: Mapping[str, Callable[[], object]]
    DEFAULTS: Mapping[str, Callable[[], object]]
    PRINTED: Mapping[str, Callable[[], object]]

    def start(self) -> str:
        """Import the framework as a user has it, whatever the environment says; its release."""
        ...

    def world(self) -> contextlib.AbstractContextManager[None]:
        """In this context, meshes of four devices can be made."""
        ...


def load(path: str | Path) -> Interface:
    """Read an interface from a file.

    Raises:
        BadInput: it cannot be read, is damaged, or has another format.
    """
    where = Where(str(path))
    try:
        head, *rest = Path(path).read_bytes().splitlines()
        read = msgspec.json.decode(head, type=Head)
        facts = tuple(msgspec.json.decode(line, type=Fact) for line in rest)
    except OSError as error:
        raise where.error(f"{error.strerror}", _WANTED) from None
    except (msgspec.DecodeError, ValueError) as error:
        raise where.error(f"none ({error})", _WANTED) from None
    if read.format != FORMAT:
        raise where.error(f"format {read.format}", f"format {FORMAT}")
    if read.count != len(facts):
        raise where.error(f"{len(facts)} lines", f"the {read.count} that its first line says")
    return Interface(read, facts)


def write(path: str | Path, interface: Interface) -> None:
    """Write a line for the head and for each fact. The file is there whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    path = Path(path)
    lines = [msgspec.json.encode(row) + b"\n" for row in (interface.head, *interface.facts)]
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(b"".join(lines))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def collect(framework: str) -> Interface:
    """The interface of the framework that this interpreter has and has not imported yet.

    Raises:
        BadInput: the registry has no such framework, or that lists no interface.
        LookupError: its table of names has a place at which this release has nothing.
    """
    source = _source(framework)
    release = Version(source.start()).public
    names = {name.path: name for name in find_public_names(source.MODULES, source.ROOTS)}
    for name in find_names_in_table(source.NAMES, framework, release):
        names[name.path] = msgspec.structs.replace(names.get(name.path, name), used=True)
    facts: list[Fact] = []
    with source.world():
        for path, call in source.CALLS.items():
            if path in names and (warns := names[path].warns or deprecation_of_call(call)):
                names[path] = msgspec.structs.replace(names[path], warns=warns)
        facts += [
            Default(what, _format_result(got)) for what, got in _evaluate_table(source.DEFAULTS)
        ]
        shown = [*_evaluate_table(source.PRINTED)]
        facts += [Printed(what, *_format_print(got)) for what, got in shown]
        for _, one in shown:
            names |= {
                name.path: name
                for name in _find_instance_attributes(names, one)
                if name.path not in names
            }
    facts += names.values()
    facts.sort(key=lambda fact: (type(fact).__name__, _key(fact)))
    python = ".".join(platform.python_version_tuple()[:2])
    return Interface(Head(FORMAT, framework, release, python, len(facts)), tuple(facts))


def _key(fact: Fact) -> str:
    return fact.path if isinstance(fact, Name) else fact.what


def find_public_names(modules: Iterable[Module], roots: Sequence[str]) -> Iterator[Name]:
    """Every public name of those modules that this release has; a class's members follow it.

    Modules are imported in the order given, and what an import tells is told only once.
    """
    for wanted in modules:
        with record_deprecation() as notes:
            try:
                module = importlib.import_module(wanted.path)
            except ImportError:
                continue
        if not wanted.names:
            yield Name(wanted.path, "module", lives=module.__name__, warns=notes.first)
        for name in _list_module(module, wanted):
            yield from _read_name(module, wanted.path, name, roots, not wanted.names)


def find_names_in_table(names: Names, framework: str, release: str) -> Iterator[Name]:
    """What is at each place of a table, if this release has something there.

    So a name is not reported as gone when the table has another place for it in the next release.

    Raises:
        LookupError: it is not where the table says that it is in this release.
    """
    for wanted, places in names.items():
        due = find_location(names, wanted, release)
        for one in places:
            with record_deprecation() as notes:
                try:
                    value = import_path(one.path)
                except (ImportError, AttributeError):
                    if one is due:
                        raise LookupError(
                            _format_wrong_place(framework, release, wanted, one)
                        ) from None
                    continue
            yield _name(one.path, value, notes.first)


def _format_wrong_place(framework: str, release: str, wanted: str, found: NameLocation) -> str:
    where = f"the table of names has {wanted} at {found.path} since {found.since}"
    return f"{framework} {release} has nothing there: {where}"


def _list_module(module: ModuleType, wanted: Module) -> list[str]:
    """The public names of a module, with those that only have a deprecation."""
    told = getattr(module, "_deprecations", {})
    if wanted.names:
        return [*wanted.names]
    listed = getattr(module, "__all__", None)
    if listed is None:
        homes = wanted.homes or (wanted.path,)
        listed = [name for name in vars(module) if _within(_home(vars(module)[name]), homes)]
    return [name for name in {*listed, *told} if not name.startswith("_")]


def _read_name(
    module: ModuleType, path: str, name: str, roots: Sequence[str], whole: bool
) -> Iterator[Name]:
    gone = ""
    with record_deprecation() as notes:
        try:
            value: Any = module
            for part in name.split("."):
                value = getattr(value, part)
        except AttributeError as error:
            gone = first_line(str(error))
    if gone:
        # Any other name that is not there is left out.
        if name in getattr(module, "_deprecations", {}):
            yield Name(f"{path}.{name}", "gone", warns=gone)
        return
    found = _name(f"{path}.{name}", value, notes.first)
    yield found
    if inspect.isclass(value) and whole:
        yield from _members(found.path, value, roots)


def _members(path: str, owner: type, roots: Sequence[str]) -> Iterator[Name]:
    """What a class defines itself, and what those bases define that are in ``roots``."""
    seen: set[str] = set()
    for base in owner.__mro__:
        if not _within(base.__module__, roots):
            continue
        for name, raw in vars(base).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            if isinstance(raw, staticmethod):
                raw = raw.__func__
            elif isinstance(raw, classmethod):
                raw = raw.__get__(None, owner)
            member = _name(f"{path}.{name}", raw, "")
            yield msgspec.structs.replace(member, lives=base.__module__)


def _find_instance_attributes(names: Mapping[str, Name], one: object) -> Iterator[Name]:
    """What an object has and its class has not, if the members of that class are listed."""
    own = type(one)
    # The attributes of an enumerated value are Python's.
    if isinstance(one, enum.Enum):
        return
    more = [name for name in dir(one) if not name.startswith("_") and not hasattr(own, name)]
    told = {path.rpartition(".")[0] for path in names}
    for path, name in names.items():
        if more and name.kind == "class" and path in told and import_path(path) is own:
            for attribute in more:
                yield Name(f"{path}.{attribute}", "value", lives=own.__module__)


def _name(path: str, value: object, warns: str) -> Name:
    if isinstance(value, ModuleType):
        return Name(path, "module", lives=value.__name__, warns=warns)
    own = inspect.isclass(value)
    # A class inherits the mark of a deprecated base, but is not deprecated itself.
    mark = vars(value).get("__deprecated__") if own else getattr(value, "__deprecated__", None)
    if not warns and isinstance(mark, str):
        warns = first_line(mark)
    if not callable(value) or isinstance(value, enum.Enum):
        return Name(path, "value", lives=_home(value), warns=warns)
    return Name(path, "class" if own else "function", format_signature(value), _home(value), warns)


def _home(value: object) -> str:
    home = getattr(value, "__module__", "")
    return home if isinstance(home, str) else ""


def _within(home: str | None, homes: Iterable[str]) -> bool:
    return any(home == one or (home or "").startswith(f"{one}.") for one in homes)


def _evaluate_table(table: Mapping[str, Callable[[], object]]) -> Iterator[tuple[str, object]]:
    """What each call gives, or what it raised; nothing if the release has no such thing."""
    for what, look in table.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                got = look()
            except (ImportError, AttributeError):
                continue
            except Exception as error:  # Whatever the framework raised is what it does.
                got = error
        yield what, got


def _format_result(got: object) -> str:
    if isinstance(got, Exception):
        return ": ".join(filter(None, (f"raises {type(got).__name__}", first_line(str(got)))))
    return remove_addresses(got) if isinstance(got, str) else format_literal(got)


def _format_print(got: object) -> tuple[str, str]:
    if isinstance(got, Exception):
        return _format_result(got), _format_result(got)
    return remove_addresses(str(got)), remove_addresses(repr(got))


def _source(framework: str) -> Source:
    return cast(Source, load_part(framework, "interface"))


def _path(out: Path, framework: str, release: str) -> Path:
    return out / f"{framework}-{release}.interface.jsonl" if out.is_dir() else out


def main(arguments: Sequence[str]) -> int:
    """The command line; see the head of this module. 0, or 2 with one line of what is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m adapters.interface", description="Write down a framework's interface."
    )
    parser.add_argument("framework", choices=sorted(FRAMEWORKS))
    parser.add_argument("out", metavar="OUT", type=Path, help="the file, or its folder")
    parser.add_argument("--only-new", action="store_true", help="leave one that is there")
    given = parser.parse_args(arguments)
    try:
        if given.only_new:
            release = Version(_source(given.framework).start()).public
            if _path(given.out, given.framework, release).exists():
                return 0
        found = collect(given.framework)
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    write(_path(given.out, found.head.framework, found.head.release), found)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
