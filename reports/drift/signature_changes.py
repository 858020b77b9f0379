"""How do two signatures of a function differ? Parameter by parameter.

A signature is what follows ``def f`` in Python, without annotations, as `adapters.interface`
writes it.
"""

from __future__ import annotations

import ast
from typing import Literal

import msgspec

ParameterKind = Literal[
    "by position only", "", "by keyword only", "any further", "any further keywords"
]


class Parameter(msgspec.Struct, frozen=True):
    """One parameter: how it is passed, and its default, "" where it is required."""

    name: str
    how: ParameterKind
    default: str


class SignatureDifference(msgspec.Struct, frozen=True):
    """How two signatures differ: ``ways`` in words, and defaults as (name, before, after)."""

    ways: tuple[str, ...] = ()
    defaults: tuple[tuple[str, str, str], ...] = ()


def parse_parameters(signature: str) -> dict[str, Parameter]:
    """The parameters of a signature, in order.

    Raises:
        SyntaxError: it is no Python text after ``def f``.
    """
    function = ast.parse(f"def f{signature}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    given = function.args
    placed = [*given.posonlyargs, *given.args]
    before = [""] * (len(placed) - len(given.defaults)) + list(map(ast.unparse, given.defaults))
    found = [
        Parameter(one.arg, "by position only" if one in given.posonlyargs else "", default)
        for one, default in zip(placed, before, strict=True)
    ]
    if given.vararg:
        found.append(Parameter(f"*{given.vararg.arg}", "any further", ""))
    for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        default = "" if value is None else ast.unparse(value)
        found.append(Parameter(one.arg, "by keyword only", default))
    if given.kwarg:
        found.append(Parameter(f"**{given.kwarg.arg}", "any further keywords", ""))
    return {one.name: one for one in found}


def compare_signatures(older: str, newer: str) -> SignatureDifference:
    """How two signatures differ; "" is one that Python does not know.

    Raises:
        SyntaxError: one of them is no Python text after ``def f``.
    """
    if not older or not newer:
        sides = ("a signature" if side else "no signature" for side in (older, newer))
        return SignatureDifference((" → ".join(sides),) if older != newer else ())
    one, other = parse_parameters(older), parse_parameters(newer)
    ways = [f"without {name}" for name in one if name not in other]
    for name, now in other.items():
        if name not in one:
            must = not now.default and not name.startswith("*")
            ways.append(f"{'requires' if must else 'with'} {name}")
            continue
        was = one[name]
        if was.how != now.how:
            ways.append(f"{name} {now.how or 'by position or keyword'}")
        if bool(was.default) != bool(now.default):
            ways.append(f"{name} {'optional' if now.default else 'required'}")
    common = [name for name in one if name in other and one[name].how != "by keyword only"]
    if common != [name for name in other if name in common]:
        ways.append("parameters in another order")
    defaults = [
        (name, one[name].default, now.default)
        for name, now in other.items()
        if name in one and one[name].default and now.default != one[name].default and now.default
    ]
    return SignatureDifference(tuple(ways), tuple(defaults))
