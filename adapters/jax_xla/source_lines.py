"""Which lines of Python make the meshes, inputs and results of a question in JAX?

The adapter runs the lines of steps, and a stand-alone script prints all lines. This module does not
import jax: lines are text here. They use the names of `names.format_imports`. Lines are for one
release of JAX, by default the newest. `op_table` has the lines of ops.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import Literal

from adapters.jax_xla import mesh_lines
from adapters.jax_xla.names import NEWEST, has_name, require, respell_line
from adapters.jax_xla.op_functions import FILTERS, Call, keep_layout_slot
from adapters.jax_xla.op_table import OP_TABLE
from adapters.op_lines import choose_line, fill_line, given_texts, is_taken
from adapters.reference.evaluate import steps_between
from adapters.unsupported import CannotAnswer
from cases import notation
from cases.arrays import Array
from cases.model import Input, Layout, Mesh, Param, Question, Step

Kind = Literal["Auto", "Explicit"]
Route = Literal["jit", "explicit"]
# The axis type of the meshes of each route.
KINDS: dict[Route, Kind] = {"jit": "Auto", "explicit": "Explicit"}

# Names that lines use. No variable may have such a name. Tests check this for each op.
RESERVED_NAMES = {
    "jax", "jnp", "np", "AxisType", "NamedSharding", "P", "tuple", "enumerate", "bool", "range",
    "shard_map", "reshard", "frozenset", "list", "joined", "program", "float",
}  # fmt: skip

# Parameters that have no slot. ``{mesh}`` is the mesh of a ``view``, `_key` uses the parameters of
# seeds, and a padding row changes no values.
_ELSEWHERE = ("view", "seeding", "seed", "draw", "impl", "padding_row")

# The expressions that reduce stacked addends along a leading dim. They keep the dtype.
_REDUCE = {
    "sum": "jnp.sum({x}, axis={axis}, dtype={x}.dtype)",
    "avg": "jnp.mean({x}, axis={axis}, dtype={x}.dtype)",
    "max": "jnp.max({x}, axis={axis})",
    "min": "jnp.min({x}, axis={axis})",
    "product": "jnp.prod({x}, axis={axis}, dtype={x}.dtype)",
}


def variable_name(name: str) -> str:
    """The Python name of an input or result. A name that would hide another gets a ``_``."""
    bare = name.rstrip("_")
    # The gradient of a result l uses a function named l_of.
    taken = bare.rstrip("0123456789") == "mesh" or bare.endswith("_of")
    return f"{name}_" if taken or is_taken(name, RESERVED_NAMES) else name


def mesh_variables(question: Question) -> dict[Mesh, str]:
    """The Python name of each mesh of a question. The question's mesh is ``mesh``."""
    names = {question.mesh: "mesh"}
    for given in question.inputs:
        if given.mesh is not None:
            names.setdefault(given.mesh, f"mesh{len(names) + 1}")
    return names


def view_variables(question: Question) -> dict[str, str]:
    """The Python name of the result of each mesh step."""
    return {step.result: variable_name(step.result) for step in question.mesh_steps}


def axis_kind(kind: Kind, release: str = NEWEST) -> str:
    """The text of an axis type. "" in a release without axis types, where all axes are Auto.

    Raises:
        CannotAnswer: the release lacks Explicit axes.
    """
    if kind == "Auto" and not has_name("jax.sharding.AxisType", release):
        return ""
    require("jax.sharding.AxisType", release)
    return f"AxisType.{kind}"


def view_sources(question: Question, kind: Kind, release: str = NEWEST) -> list[tuple[str, str]]:
    """The name and the expression of each mesh step. Axes have the type ``kind``.

    Raises:
        CannotAnswer: the release lacks Explicit axes.
    """
    return mesh_lines.derived_mesh_sources(
        question, axis_kind(kind, release), view_variables(question)
    )


def mesh_texts(question: Question) -> dict[str, str]:
    """The text of the mesh of each input and result."""
    return mesh_lines.mesh_texts(question, mesh_variables(question), view_variables(question))


