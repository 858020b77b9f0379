"""How does DTensor spell a mesh, an input, a step? One line of Python each, run and printed alike.

What a line says is what the adapter evaluates and what a stand-alone script prints. Knows
no torch: lines are text here. The names that they use besides the program's own and Python's
are those that `names.imports` brings, and `mesh` for the mesh of the question. How each op is
spelled is in `rows`.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Container, Mapping
from functools import lru_cache

from adapters.torch_dtensor.op_table import OP_TABLE
from adapters.torch_dtensor.python_text import (
    Call,
    Unsayable,
    format_literal,
    placements_source,
    variable_name,
)
from cases.model import Input, Mesh, MeshStep, Step
from cases.notation import NotationError
from cases.ops import OPS
from cases.program import TensorType

# The region of a question -> what a script has after ``with``.
CONTEXTS = {"loss_parallel": "loss_parallel()"}


def mesh_variable(given: Input) -> str:
    """The variable of the mesh that an input lives on."""
    if given.view is not None:
        return variable_name(given.view)
    return "mesh" if given.mesh is None else f"mesh_of_{variable_name(given.name)}"


@lru_cache(maxsize=4096)
def mesh_source(mesh: Mesh) -> str:
    """``DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("dp", "tp"))``."""
    grid: list[object] = list(mesh.devices)
    for size in reversed(mesh.shape[1:]):
        grid = [grid[start : start + size] for start in range(0, len(grid), size)]
    return f"DeviceMesh('cpu', {grid}, mesh_dim_names={mesh.names})"


def is_given_by_device(given: Input) -> bool:
    """Whether an input is given device by device, as what owes a reduction always is.

    Without data, ``per_device`` is then empty or None.
    """
    return given.value is None and (given.per_device is not None or bool(given.layout.partial))


def input_source(given: Input, mesh: Mesh, *, derived: bool = False) -> str:
    """How an input becomes a DTensor on ``mesh``, which is its own, its view's or the question's.

    The name stands for the global array before the line, or for the array of this rank.
    ``derived``: a gradient with respect to it is asked for.

    Raises:
        NotationError: placements cannot say the layout.
    """
    name, where = variable_name(given.name), mesh_variable(given)
    placements = placements_source(given.layout, mesh)
    leaf = ".requires_grad_()" if derived else ""
    if not is_given_by_device(given):
        return f"distribute_tensor({name}, {where}, {placements}){leaf}"
    # Without shape and stride torch takes the shards for even.
    stride = tuple(math.prod(given.shape[dim + 1 :]) for dim in range(len(given.shape)))
    whole = f", shape=torch.Size({list(given.shape)}), stride={stride}" if given.shape else ""
    return f"DTensor.from_local({name}, {where}, {placements}, run_check=False{whole}){leaf}"


def mesh_step_source(step: MeshStep, base: str, axes: tuple[str, ...], made: Container[str]) -> str:
    """How a mesh is derived from the one in variable ``base`` with ``axes``.

    ``made`` are the names of earlier mesh steps, which `mesh_concatenate` may join too.
    """
    match step.op:
        case "mesh_slice":
            return _sliced(base, step.axes)
        case "mesh_flatten":
            part = base if step.axes == axes else _sliced(base, step.axes)
            return f"{part}._flatten({step.result!r})"
        case "mesh_unflatten":
            sizes, fake = step.params["axes"], step.params.get("fake")
            assert isinstance(sizes, dict)
            new = f"{tuple(sizes.values())}, {tuple(sizes)}"
            backends = dict.fromkeys(fake, "fake") if isinstance(fake, list) else None
            more = f", backend_override={backends}" if backends else ""
            return f"{base}._unflatten({step.axes[0]!r}, {new}{more})"
        case "mesh_concatenate":
            parts = [
                variable_name(axis) if axis in made else f"{base}[{axis!r}]" for axis in step.axes
            ]
            return f"DeviceMesh._concatenate([{', '.join(parts)}])"
        case "mesh_equal":
            return " == ".join(map(variable_name, step.axes))


def _sliced(base: str, axes: tuple[str, ...]) -> str:
    return f"{base}[{', '.join(map(repr, axes))}]"


def step_source(
    step: Step, mesh: Mesh, home: str = "mesh", known: Callable[[], Mapping[str, TensorType]] = dict
) -> str:
    """The expression of a step; its result lives on ``mesh``, in variable ``home``.

    ``known`` gives shape and dtype of every name, for the rows that need some.

    Raises:
        Unsayable: torch has no form for the op with these parameters.
        NotationError: placements cannot say the layout asked for.
    """
    if step.op not in OP_TABLE:
        raise Unsayable(f"the op {step.op} has no row for torch")
    args = tuple(
        variable_name(arg) if isinstance(arg, str) else format_literal(arg) for arg in step.args
    )
    text = OP_TABLE[step.op](Call(step, args, mesh, home, known))
    if step.to is None or OPS[step.op].places:
        return text
    target = f"({text})" if _is_compound(text) else text
    return f"{target}.redistribute(placements={placements_source(step.to, mesh)})"


@lru_cache(maxsize=65536)
def _is_compound(text: str) -> bool:
    """Whether an attribute of it would be that of its last part."""
    simple = ast.Name | ast.Call | ast.Attribute | ast.Subscript
    return not isinstance(ast.parse(text, mode="eval").body, simple)


def assignment_line(result: str, source: str) -> str:
    """The line of a script that gives ``result`` its value."""
    return f"{variable_name(result)} = {source}"


__all__ = [
    "CONTEXTS", "NotationError", "Unsayable", "assignment_line", "input_source",
    "is_given_by_device", "mesh_source", "mesh_step_source", "mesh_variable", "placements_source",
    "step_source", "variable_name",
]  # fmt: skip
