"""What do recipes pass between devices by hand? Tokens to experts, keys and values round a ring.

Bodies of ``jax.shard_map``: every array in them is one device's share. The gradient is JAX's own,
the transpose of each collective.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from adapters.jax_xla import compat
from adapters.jax_xla.recipes import models

Experts = Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]


def experts(
    mesh: jax.sharding.Mesh, axis: str, x: PartitionSpec, router: PartitionSpec, w: PartitionSpec
) -> Experts:
    """`models.experts`, with experts split by ``axis`` and tokens exchanged along it."""

    def send(rooms: jax.Array) -> jax.Array:
        sent: jax.Array = lax.all_to_all(rooms, axis, split_axis=0, concat_axis=1, tiled=True)
        return sent

    def fetch(rooms: jax.Array) -> jax.Array:
        fetched: jax.Array = lax.all_to_all(rooms, axis, split_axis=1, concat_axis=0, tiled=True)
        return fetched

    def exchanged(x: jax.Array, router: jax.Array, w1: jax.Array, w2: jax.Array) -> jax.Array:
        return models.experts(x, router, w1, w2, send, fetch)

    return compat.shard_map(exchanged, mesh, (x, router, w, w), x)


def ring(mesh: jax.sharding.Mesh, axis: str, spec: PartitionSpec) -> models.Attend:
    """`models.attend` of a sequence split by ``axis``: ring attention (arXiv 2310.01889).

    Each turn takes in the block of keys and values that is here and passes it on, so that none
    holds them all. Softmax is kept as largest score, sum and mixture so far, and divided at the
    end (online softmax).
    """
    size = mesh.shape[axis]
    onward = [(one, (one + 1) % size) for one in range(size)]

    def attend(q: jax.Array, k: jax.Array, v: jax.Array, causal: bool) -> jax.Array:
        batch, here, kv, head = k.shape
        grouped = q.reshape(batch, here, kv, -1, head)
        me = lax.axis_index(axis)
        rows = me * here + jnp.arange(here)
        largest = jnp.full((batch, kv, grouped.shape[3], here), -jnp.inf, q.dtype)
        total, mixed = jnp.zeros_like(largest), jnp.zeros((*largest.shape, head), q.dtype)
        # Unrolled, as a loop's body would be counted once.
        for turn in range(size):
            # A device's own block comes first, so that every row has seen a score.
            scores = jnp.einsum("bqngh,bknh->bngqk", grouped, k) / head**0.5
            if causal:
                columns = (me - turn) % size * here + jnp.arange(here)
                scores = jnp.where(rows[:, None] >= columns, scores, -jnp.inf)
            before = largest
            # The result does not depend on it.
            largest = lax.stop_gradient(jnp.maximum(before, jnp.max(scores, axis=-1)))
            weights, shrink = jnp.exp(scores - largest[..., None]), jnp.exp(before - largest)
            total = total * shrink + jnp.sum(weights, axis=-1)
            turned = jnp.einsum("bngqk,bknh->bngqh", weights, v)
            mixed = mixed * shrink[..., None] + turned
            if turn < size - 1:
                k, v = lax.ppermute((k, v), axis, onward)
        return (mixed / total[..., None]).transpose(0, 3, 1, 2, 4).reshape(q.shape)

    def mapped(q: jax.Array, k: jax.Array, v: jax.Array, causal: bool) -> jax.Array:
        body = partial(attend, causal=causal)
        mixed: jax.Array = compat.shard_map(body, mesh, (spec,) * 3, spec)(q, k, v)
        return mixed

    return mapped