def mesh_line(mesh: Mesh, name: str, route: Route, release: str = NEWEST) -> str:
    """The line that makes the mesh ``name`` for a route: Auto axes under jit, else Explicit axes.

    Raises:
        CannotAnswer: the release lacks Explicit axes.
    """
    return f"{name} = {mesh_lines.mesh_source(mesh, axis_kind(KINDS[route], release))}"


def input_line(
    given: Input, home: Mesh, mesh: str, stack: bool, data: str, release: str = NEWEST
) -> str:
    """The line that places an input on a mesh, as `arrays.place_input` does.

    ``mesh``: the text of the mesh. ``home``: the mesh itself, which gives the order of the devices.
    ``data``: the text of the global array, or of a list of the arrays of `input_arrays`.
    ``stack``: whether the addends of a partial input are stacked on leading dims. Without it, the
    input becomes an unreduced array.

    Raises:
        CannotAnswer: JAX cannot express the layout, or a partial input has no addends.
    """
    layout = given.layout
    if layout.partial and given.per_device is None:
        raise CannotAnswer("a partial input without its addends", given.name)
    shape: tuple[int | str, ...] = given.shape
    if layout.partial and not stack:
        require("PartitionSpec.unreduced", release, given.name)
    if layout.partial and stack:
        axes = [axis for axis, _ in layout.partial]
        layout = Layout(tuple((axis,) for axis in axes) + layout.dims)
        shape = (*(f"{mesh}.shape[{axis!r}]" for axis in axes), *shape)
    sharding = _sharding(given.name, layout, mesh)
    name = variable_name(given.name)
    if given.per_device is None:
        return f"{name} = jax.device_put({data}, {sharding})"
    sizes = f"({''.join(f'{size}, ' for size in shape)})"
    devices = f"list({mesh}.devices.flat)"
    if given.view is not None:
        devices = f"[jax.devices()[n] for n in {list(home.devices)}]"
    return (
        f"{name} = jax.make_array_from_single_device_arrays({sizes}, {sharding}, "
        f"jax.device_put({data}, {devices}))"
    )


def input_arrays(given: Input, stack: bool) -> tuple[Array, ...]:
    """The global array of an input, or one array per device. ``stack`` adds leading dims."""
    if given.per_device is None:
        return () if given.value is None else (given.value,)
    lead = (1,) * (len(given.layout.partial) if stack else 0)
    return tuple(Array(one.dtype, lead + one.shape, one.data) for one in given.per_device)


def reduce_lines(given: Input) -> list[str]:
    """The lines that reduce the stacked addends of a partial input.

    Each line reduces adjacent axes with the same reduction, in the order of the layout.
    """
    name = variable_name(given.name)
    lines = []
    ops = [op for _, op in given.layout.partial]
    while ops:
        run = next((at for at, op in enumerate(ops) if op != ops[0]), len(ops))
        axis = 0 if run == 1 else tuple(range(run))
        lines.append(f"{name} = {_REDUCE[ops[0]].format(x=name, axis=axis)}")
        del ops[:run]
    return lines


def step_lines(question: Question, step: Step, route: Route, release: str = NEWEST) -> list[str]:
    """The lines of a step. Every step has one line, except a gradient.

    JAX differentiates a function. The lines of a gradient define a function of the input. That
    repeats the steps between the input and the scalar, and uses existing values of all other names.
    The explicit route runs one step at a time, inside ``jax.set_mesh`` with the mesh of the step.

    Raises:
        CannotAnswer: JAX cannot express the layout, or the release lacks the op.
    """
    mesh = mesh_texts(question)[step.result]
    line = (jit_line if route == "jit" else explicit_line)(step, mesh, release)
    if step.op != "grad":
        return [line]
    of, by = map(str, step.args)
    inside = [
        one
        for before in steps_between(question, of, by)
        for one in step_lines(question, before, route, release)
    ]
    body = [f"    {one}" for one in [*inside, f"return {variable_name(of)}"]]
    return [f"def {variable_name(of)}_of({variable_name(by)}):", *body, line]


def names_used(question: Question, step: Step) -> list[str]:
    """The inputs and results that the lines of a step use, in no particular order."""
    if step.op != "grad":
        return list(dict.fromkeys(step.operands))
    of, by = map(str, step.args)
    inside = steps_between(question, of, by)
    names = [by, *(name for before in inside for name in names_used(question, before))]
    made = {before.result for before in inside}
    return [name for name in dict.fromkeys(names) if name not in made]


