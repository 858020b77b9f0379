"""What does a running framework say about itself? Signatures, values, deprecations, as text.

The text is the same in every process: no addresses, and no order of a set. Refuses to know what is
looked at, and why.
"""

from __future__ import annotations

import ast
import contextlib
import enum
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any


def format_signature(value: Callable[..., object]) -> str:
    """A signature as what follows ``def f`` in Python, without annotations; "" if there is none.

    What was made in C++ has its signature in the docstring. The signature of an enumeration is
    Python's and not the framework's, so it is left out. So is that of a class that takes any
    arguments, because not every Python finds it.
    """
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        return ""
    try:
        found = inspect.signature(value)
    except (ValueError, TypeError):
        return _parse_docstring_signature(value)
    bare = [
        one.replace(
            annotation=one.empty,
            default=one.empty if one.default is one.empty else _Text(format_literal(one.default)),
        )
        for one in found.parameters.values()
    ]
    text = str(found.replace(parameters=bare, return_annotation=found.empty))
    return "" if inspect.isclass(value) and text == "(*args, **kwargs)" else text


def _parse_docstring_signature(value: Any) -> str:
    """The signature in the first line of a docstring, as pybind11 and nanobind write it."""
    own = inspect.isclass(value)
    called = value.__init__ if own else value
    first, _, rest = (getattr(called, "__doc__", None) or "").partition("\n")
    name = getattr(called, "__name__", "")
    if not name or not first.startswith(f"{name}(") or rest.startswith("Overloaded function"):
        return ""
    try:
        (function,) = ast.parse(f"def {first}: ...").body
    except SyntaxError:
        return ""
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            node.annotation = None
    found = function.args  # type: ignore[attr-defined]
    if own:
        (found.posonlyargs or found.args).pop(0)
    return f"({ast.unparse(found)})"


class _Text:
    """An object that prints as the given text."""

    def __init__(self, text: str):
        self._text = text

    def __repr__(self) -> str:
        return self._text


def format_literal(value: object) -> str:
    """A value as a Python expression that is the same in every process.

    Sentinels, and whatever prints as no expression, become ``Type()``, so that no address is left.
    Enumerated values and functions become their names.
    """
    match value:
        case enum.Enum():
            return f"{type(value).__name__}.{value.name}"
        case tuple() if type(value) is tuple:
            return f"({', '.join(map(format_literal, value))}{',' if len(value) == 1 else ''})"
        case list():
            return f"[{', '.join(map(format_literal, value))}]"
        case dict() if type(value) is dict:
            pairs = (f"{format_literal(k)}: {format_literal(v)}" for k, v in value.items())
            return f"{{{', '.join(pairs)}}}"
        case set() | frozenset():
            inner = ", ".join(sorted(map(format_literal, value)))
            braced = f"{{{inner}}}" if inner else ""
            bare = isinstance(value, set) and inner
            return braced if bare else f"{type(value).__name__}({braced})"
        case float() if value != value or value in (float("inf"), float("-inf")):
            return f"float('{value}')"
        case type():
            return value.__qualname__ if _is_expression(value.__qualname__) else "type()"
    if inspect.isroutine(value) and _is_expression(getattr(value, "__qualname__", "<>")):
        return str(value.__qualname__)
    text = repr(value)
    # An enumeration that was made in C++.
    name = getattr(value, "name", None)
    if text.startswith("<") and isinstance(name, str) and name.isidentifier():
        return f"{type(value).__name__}.{name}"
    return text if _is_expression(text) else f"{type(value).__name__}()"


def _is_expression(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    return True


class FirstDeprecation:
    """The first line of the first deprecation that was told in a block; "" for none."""

    first = ""


@contextlib.contextmanager
def record_deprecation() -> Iterator[FirstDeprecation]:
    """What is told in the block; it is known when the block is left."""
    notes = FirstDeprecation()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield notes
    notes.first = next((first_line(str(one.message)) for one in caught if _is_deprecation(one)), "")


def _is_deprecation(told: warnings.WarningMessage) -> bool:
    kinds = (DeprecationWarning, PendingDeprecationWarning, FutureWarning)
    return issubclass(told.category, kinds) or "deprecat" in str(told.message).lower()


def deprecation_of_call(call: Callable[[], object]) -> str:
    """The first line of the deprecation that a call tells; "" without one, or without the call."""
    with record_deprecation() as notes, contextlib.suppress(ImportError, AttributeError):
        call()
    return notes.first


def first_line(text: str) -> str:
    """The first line of a text, without addresses."""
    return remove_addresses(text.strip().partition("\n")[0])


def remove_addresses(text: str) -> str:
    """A text without addresses."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)
