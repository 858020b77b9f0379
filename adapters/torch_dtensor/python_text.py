"""How are names, numbers, indices and placements written in a line of Python?

Knows no op and no torch: lines are text here.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec

from cases.model import Layout, Mesh, Param, Step
from cases.notation import to_placements
from cases.program import TensorType

# What lines call by name, and so no variable may be called. What a line binds itself begins with
# "_", as no variable does without a "_" at its end; tests hold every row to both.
RESERVED_NAMES = {
    "torch", "F", "DeviceMesh", "DTensor", "Partial", "Replicate", "Shard", "distribute_tensor",
    "dtensor", "manual_seed", "local_map", "loss_parallel", "CommDebugMode",
    "float", "int", "max", "min", "slice", "mesh",
}  # fmt: skip
_STRIDED = re.compile(r"SS\((\d+),(\d+)\)")


class Unsayable(ValueError):
    """What torch has no form for; the text says why."""


class Call(msgspec.Struct, frozen=True):
    """A step with all that its line may need.

    ``args``: the text of each argument. ``mesh``: the one that the arguments live on, in the
    variable ``home``. ``known``: shape and dtype of every name; asked for by few, since they
    cost more than the line.
    """

    step: Step
    args: tuple[str, ...]
    mesh: Mesh
    home: str
    known: Callable[[], Mapping[str, TensorType]]

    @property
    def params(self) -> dict[str, Param]:
        """The parameters of the step."""
        return self.step.params

    def integer(self, name: str) -> int:
        """The parameter ``name``, which is an integer.

        Raises:
            Unsayable: it is none or several.
        """
        value = self.params[name]
        if not isinstance(value, int):
            raise Unsayable(f"{self.step.op} takes one integer as {name}")
        return value

    def typed(self, place: int) -> TensorType:
        """Global shape and dtype of the argument at ``place``, which is not a number."""
        return self.known()[str(self.step.args[place])]

    @property
    def every_dim(self) -> Param:
        """The dims of the first argument."""
        return list(range(len(self.typed(0).shape)))

    @property
    def span(self) -> str:
        """``start:stop:step`` of the parameters of those names, as short as Python allows."""
        start, stop, step = (self.params.get(name) for name in ("start", "stop", "step"))
        text = f"{start or ''}:{'' if stop is None else stop}"
        return text if step in (None, 1) else f"{text}:{step}"

    @property
    def placements(self) -> str:
        """``, placements=[…]`` of the layout asked for, nothing where none is.

        Raises:
            NotationError: placements cannot say the layout.
        """
        if self.step.to is None:
            return ""
        return f", placements={placements_source(self.step.to, self.mesh)}"


OpFormatter = Callable[[Call], str]


def form(template: str) -> OpFormatter:
    """A row whose text depends on its arguments alone."""
    return lambda call: template.format(*call.args)


def function(
    name: str, after: str = "", fixed: dict[str, Param] | None = None, **words: str
) -> OpFormatter:
    """A row that calls the function ``name`` with the arguments, then parameters by keyword.

    ``words``: parameter -> torch's keyword. ``fixed``: values of parameters that are not given,
    where torch has another or none. ``after``: what follows the call, such as ``.values``.
    """
    given = fixed or {}

    def row(call: Call) -> str:
        values = given | call.params
        named = (
            f"{word}={format_literal(values[ours])}"
            for ours, word in words.items()
            if values.get(ours) is not None
        )
        return f"{name}({', '.join((*call.args, *named))}){after}"

    return row


def variable_name(name: str) -> str:
    """The Python variable for a name of the program: itself, unless Python or a line needs it."""
    bare = name.rstrip("_")
    taken = bare in RESERVED_NAMES or keyword.iskeyword(bare) or name.startswith("_")
    return f"{name}_" if taken else name


def format_literal(value: Param) -> str:
    """A number, text or list as Python has it, a list as a tuple."""
    if isinstance(value, list):
        return repr(tuple(value))
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return repr(value)


def index_at_dim(dim: int, inner: str) -> str:
    """An index into one dim: ``:, 1:3`` into dim 1, ``..., 1:3`` into dim -1."""
    if dim < 0:
        return ", ".join(("...", inner, *(":",) * (-dim - 1)))
    return ", ".join((*(":",) * dim, inner))


@lru_cache(maxsize=65536)
def placements_source(layout: Layout, mesh: Mesh) -> str:
    """``[Shard(0), Partial("sum")]``, one per axis of ``mesh``.

    Raises:
        NotationError: placements cannot say the layout.
    """
    return "[" + ", ".join(map(_placement, to_placements(layout, mesh))) + "]"


def _placement(text: str) -> str:
    if text == "R":
        return "Replicate()"
    if text[0] == "P":
        return f"Partial({text[2:-1]!r})"
    if found := _STRIDED.fullmatch(text):
        return f"_StridedShard({found[1]}, split_factor={found[2]})"
    return f"Shard({text[2:-1]})"
