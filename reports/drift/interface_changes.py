"""What changed in a public interface? Names, signatures, defaults, and how things print.

It compares the listings of two releases. The names table says where a name that the adapters use
has moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from adapters.interface import Default, Fact, Name, Printed
from adapters.release_names import Names, find_location
from reports.drift.model import Change, ChangeKind, ImportableName
from reports.drift.patterns import message_pattern
from reports.drift.signature_changes import compare_signatures

Listing = tuple[Fact, ...]
_NOT_THERE = "absent"
# What happened to a name, what breaks programs first.
_GONE, _MOVED, _CALLED, _MAY, _NEW, _LIVES = range(-3, 3)
# A longer default stands only in the signatures.
_LONGEST = 80


def find_interface_changes(
    framework: str, names: Names, older: Listing, newer: Listing, releases: tuple[str, str]
) -> list[Change]:
    """Every difference of two listings, and every move that the names table knows."""
    return [
        *_find_moves(framework, names, releases),
        *_find_name_changes(framework, *map(_by_path, (older, newer))),
        *_compare_defaults(framework, older, newer),
        *_compare_prints(framework, older, newer),
    ]


def _by_path(listing: Listing) -> dict[str, Name]:
    return {one.path: one for one in listing if isinstance(one, Name)}


def _is_there(name: Name | None) -> bool:
    return name is not None and name.kind != "gone"


def _make_change(
    framework: str, kind: ChangeKind, path: str, where: str, pattern: str, before: str, after: str,
    weight: int = _MAY,
) -> Change:  # fmt: skip
    one, other = (" ".join(text.split()) for text in (before, after))
    return Change(kind, framework, path, "", where, pattern, one, other, weight=weight)


def _parts(path: str) -> tuple[str, str, str]:
    """A dotted path as module, name, and what is inside the name: an attribute of a class.

    A part that begins with a capital is a class, as in both frameworks.
    """
    parts = path.split(".")
    last = next((i for i, part in enumerate(parts) if part[:1].isupper()), len(parts) - 1)
    return ".".join(parts[:last]), parts[last], ".".join(parts[last + 1 :])


def short_name(path: str) -> str:
    """A name without its module: ``DTensor.redistribute``."""
    return ".".join(filter(None, _parts(path)[1:]))


def is_class_attribute(path: str) -> bool:
    """Whether a name is an attribute of a class."""
    return _parts(path)[2] != ""


def import_line(path: str) -> str:
    """The line that imports a name; for an attribute of a class, the class."""
    module, name, _ = _parts(path)
    return f"from {module} import {name}" if module else f"import {name}"


def _find_moves(framework: str, names: Names, releases: tuple[str, str]) -> list[Change]:
    """The names that the names table has elsewhere in the newer release, or with another call."""
    found = []
    for wanted in names:
        was, is_ = (find_location(names, wanted, release) for release in releases)
        if was is None or is_ is None or was == is_:
            continue
        if was.path != is_.path:
            lines = [import_line(side.path) for side in (was, is_)]
            if short_name(was.path) != short_name(is_.path) and is_class_attribute(is_.path):
                lines = [f"{one}; {short_name(side.path)}" for one, side in zip(lines, (was, is_))]
            sides = [(_parts(side.path)[0], short_name(side.path)) for side in (was, is_)]
            pattern, weight = f"called {sides[1][1]}, not {sides[0][1]}", _CALLED
            if sides[0][1] == sides[1][1]:
                pattern, weight = f"moved: {sides[0][0]} → {sides[1][0]}", _MOVED
            where = sides[1][0]
            one, other = lines
            found.append(
                _make_change(framework, "name", is_.path, where, pattern, one, other, weight)
            )
        if is_.call:
            found.append(
                _make_change(framework, "signature", is_.path, "", "another call", "", is_.call)
            )
    return found


def _find_name_changes(
    framework: str, older: Mapping[str, Name], newer: Mapping[str, Name]
) -> list[Change]:
    found = []
    for path in sorted({*older, *newer}):
        was, is_ = older.get(path), newer.get(path)
        if was == is_:
            continue
        if was is not None and is_ is not None and (_is_there(was) == _is_there(is_)):
            found += _compare_name(framework, was, is_)
        elif _is_there(was) or _is_there(is_):
            word, weight = ("gone from", _GONE) if _is_there(was) else ("new in", _NEW)
            sides = (older, newer) if _is_there(was) else (newer, older)
            root = _outermost_missing_name(path, *sides)
            where = root.rpartition(".")[0]
            # A class may have several names.
            home = short_name(where) if is_class_attribute(root) else where
            after = _import_line_elsewhere(was, root, newer) if was is not None else ""
            texts = _format_name(was), after or _format_name(is_)
            pattern = f"{word} {home}"
            found.append(_make_change(framework, "name", path, where, pattern, *texts, weight))
        else:
            texts = _format_name(was), _format_name(is_)
            found.append(
                _make_change(
                    framework,
                    "name",
                    path,
                    path,
                    "the message about a removed name changed",
                    *texts,
                )
            )
    return found


def _outermost_missing_name(path: str, here: Mapping[str, Name], there: Mapping[str, Name]) -> str:
    """The outermost name around a path, or itself, that only one side has."""
    parts = path.split(".")
    prefixes = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return next(
        one for one in prefixes if _is_there(here.get(one)) and not _is_there(there.get(one))
    )


def _import_line_elsewhere(gone: Name, root: str, newer: Mapping[str, Name]) -> str:
    """The line that imports the same name from elsewhere; "" for members, or if there is none."""
    if gone.path != root or is_class_attribute(root):
        return ""
    alike = [
        path
        for path, one in newer.items()
        if one.kind == gone.kind
        and short_name(path) == short_name(root)
        and not is_class_attribute(path)
    ]
    return import_line(min(alike, key=lambda path: (len(path), path))) if alike else ""


def _format_name(name: Name | None) -> str:
    if name is None or name.kind == "gone":
        return _NOT_THERE if name is None or not name.warns else f"{_NOT_THERE}: {name.warns}"
    return f"{name.kind} {name.path.rpartition('.')[2]}{name.signature}"


def _compare_name(framework: str, was: Name, is_: Name) -> list[Change]:
    """The differences of a name that both releases have."""
    found = []
    path, where = is_.path, is_.path.rpartition(".")[0]
    if was.kind != is_.kind:
        pattern = f"{was.kind} → {is_.kind}"
        found.append(_make_change(framework, "name", path, where, pattern, was.kind, is_.kind))
    if was.lives != is_.lives:
        pattern = f"defined in {is_.lives or 'no module'}, was in {was.lives or 'no module'}"
        sides = was.lives, is_.lives
        found.append(_make_change(framework, "name", path, where, pattern, *sides, _LIVES))
    if was.warns != is_.warns:
        pattern = f"warns: {message_pattern(is_.warns)}" if is_.warns else "no longer warns"
        texts = was.warns or "no warning", is_.warns or "no warning"
        found.append(_make_change(framework, "name", path, where, pattern, *texts))
    if was.signature != is_.signature:
        differs = compare_signatures(was.signature, is_.signature)
        texts = was.signature or "no signature", is_.signature or "no signature"
        # A signature may differ although its parameters do not.
        ways = differs.ways or (() if differs.defaults else ("another notation",))
        if ways:
            found.append(_make_change(framework, "signature", path, where, "; ".join(ways), *texts))
        for name, before, after in differs.defaults:
            pattern = f"{name}={after}, was {before}"
            if len(pattern) > _LONGEST:
                pattern = f"another default of {name}"
            found.append(_make_change(framework, "default", path, where, pattern, *texts))
    return found


def _compare_defaults(framework: str, older: Listing, newer: Listing) -> list[Change]:
    sides = [
        {one.what: one.value for one in side if isinstance(one, Default)} for side in (older, newer)
    ]
    return _compare_texts(framework, "default", *sides)


def _compare_prints(framework: str, older: Listing, newer: Listing) -> list[Change]:
    sides = [
        {one.what: _format_printed(one) for one in side if isinstance(one, Printed)}
        for side in (older, newer)
    ]
    return _compare_texts(framework, "printed", *sides)


def _format_printed(one: Printed) -> str:
    return one.text if one.text == one.repr else f"{one.text} (repr: {one.repr})"


def _compare_texts(
    framework: str, kind: ChangeKind, older: Mapping[str, str], newer: Mapping[str, str]
) -> list[Change]:
    return [
        _make_change(framework, kind, what, what, "", older.get(what, _NOT_THERE),
                newer.get(what, _NOT_THERE))
        for what in sorted({*older, *newer})
        if older.get(what) != newer.get(what)
    ]  # fmt: skip


def find_imports(listings: Iterable[tuple[str, Listing]]) -> tuple[ImportableName, ...]:
    """The releases that have each public name. ``listings``: by release, oldest first."""
    names: dict[str, list[tuple[str, Name]]] = {}
    for release, listing in listings:
        for one in listing:
            if isinstance(one, Name) and _is_there(one):
                names.setdefault(one.path, []).append((release, one))
    found = []
    for path, there in sorted(names.items()):
        warning = [(release, one.warns) for release, one in there if one.warns]
        found.append(
            ImportableName(
                path,
                there[-1][1].kind,
                any(one.used for _, one in there),
                tuple(release for release, _ in there),
                tuple(release for release, _ in warning),
                warning[-1][1] if warning else "",
            )
        )
    return tuple(found)
