"""JAX with a mistake in the plan of three recipes: right numbers, other collectives.

``mlp-tp`` gathers hidden units that it need not. ``attention-cp`` keeps what was gathered for the
backward pass. ``head-tp`` wants its next parameters whole. It also has a recipe more, `HYBRID`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from adapters.jax_xla import adapter
from adapters.protocol import Adapter
from cases.model import Mesh
from cases.recipes import RECIPES, RecipeKind

HYBRID = RecipeKind(
    "block-hybrid", "block", ("dp_replicate", "fsdp", "tp"), "three ways at once",
    batch=("dp_replicate", "fsdp"), sequence=("tp",), tensor="tp", shard=("fsdp",),
)  # fmt: skip


def connect(devices: int) -> Adapter:
    """A live JAX, whose children start with the mistakes."""
    made = adapter.connect(devices)
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    from adapters.jax_xla.recipes import activation_layouts, step

    RECIPES[HYBRID.name] = HYBRID
    activation_layouts.ACTIVATIONS["row_hidden"] = ("batch", "")
    activation_layouts.REMAT_POLICY = jax.checkpoint_policies.everything_saveable
    right = step.sharded_step

    def sharded(row: RecipeKind, sizes: Mapping[str, int], mesh: Mesh) -> step.Step:
        found = right(row, sizes, mesh)
        if row.name != "head-tp":
            return found
        (there,) = {one.mesh for one in found.arguments.values()}
        whole = {
            name: NamedSharding(there, PartitionSpec())
            for name in found.results
            if name.startswith("new/")
        }
        return msgspec.structs.replace(found, results={**found.results, **whole})

    step.sharded_step = sharded
    return made
