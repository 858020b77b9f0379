"""What is one training step of a recipe, as a function for one ``jax.jit``?

It computes forward, loss, gradients and an SGD update, and says the shardings of arguments and
results. It takes arrays or shapes. This module does not know how the step is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import msgspec
from jax.sharding import NamedSharding

from adapters.jax_xla import arrays
from adapters.jax_xla.recipes import activation_layouts, models, shard_map_bodies
from cases.arrays import numpy_dtype
from cases.model import Layout, Mesh
from cases.recipes import MODELS, RecipeKind
from cases.recipes.layouts import data_layout, observed_names, parameter_layout
from cases.recipes.parameter_values import LEARNING_RATE

Function = Callable[[models.Arrays], dict[str, jax.Array]]


class Step(msgspec.Struct, frozen=True):
    """A training step on a mesh.

    ``function`` takes parameters and inputs by name, with the shardings ``arguments``. It returns
    the rest of `observed_names` by name. ``results`` is the ``out_shardings`` of ``jax.jit``. The
    compiler chooses the sharding of a result that is None.
    """

    function: Function
    arguments: dict[str, NamedSharding]
    results: dict[str, NamedSharding | None]


def sharded_step(row: RecipeKind, sizes: Mapping[str, int], mesh: Mesh) -> Step:
    """The step of ``row`` on a mesh. The compiler finds the collectives from the shardings.

    Gradients and new values of parameters get the shardings of the parameters. The compiler chooses
    the others. If parameters are sharded, the backward pass reuses the named activations of the
    forward pass (`activation_layouts.REMAT_POLICY`), and gathers parameters again, as FSDP does.
    """
    model = MODELS[row.model]
    there = arrays.jax_mesh(mesh, "Auto")
    layouts = {one.name: parameter_layout(row, one, sizes, mesh) for one in model.parameters}
    layouts |= {one.name: data_layout(row, one) for one in model.inputs}
    arguments = {
        name: NamedSharding(there, arrays.partition_spec(layout))
        for name, layout in layouts.items()
    }
    moves = _moves(row, there, arguments)
    used = {
        one.name: NamedSharding(
            there, arrays.partition_spec(_without(layouts[one.name], row.shard))
        )
        for one in model.parameters
        if row.shard
    }

    def forward(t: models.Arrays) -> jax.Array:
        gathered = {
            name: activation_layouts.gather_weight(t[name], sharding, arguments[name])
            for name, sharding in used.items()
        }
        return models.forward(row.model, sizes, moves, {**t, **gathered})

    # The default policy of MaxText also gathers again, but it recomputes everything.
    kept = jax.checkpoint(forward, policy=activation_layouts.REMAT_POLICY) if row.shard else forward
    names = [name for name in observed_names(row) if name not in arguments]
    results = {name: arguments.get(name.partition("/")[2]) for name in names}
    return Step(_step(row.model, kept), arguments, results)


def unsharded_step(model: str, sizes: Mapping[str, int]) -> Function:
    """The step of any recipe of ``model`` on one device, without meshes and shardings."""

    def forward(t: models.Arrays) -> jax.Array:
        return models.forward(model, sizes, models.ParallelHooks(), t)

    return _step(model, forward)


def input_structs(
    row: RecipeKind, sizes: dict[str, int], dtype: str, step: Step
) -> dict[str, jax.ShapeDtypeStruct]:
    """The arguments of ``step.function`` in a dry run: shapes, dtypes and shardings."""
    model = MODELS[row.model]
    return {
        one.name: jax.ShapeDtypeStruct(
            one.sizes(sizes),
            numpy_dtype(dtype if one.values == "real" else "int64"),
            sharding=step.arguments[one.name],
        )
        for one in (*model.parameters, *model.inputs)
    }


def _without(layout: Layout, axes: tuple[str, ...]) -> Layout:
    """The layout, gathered along ``axes``."""
    return Layout(tuple(tuple(one for one in dim if one not in axes) for dim in layout.dims))


def _moves(
    row: RecipeKind, mesh: jax.sharding.Mesh, arguments: dict[str, NamedSharding]
) -> models.ParallelHooks:
    def at(x: jax.Array, name: str) -> jax.Array:
        return activation_layouts.constrain_activation(x, name, row, mesh)

    def gathered(q: jax.Array, k: jax.Array, v: jax.Array, causal: bool) -> jax.Array:
        return models.attend(q, at(k, "keys"), at(v, "keys"), causal)

    attend: models.Attend = gathered
    if row.name == "attention-ring":
        (axis,) = activation_layouts.logical_axis_rules(row)["length"]
        attend = shard_map_bodies.ring(
            mesh, axis, activation_layouts.activation_spec(row, "queries")
        )
    experts: shard_map_bodies.Experts = models.experts
    if row.expert:
        specs = [arguments[one].spec for one in ("x", "router.weight", "experts.w1")]
        experts = shard_map_bodies.experts(mesh, row.expert, *specs)
    return models.ParallelHooks(at, attend, experts)


def _step(model: str, forward: Callable[[models.Arrays], jax.Array]) -> Function:
    parameters = [one.name for one in MODELS[model].parameters]
    chosen = parameters + [one.name for one in MODELS[model].inputs if one.name == "x"]

    def step(t: models.Arrays) -> dict[str, jax.Array]:
        def objective(moving: models.Arrays) -> tuple[jax.Array, jax.Array]:
            every = {**t, **moving}
            out = forward(every)
            return models.loss(model, every, out), out

        moving = {name: t[name] for name in chosen}
        (loss, out), grads = jax.value_and_grad(objective, has_aux=True)(moving)
        # The scope marks the collectives of the optimizer by name.
        with jax.named_scope("update"):
            new = {f"new/{name}": t[name] - LEARNING_RATE * grads[name] for name in parameters}
        return {"out": out, "loss": loss, **{f"grad/{name}": grads[name] for name in chosen}, **new}

    return step
