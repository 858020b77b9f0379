"""How does JAX spell each op? One row per op, as source text that both runs and prints.

A row is a Python expression over the op's arguments. `function` runs the very lines that a
stand-alone script shows. Refuses to know what an op means: that is `cases.ops`.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from adapters.answer import Unsupported
from adapters.jax_xla.attempt import Stopped
from cases import notation
from cases.model import Input, Layout, Mesh, Question, Step
from cases.ops import OPS

# Slots: argument and parameter names; {params} for the optional parameters that are given;
# {out} where the op takes the layout of its result itself.
ROWS = {
    "redistribute": "{x}",
    "identity": "{x}",
    "add": "jnp.add({x}, {y})",
    "subtract": "jnp.subtract({x}, {y})",
    "multiply": "jnp.multiply({x}, {y})",
    "divide": "jnp.divide({x}, {y})",
    "maximum": "jnp.maximum({x}, {y})",
    "minimum": "jnp.minimum({x}, {y})",
    "negative": "jnp.negative({x})",
    "abs": "jnp.abs({x})",
    "square": "jnp.square({x})",
    "exp": "jnp.exp({x})",
    "sum": "jnp.sum({x}{params})",
    "mean": "jnp.mean({x}{params})",
    "max": "jnp.max({x}{params})",
    "min": "jnp.min({x}{params})",
    "prod": "jnp.prod({x}{params})",
    "matmul": "jnp.matmul({x}, {w}{out})",
    "einsum": "jnp.einsum({subscripts}, {x}, {w}{out})",
}

# Addends stacked on a leading dim are reduced by these; the dtype stays.
_REDUCE = {
    "sum": "jnp.sum({x}, axis={axis}, dtype={x}.dtype)",
    "avg": "jnp.mean({x}, axis={axis}, dtype={x}.dtype)",
    "max": "jnp.max({x}, axis={axis})",
    "min": "jnp.min({x}, axis={axis})",
    "product": "jnp.prod({x}, axis={axis}, dtype={x}.dtype)",
}

_SCOPE = {"jax": jax, "jnp": jnp, "NamedSharding": NamedSharding, "P": PartitionSpec}

FILENAME = "<question>"


def variable(name: str) -> str:
    """The Python name of an input or result: its own, unless that would hide another."""
    taken = name in _SCOPE or name.rstrip("0123456789") == "mesh" or keyword.iskeyword(name)
    return f"{name}_" if taken else name


def mesh_variables(question: Question) -> dict[Mesh, str]:
    """The Python name of each mesh of a question: ``mesh`` is the question's own."""
    names = {question.mesh: "mesh"}
    for given in question.inputs:
        if given.mesh is not None:
            names.setdefault(given.mesh, f"mesh{len(names) + 1}")
    return names


def _text(value: object) -> str:
    return repr(tuple(value) if isinstance(value, list) else value)


def _sharding(step: Step, to: Layout, mesh: str) -> str:
    try:
        return f"NamedSharding({mesh}, {notation.to_spec(to)})"
    except notation.NotationError as error:
        raise Stopped(Unsupported(f"{error.found}: JAX has {error.wanted}", step.result)) from None


def _expression(step: Step, out: str = "") -> str:
    row = ROWS.get(step.op)
    if row is None:
        raise Stopped(Unsupported(f"no row for the op {step.op}", step.result))
    args = {
        slot: variable(arg) if isinstance(arg, str) else repr(arg)
        for slot, arg in zip(OPS[step.op].args, step.args, strict=True)
    }
    named = {key: _text(value) for key, value in step.params.items() if f"{{{key}}}" in row}
    rest = {key: _text(value) for key, value in step.params.items() if key not in named}
    params = "".join(f", {key}={value}" for key, value in rest.items())
    return row.format(**args, **named, params=params, out=out and f", out_sharding={out}")


def jit_line(step: Step, mesh: str) -> str:
    """The step in a program on the Auto mesh called ``mesh``: a layout asked for is a constraint.

    A constraint, and no ``out_shardings`` even on a final result: one form for every step,
    and what jit makes of a layout it cannot hold (uneven sizes) is seen, not refused.

    Raises:
        Stopped: Unsupported, if JAX has no such op or no such layout.
    """
    value = _expression(step)
    if step.to is not None:
        if step.to.partial:
            raise Stopped(Unsupported("a partial result asked of jit", step.result))
        value = f"jax.lax.with_sharding_constraint({value}, {_sharding(step, step.to, mesh)})"
    return f"{variable(step.result)} = {value}"


def explicit_line(step: Step, mesh: str) -> str:
    """The step on an Explicit mesh: ``out_sharding`` where the op takes it, else a reshard.

    Raises:
        Stopped: Unsupported, if JAX has no such op or no such layout.
    """
    if step.to is None:
        value = _expression(step)
    elif "{out}" in ROWS.get(step.op, ""):
        value = _expression(step, _sharding(step, step.to, mesh))
    else:
        value = f"jax.sharding.reshard({_expression(step)}, {_sharding(step, step.to, mesh)})"
    return f"{variable(step.result)} = {value}"


def reduce_lines(given: Input) -> list[str]:
    """Lines that reduce a partial input whose addends are stacked on leading dims.

    One line per run of equal reductions, in the order they are due.
    """
    name = variable(given.name)
    lines = []
    ops = [op for _, op in given.layout.partial]
    while ops:
        run = next((at for at, op in enumerate(ops) if op != ops[0]), len(ops))
        axis = 0 if run == 1 else tuple(range(run))
        lines.append(f"{name} = {_REDUCE[ops[0]].format(x=name, axis=axis)}")
        del ops[:run]
    return lines


def function(
    arguments: Sequence[str],
    lines: Sequence[str],
    results: Sequence[str],
    meshes: Mapping[str, jax.sharding.Mesh],
) -> Callable[..., Any]:
    """A function of ``arguments`` that runs ``lines`` and returns a tuple of ``results``.

    ``meshes``: the meshes that the lines name.

    Line i of ``lines`` is line i + 2 of `FILENAME` in a traceback.
    """
    head = f"def program({', '.join(map(variable, arguments))}):"
    tail = f"return ({''.join(variable(result) + ', ' for result in results)})"
    source = "\n    ".join([head, *lines, tail])
    scope: dict[str, Any] = {**_SCOPE, **meshes}
    exec(compile(source, FILENAME, "exec"), scope)
    made: Callable[..., Any] = scope["program"]
    return made