def jit_line(step: Step, mesh: str, release: str = NEWEST) -> str:
    """The line of a step under jit on the Auto mesh ``mesh``. A requested layout is a constraint.

    A final result also has a constraint instead of ``out_shardings``. jit refuses ``out_shardings``
    with uneven shards, but the suite tests what a constraint does with them.

    Raises:
        CannotAnswer: JAX cannot express the layout, or the release lacks the op.
    """
    if step.to is not None and step.to.partial:
        raise CannotAnswer("a partial result asked of jit", step.result)
    if step.to is not None and step.op == "distribute":
        value = _expression(step, mesh, release, _sharding(step.result, step.to, mesh))
        return f"{variable_name(step.result)} = {value}"
    value = _expression(step, mesh, release)
    if step.op == "full_tensor":
        value = f"jax.lax.with_sharding_constraint({value}, NamedSharding({mesh}, P()))"
    elif step.to is not None and step.op != "map_shards":
        sharding = _sharding(step.result, step.to, mesh)
        value = f"jax.lax.with_sharding_constraint({value}, {sharding})"
    return f"{variable_name(step.result)} = {value}"


def explicit_line(step: Step, mesh: str, release: str = NEWEST) -> str:
    """The line of a step on an Explicit mesh: ``out_sharding`` if the op takes it, else a reshard.

    Raises:
        CannotAnswer: JAX cannot express the layout, or the release lacks the op.
    """
    if step.to is not None and step.to.partial:
        require("PartitionSpec.unreduced", release, step.result)
    to = None if step.op == "map_shards" else step.to
    sharding = "" if to is None else _sharding(step.result, to, mesh)
    value = _expression(step, mesh, release, sharding)
    if step.op == "full_tensor":
        sharding = f"NamedSharding({mesh}, P())"
    if sharding and not (to and _takes_layout(value)):
        value = respell_line(f"jax.sharding.reshard({value}, {sharding})", release, step.result)
    return f"{variable_name(step.result)} = {value}"


def _sharding(name: str, to: Layout, mesh: str) -> str:
    return f"NamedSharding({mesh}, {_spec(name, to)})"


def _spec(name: str, to: Layout) -> str:
    try:
        return notation.to_spec(to)
    except notation.NotationError as error:
        raise CannotAnswer(f"{error.found}: JAX has {error.wanted}", name) from None


def _expression(step: Step, mesh: str, release: str, sharding: str = "") -> str:
    """The expression of a step in a release.

    ``sharding``: the layout that is requested from the op itself, if its function takes one.
    """
    added = {"mesh": mesh}
    if sharding:
        added["sharding"] = sharding
    if step.op == "map_shards" and step.to is not None:
        added["spec"] = _spec(step.result, step.to)
    try:
        texts = given_texts(step, variable_name, _ELSEWHERE)
        if "seed" in step.params:
            texts["key"] = _key(step.params)
        call = Call(step, texts | added, release)
        line = choose_line(step.op, OP_TABLE[step.op], call, texts, added)
        text = fill_line(keep_layout_slot(line, release), call, call.texts, FILTERS)
    except CannotAnswer as error:
        raise CannotAnswer(error.why, step.result) from None
    return respell_line(text, release, step.result)


@lru_cache(maxsize=4096)
def _takes_layout(text: str) -> bool:
    """Whether the outermost call of an expression takes the requested layout."""
    if "NamedSharding" not in text:
        return False
    node = ast.parse(text, mode="eval").body
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Lambda):
        node = node.func.body
    if not isinstance(node, ast.Call):
        return False
    placed = ast.unparse(node.func) == "jax.device_put"
    return placed or any(keyword.arg == "out_sharding" for keyword in node.keywords)


def _key(params: dict[str, Param]) -> str:
    """The key of a seed. The number of a later draw from the same seed is folded into it.

    JAX always gets a key, whichever generator the program seeds in other frameworks.
    """
    impl = f", impl={params['impl']!r}" if "impl" in params else ""
    key = f"jax.random.key({params['seed']}{impl})"
    return f"jax.random.fold_in({key}, {params['draw']})" if params.get("draw") else key
