"""How does DTensor spell an op, a layout, a mesh? One line of Python each, run and printed alike.

What a line says is what the adapter evaluates and what a stand-alone script prints. Knows
no torch: lines are text here. The names that they use besides the program's own: `torch`,
`DeviceMesh`, `DTensor`, `distribute_tensor`, `Shard`, `_StridedShard`, `Replicate`, `Partial`
and, for the mesh of the question, `mesh`.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable
from functools import lru_cache

from cases.model import Input, Layout, Mesh, MeshStep, Param, Step
from cases.notation import NotationError, to_placements

IMPORTS = (
    "import torch",
    "from torch.distributed.device_mesh import DeviceMesh",
    "from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor",
    "from torch.distributed.tensor.placement_types import _StridedShard",
)
_RESERVED = {
    "torch", "DeviceMesh", "DTensor", "Partial", "Replicate", "Shard", "distribute_tensor",
    "_StridedShard", "float", "mesh",
}  # fmt: skip
_STRIDED = re.compile(r"SS\((\d+),(\d+)\)")


class Unsayable(ValueError):
    """What torch has no form for; the text says why."""


def variable(name: str) -> str:
    """The Python variable for a name of the program: itself, unless Python or a line needs it."""
    bare = name.rstrip("_")
    return f"{name}_" if bare in _RESERVED or keyword.iskeyword(bare) else name


def mesh_variable(given: Input) -> str:
    """The variable of the mesh that an input lives on."""
    if given.view is not None:
        return variable(given.view)
    return "mesh" if given.mesh is None else f"mesh_of_{variable(given.name)}"


@lru_cache(maxsize=4096)
def mesh_source(mesh: Mesh) -> str:
    """``DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("dp", "tp"))``."""
    grid: list[object] = list(mesh.devices)
    for size in reversed(mesh.shape[1:]):
        grid = [grid[start : start + size] for start in range(0, len(grid), size)]
    return f"DeviceMesh('cpu', {grid}, mesh_dim_names={mesh.names})"


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


def input_source(given: Input, mesh: Mesh) -> str:
    """How an input becomes a DTensor on ``mesh``, which is its own, its view's or the question's.

    The name stands for the global array before the line, or for the array of this rank.

    Raises:
        NotationError: placements cannot say the layout.
    """
    name, where = variable(given.name), mesh_variable(given)
    placements = placements_source(given.layout, mesh)
    if given.value is not None:
        return f"distribute_tensor({name}, {where}, {placements})"
    # Without shape and stride torch takes the shards for even.
    stride = tuple(math.prod(given.shape[dim + 1 :]) for dim in range(len(given.shape)))
    whole = f", shape=torch.Size({list(given.shape)}), stride={stride}" if given.shape else ""
    return f"DTensor.from_local({name}, {where}, {placements}, run_check=False{whole})"


def mesh_step_source(step: MeshStep, base: str, axes: tuple[str, ...], made: set[str]) -> str:
    """How a mesh is derived from the one in variable ``base`` with ``axes``.

    ``made`` are the names of earlier mesh steps, which `mesh_concatenate` may join too.

    Raises:
        Unsayable: a parameter is not what the op takes.
    """
    part = base if step.axes == axes else f"{base}[{', '.join(map(repr, step.axes))}]"
    match step.op:
        case "mesh_slice":
            return part
        case "mesh_flatten":
            return f"{part}._flatten({step.result!r})"
        case "mesh_unflatten":
            sizes = step.params.get("axes")
            if not isinstance(sizes, dict) or len(step.axes) != 1:
                raise Unsayable("mesh_unflatten takes one axis and the axes that it becomes")
            new = f"{tuple(sizes.values())}, {tuple(sizes)}"
            return f"{base}._unflatten({step.axes[0]!r}, {new})"
        case "mesh_concatenate":
            parts = [variable(axis) if axis in made else f"{base}[{axis!r}]" for axis in step.axes]
            return f"DeviceMesh._concatenate([{', '.join(parts)}])"


def step_source(step: Step, mesh: Mesh) -> str:
    """The expression of a step; ``mesh`` is the one that its arguments live on.

    Raises:
        Unsayable: torch has no form for the op with these parameters.
        NotationError: placements cannot say the layout asked for.
    """
    if step.op not in _ROWS:
        raise Unsayable(f"the op {step.op} has no row for torch")
    args = tuple(variable(arg) if isinstance(arg, str) else _number(arg) for arg in step.args)
    text = _ROWS[step.op](args, step)
    if step.to is None:
        return text
    target = text if text.isidentifier() or text.endswith(")") else f"({text})"
    return f"{target}.redistribute(placements={placements_source(step.to, mesh)})"


def line(result: str, source: str) -> str:
    """The line of a script that gives ``result`` its value."""
    return f"{variable(result)} = {source}"


def _number(value: int | float | bool) -> str:
    return repr(value) if math.isfinite(value) else f"float('{value}')"


Row = Callable[[tuple[str, ...], Step], str]


def _form(template: str) -> Row:
    """A row whose text depends on its arguments alone."""
    return lambda args, step: template.format(*args)


def _limit(function: str, bound: str) -> Row:
    """torch.maximum and torch.minimum take tensors only; with a number they are clamps."""

    def row(args: tuple[str, ...], step: Step) -> str:
        numbers = [arg for arg in step.args if not isinstance(arg, str)]
        if not numbers:
            return f"{function}({', '.join(args)})"
        tensors = [arg for arg, given in zip(args, step.args) if isinstance(given, str)]
        if not tensors:
            raise Unsayable(f"{function} of two numbers")
        return f"torch.clamp({tensors[0]}, {bound}={_number(numbers[0])})"

    return row


def _dims(axis: Param, what: str) -> int | tuple[int, ...] | None:
    if isinstance(axis, list):
        if not axis:
            raise Unsayable(f"{what} takes no dims for all dims")
        return tuple(int(dim) for dim in axis)
    return None if axis is None else int(axis)  # type: ignore[arg-type]


def _reduction(function: str, over_dims: str) -> Row:
    """A reduction by ``function`` over everything, by ``over_dims`` over some dims."""

    def row(args: tuple[str, ...], step: Step) -> str:
        dims = _dims(step.params.get("axis"), over_dims)
        keepdim = bool(step.params.get("keepdims", False))
        if dims is None and not keepdim:
            return f"{function}({args[0]})"
        kept = ", keepdim=True" if keepdim else ""
        # amax and amin do without a dim; sum and mean take keepdim only beside one.
        every = "" if over_dims in ("torch.amax", "torch.amin") else ", dim=None"
        return f"{over_dims}({args[0]}{every if dims is None else f', dim={dims}'}{kept})"

    return row


def _product(args: tuple[str, ...], step: Step) -> str:
    dims = _dims(step.params.get("axis"), "torch.prod")
    keepdim = bool(step.params.get("keepdims", False))
    if isinstance(dims, tuple):
        if len(dims) > 1:
            raise Unsayable("torch.prod is over one dim or all")
        dims = dims[0]
    if dims is None:
        if keepdim:
            raise Unsayable("torch.prod over all dims keeps none")
        return f"torch.prod({args[0]})"
    return f"torch.prod({args[0]}, dim={dims}{', keepdim=True' if keepdim else ''})"


_ROWS: dict[str, Row] = {
    # `step_source` adds the redistribute, as it does after any op with a layout asked for.
    "redistribute": _form("{0}"),
    "identity": _form("{0}"),
    # Operators, since torch.add and its kin refuse a number on the left.
    "add": _form("{0} + {1}"),
    "subtract": _form("{0} - {1}"),
    "multiply": _form("{0} * {1}"),
    "divide": _form("{0} / {1}"),
    "maximum": _limit("torch.maximum", "min"),
    "minimum": _limit("torch.minimum", "max"),
    "negative": _form("torch.neg({0})"),
    "abs": _form("torch.abs({0})"),
    "square": _form("torch.square({0})"),
    "exp": _form("torch.exp({0})"),
    "sum": _reduction("torch.sum", "torch.sum"),
    "mean": _reduction("torch.mean", "torch.mean"),
    "max": _reduction("torch.max", "torch.amax"),
    "min": _reduction("torch.min", "torch.amin"),
    "prod": _product,
    "matmul": _form("torch.matmul({0}, {1})"),
    "einsum": lambda args, step: f"torch.einsum({step.params['subscripts']!r}, {', '.join(args)})",
}

__all__ = [
    "IMPORTS", "NotationError", "Unsayable", "input_source", "line", "mesh_source",
    "mesh_step_source", "mesh_variable", "placements_source", "step_source", "variable",
]  # fmt: skip
