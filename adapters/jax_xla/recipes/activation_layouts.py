"""Where does every activation of a recipe lie? Logical dims, and rules for them, as in MaxText.

An activation has a name in the model and a logical name per dim. Rules say which mesh axes each
logical name stands for under a parallel plan. Refuses to know what a model computes.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import jax
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import NamedSharding, PartitionSpec

from cases.recipes import RecipeKind

# ``norm_length`` is the sequence between the parts that tensor parallelism splits, ``length`` the
# sequence inside them.
Logical = Literal["batch", "norm_length", "length", "heads", "hidden", "vocab", ""]

ACTIVATIONS: dict[str, tuple[Logical, ...]] = {
    "residual": ("batch", "norm_length", ""),
    "normed": ("batch", "length", ""),
    "queries": ("batch", "length", "heads", ""),
    # A query looks at keys of the whole sequence.
    "keys": ("batch", "", "heads", ""),
    "hidden": ("batch", "length", "hidden"),
    "logits": ("batch", "length", "vocab"),
    # A model whose input has rows only.
    "row": ("batch", ""),
    "row_hidden": ("batch", "hidden"),
}


def logical_axis_rules(row: RecipeKind) -> dict[Logical, tuple[str, ...]]:
    """The mesh axes that split each logical dim under the plan of ``row``, major to minor."""
    tensor = (row.tensor,) if row.tensor else ()
    return {
        "batch": row.batch,
        "norm_length": row.sequence,
        "length": tuple(axis for axis in row.sequence if axis != row.tensor),
        "heads": tensor,
        "hidden": tensor,
        "vocab": tensor,
        "": (),
    }


def activation_spec(row: RecipeKind, name: str) -> PartitionSpec:
    """The layout of the activation called ``name`` under the plan of ``row``."""
    there = logical_axis_rules(row)
    return PartitionSpec(*(there[one] or None for one in ACTIVATIONS[name]))


def constrain_activation(
    x: jax.Array, name: str, row: RecipeKind, mesh: jax.sharding.Mesh
) -> jax.Array:
    """The activation called ``name``, in the layout of its plan and named for `REMAT_POLICY`."""
    x = lax.with_sharding_constraint(x, NamedSharding(mesh, activation_spec(row, name)))
    named: jax.Array = checkpoint_name(x, name)
    return named


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def gather_weight(weight: jax.Array, used: NamedSharding, home: NamedSharding) -> jax.Array:
    """A weight in the layout in which it is ``used``; its gradient is in the layout ``home``.

    Without this, products alone also make XLA gather it, but not always in this way: if FSDP and
    tensor parallelism split one dim of it and the mesh has a third axis, XLA gathers along both.
    """
    whole: jax.Array = lax.with_sharding_constraint(weight, used)
    return whole


def _gather(weight: jax.Array, used: NamedSharding, home: NamedSharding) -> tuple[jax.Array, None]:
    return gather_weight(weight, used, home), None


def _scatter(
    used: NamedSharding, home: NamedSharding, _: None, grad: jax.Array
) -> tuple[jax.Array]:
    return (lax.with_sharding_constraint(grad, home),)


gather_weight.defvjp(_gather, _scatter)

# The activations of the forward pass that the backward pass finds if parameters are sharded. It
# computes the others again, and so gathers each weight and passes each key again.
REMAT_POLICY = jax.checkpoint_policies.save_only_these_names(*ACTIVATIONS)
