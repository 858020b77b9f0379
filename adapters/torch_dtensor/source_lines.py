"""Which line of Python makes a mesh, an input or the result of a step in torch?

The adapter evaluates these lines, and a stand-alone script prints them. This module does not import
torch: lines are text here. They use the names of `names.format_imports`. ``mesh`` is the mesh of
the question. `op_table` has the lines of ops.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Container, Mapping
from functools import lru_cache

from adapters.op_lines import choose_line, fill_line, given_texts, is_taken
from adapters.torch_dtensor.op_functions import FILTERS, Call
from adapters.torch_dtensor.op_table import OP_TABLE
from adapters.unsupported import CannotAnswer
from cases.model import Input, Layout, Mesh, MeshStep, Step
from cases.notation import to_placements
from cases.ops import OPS
from cases.program import TensorType

# Context of a question -> the expression after ``with`` in a script.
CONTEXTS = {"loss_parallel": "loss_parallel()"}

# Names that lines use. No variable may have such a name. Tests check this for each op.
RESERVED_NAMES = {
    "torch", "F", "DeviceMesh", "DTensor", "Partial", "Replicate", "Shard", "distribute_tensor",
    "dtensor", "manual_seed", "local_map", "loss_parallel", "CommDebugMode",
    "float", "int", "max", "min", "slice", "mesh",
}  # fmt: skip
_STRIDED = re.compile(r"SS\((\d+),(\d+)\)")


def variable_name(name: str) -> str:
    """The Python variable for a name of the program. Keywords and `RESERVED_NAMES` get a ``_``."""
    return f"{name}_" if is_taken(name, RESERVED_NAMES) else name


def mesh_variable(given: Input) -> str:
    """The variable of the mesh of an input."""
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
    """Whether an input has one array for each device. A Partial input always has.

    In a dry run ``per_device`` is empty or None.
    """
    return given.value is None and (given.per_device is not None or bool(given.layout.partial))


def input_source(given: Input, mesh: Mesh, differentiated: bool = False) -> str:
    """The expression that makes an input a DTensor on ``mesh``.

    Before the line, the variable holds the global tensor or the local tensor of this rank.
    ``differentiated``: whether a step is the gradient with respect to this input.

    Raises:
        NotationError: placements cannot express the layout.
    """
    name, where = variable_name(given.name), mesh_variable(given)
    placements = placements_source(given.layout, mesh)
    leaf = ".requires_grad_()" if differentiated else ""
    if not is_given_by_device(given):
        return f"distribute_tensor({name}, {where}, {placements}){leaf}"
    # Without shape and stride torch assumes that all shards have the same size.
    stride = tuple(math.prod(given.shape[dim + 1 :]) for dim in range(len(given.shape)))
    sizes = f", shape=torch.Size({list(given.shape)}), stride={stride}" if given.shape else ""
    return f"DTensor.from_local({name}, {where}, {placements}, run_check=False{sizes}){leaf}"


def mesh_step_source(step: MeshStep, base: str, axes: tuple[str, ...], made: Container[str]) -> str:
    """The expression that derives a mesh from the mesh in variable ``base`` with ``axes``.

    ``made``: the names of earlier mesh steps, which ``mesh_concatenate`` can also join.
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
    step: Step,
    mesh: Mesh,
    home: str = "mesh",
    known: Callable[[], Mapping[str, TensorType]] = dict,
) -> str:
    """The expression of a step. Its result is on ``mesh``, which is in variable ``home``.

    ``known``: returns the shape and dtype of every name. Few ops need them.

    Raises:
        CannotAnswer: torch has no line for the op with these parameters.
        NotationError: placements cannot express the requested layout.
    """
    # torch.max over all dims has no keepdim. Other reductions drop dims by default.
    elsewhere = ("view",) if step.params.get("keepdims") else ("view", "keepdims")
    texts = given_texts(step, variable_name, elsewhere)
    given, op = tuple(texts), OPS[step.op]
    if op.family == "reduction" and step.params.get("axis") == []:
        raise CannotAnswer(f"{step.op}: torch takes no dims for all dims")
    if "dtype" in texts:
        texts["dtype"] = f"torch.{step.params['dtype']}"
    texts["mesh"] = home
    if "view" in step.params:
        texts["view"] = home
    placements = "" if step.to is None else placements_source(step.to, mesh)
    if placements:
        texts["placements"] = placements
    call = Call(step, texts, mesh, known)
    line = choose_line(step.op, OP_TABLE[step.op], call, given, texts)
    text = fill_line(line, call, texts, FILTERS)
    if not placements or op.places:
        return text
    target = f"({text})" if _is_compound(text) else text
    return f"{target}.redistribute(placements={placements})"


@lru_cache(maxsize=65536)
def _is_compound(text: str) -> bool:
    """Whether an expression needs parentheses before an attribute follows."""
    simple = ast.Name | ast.Call | ast.Attribute | ast.Subscript
    return not isinstance(ast.parse(text, mode="eval").body, simple)


def assignment_line(result: str, source: str) -> str:
    """The line of a script that gives ``result`` its value."""
    return f"{variable_name(result)} = {source}"


@lru_cache(maxsize=65536)
def placements_source(layout: Layout, mesh: Mesh) -> str:
    """``[Shard(0), Partial("sum")]``, one placement per axis of ``mesh``.

    Raises:
        NotationError: placements cannot express the layout.
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
