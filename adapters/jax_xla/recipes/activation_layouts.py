"""Which sharding does each activation of a recipe have? Logical dims and axis rules, as in MaxText.

Each activation has a name and a logical name per dim. The rules of a parallel plan map each logical
name to mesh axes. This module does not know what a model computes.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import jax
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import NamedSharding, PartitionSpec

from cases.recipes import RecipeKind

# ``length`` is the sequence dim inside the submodules that tensor parallelism shards.
# ``norm_length`` is the sequence dim between them.
Logical = Literal["batch", "norm_length", "length", "heads", "hidden", "vocab", ""]

ACTIVATIONS: dict[str, tuple[Logical, ...]] = {
    "residual": ("batch", "norm_length", ""),
    "normed": ("batch", "length", ""),
    "queries": ("batch", "length", "heads", ""),
    # A query attends to the keys of the whole sequence.
    "keys": ("batch", "", "heads", ""),
    "hidden": ("batch", "length", "hidden"),
    "logits": ("batch", "length", "vocab"),
    # Activations of a model without a sequence dim.
    "row": ("batch", ""),
    "row_hidden": ("batch", "hidden"),
}


def logical_axis_rules(row: RecipeKind) -> dict[Logical, tuple[str, ...]]:
    """The mesh axes that shard each logical dim in the parallel plan of ``row``, major to minor."""
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
    """The PartitionSpec of the activation ``name`` in the parallel plan of ``row``."""
    there = logical_axis_rules(row)
    return PartitionSpec(*(there[one] or None for one in ACTIVATIONS[name]))


def constrain_activation(
    x: jax.Array, name: str, row: RecipeKind, mesh: jax.sharding.Mesh
) -> jax.Array:
    """Constrain the sharding of the activation ``name``, and name it for `REMAT_POLICY`."""
    x = lax.with_sharding_constraint(x, NamedSharding(mesh, activation_spec(row, name)))
    named: jax.Array = checkpoint_name(x, name)
    return named


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def gather_weight(weight: jax.Array, used: NamedSharding, home: NamedSharding) -> jax.Array:
    """Reshard a weight from ``home`` to ``used``. Its gradient is resharded to ``home``.

    Without this, XLA can gather along too many axes: along the FSDP and the tensor axis, if both
    shard one dim and the mesh has a third axis.
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

# The backward pass of a recipe with sharded parameters reuses only these activations. It recomputes
# the others, so it also repeats the collectives for weights and keys.
REMAT_POLICY = jax.checkpoint_policies.save_only_these_names(*ACTIVATIONS)
