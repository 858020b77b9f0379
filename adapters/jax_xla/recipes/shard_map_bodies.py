"""Which collectives do recipes call explicitly? Expert parallelism and ring attention.

These functions are bodies of ``jax.shard_map``. Every array in them is a local shard. JAX derives
the gradient by transposing each collective.
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
    """`models.experts` with experts sharded over ``axis`` and tokens exchanged along it."""

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
    """`models.attend` on a sequence sharded over ``axis``: ring attention (arXiv 2310.01889).

    In each turn, a device uses its current block of keys and values and passes it on. No device
    holds all blocks. An online softmax keeps the largest score, the sum and the weighted values.
    It divides at the end.
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
        # The loop is unrolled, because collectives in a loop body count once.
        for turn in range(size):
            # A device starts with its own block, so every row has a finite score.
            scores = jnp.einsum("bqngh,bknh->bngqk", grouped, k) / head**0.5
            if causal:
                columns = (me - turn) % size * here + jnp.arange(here)
                scores = jnp.where(rows[:, None] >= columns, scores, -jnp.inf)
            before = largest
            # The result does not depend on ``largest``, so it needs no gradient.
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
