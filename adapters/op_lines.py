"""How does a framework's table turn an op into a line of Python? The language of these tables.

An adapter has one entry for each op: a line of Python with named slots. The adapter runs the
filled line, and a script of ``--repro`` prints it. There are three kinds of slots:

``"torch.softmax({x}, dim={axis:-1})"``
    ``{x}`` is the text of something that is given: an argument or a parameter of the op by its
    name in `cases.ops`, or what the framework adds, such as ``{mesh}``. The text after a colon
    stands for what is not given, so that this line becomes ``torch.softmax(h, dim=-1)``.
``"F.linear({x}, {w}{, b})"``
    A slot that begins with a sign is optional. With a bias this line becomes
    ``F.linear(h, w1, b1)``, without one ``F.linear(h, w1)``. ``{, dim=axis}`` is ``, dim=0`` or
    nothing.
``"torch.take_along_dim({x}, {i|long}, dim={axis})"``
    ``{i|long}`` is what the framework's function ``long`` writes for ``i``, here ``i.long()`` if
    torch does not take the dtype of the indices.

``{pre}`` and ``{post}`` stand around an index of dim ``axis``: for axis 1, ``{x}[{pre}{i}{post}]``
becomes ``h[:, rows]``.

An entry is one line, several lines or a function.

- Of several lines, the first that fits is used. A line fits if it has a slot for everything that
  is given, and if everything is given that a slot without a default needs.
- A function takes the framework's own description of the call and returns a line. It is for ops
  whose line depends on shapes, values or the release. It has to deal with everything that is given.
- If no line fits, or if a function finds that the framework has no such thing, the op is
  unsupported, and `CannotAnswer` has the reason.

A parameter that is None counts as not given. This module knows no framework and no op.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import TypeVar

from adapters.unsupported import CannotAnswer
from cases.model import Param, Step
from cases.ops import OPS

C = TypeVar("C")
Entry = str | tuple[str, ...] | Callable[[C], str]
# The function that a slot names after "|": from the call and the slot's name to text.
Filter = Callable[[C, str], str]

# {name}, {name|filter} or {name:default}; or a sign with more text, and a name.
_SLOT = re.compile(r"\{(?:(\w+)(?:\|(\w+)|:([^{}]*))?|(\W[^{}]*?)(\w+))\}")


def named_arguments(step: Step) -> dict[str, str | int | float | bool]:
    """The arguments of a step, by the names that the op gives them.

    Raises:
        CannotAnswer: the op is of a later vocabulary.
    """
    if step.op not in OPS:
        raise CannotAnswer(f"there is no op {step.op} in the vocabulary")
    op = OPS[step.op]
    return dict(zip(op.args + op.more, step.args, strict=False))


def given_texts(
    step: Step, variable_name: Callable[[str], str], elsewhere: Collection[str] = ()
) -> dict[str, str]:
    """The texts of all arguments and parameters that a step gives.

    ``elsewhere``: parameters that lines do not show.

    Raises:
        CannotAnswer: the op is of a later vocabulary.
    """
    arguments = named_arguments(step).items()
    texts = {
        name: variable_name(arg) if isinstance(arg, str) else format_literal(arg)
        for name, arg in arguments
    }
    for name, value in step.params.items():
        if value is not None and name not in elsewhere:
            texts[name] = format_literal(value)
    return texts


def choose_line(
    op: str, entry: Entry[C], call: C, given: Collection[str], added: Collection[str]
) -> str:
    """The line of an entry for the names in ``given``. A line may leave out those in ``added``.

    Raises:
        CannotAnswer: no line fits.
    """
    if callable(entry):
        return entry(call)
    reasons = []
    for line in (entry,) if isinstance(entry, str) else entry:
        has, needs = _slots_of(line)
        if unused := [name for name in given if name not in has]:
            reasons.append(f"{op} takes no {unused[0]} here")
        elif missing := sorted(needs - {*given, *added}):
            reasons.append(f"{op} needs {missing[0]} here")
        else:
            return line
    raise CannotAnswer(reasons[0])


@lru_cache(maxsize=1024)
def _slots_of(line: str) -> tuple[set[str], set[str]]:
    """The names that a line has slots for, and those of them that have to be given."""
    has, needs = set[str](), set[str]()
    for found in _SLOT.finditer(line):
        name, filter_name, default, _, optional = found.groups()
        slot = "axis" if name in ("pre", "post") else name or optional
        has.add(slot)
        if name and not filter_name and default is None:
            needs.add(slot)
    return has, needs


def fill_line(
    line: str, call: C, texts: Mapping[str, str], filters: Mapping[str, Filter[C]]
) -> str:
    """A line with all its slots filled.

    Raises:
        CannotAnswer: the line needs something that is not given.
    """

    def fill(found: re.Match[str]) -> str:
        name, filter_name, default, sign, optional = found.groups()
        if optional:
            return f"{sign}{texts[optional]}" if optional in texts else ""
        if filter_name:
            return filters[filter_name](call, name)
        if name in ("pre", "post"):
            return _around_index(texts.get("axis", "None"))[name == "post"]
        if name not in texts and default is None:
            raise CannotAnswer(f"no {name} is given")
        return texts.get(name, default or "")

    return _SLOT.sub(fill, line)


def _around_index(axis: str) -> tuple[str, str]:
    """The text before and after the index of a dim: ``:, `` for dim 1, ``..., `` for dim -1."""
    try:
        dim = int(axis)
    except ValueError:
        raise CannotAnswer(f"found axis {axis}, wanted one integer") from None
    return (":, " * dim, "") if dim >= 0 else ("..., ", ", :" * (-dim - 1))


def format_literal(value: Param) -> str:
    """A number, text or list as Python writes it, a list as a tuple."""
    if isinstance(value, list):
        return repr(tuple(value))
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return repr(value)


def is_taken(name: str, reserved: Collection[str]) -> bool:
    """Whether a variable of this name, with or without "_" after it, would hide another name.

    ``reserved``: the names that lines call. Names that a line binds itself begin with "_", and no
    free name does.
    """
    bare = name.rstrip("_")
    return bare in reserved or keyword.iskeyword(bare) or name.startswith("_")
