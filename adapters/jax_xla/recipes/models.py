"""What does each model compute in JAX? The models are pure functions of named arrays.

The same functions run sharded and on one device. `ParallelHooks` adds the shardings of activations
and explicit collectives. This module knows nothing of meshes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import msgspec

from cases.recipes import MODELS

Arrays = Mapping[str, jax.Array]
Sizes = Mapping[str, int]
ExchangeSlots = Callable[[jax.Array], jax.Array]
# The arguments are queries, keys, values and ``causal``.
Attend = Callable[[jax.Array, jax.Array, jax.Array, bool], jax.Array]

EPSILON = 1e-5
# The base of the rotary angles, as in Llama 3.
THETA = 500000.0


def attend(q: jax.Array, k: jax.Array, v: jax.Array, causal: bool) -> jax.Array:
    """Attention of queries [b, s, heads, head] over keys and values [b, s, kv, head].

    Query head h uses key head h // (heads / kv). Causal attention masks later keys.
    """
    batch, seq, kv, head = k.shape
    grouped = q.reshape(batch, seq, kv, -1, head)
    scores = jnp.einsum("bqngh,bknh->bngqk", grouped, k) / head**0.5
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones((seq, seq), bool)), scores, -jnp.inf)
    mixed = jnp.einsum("bngqk,bknh->bqngh", jax.nn.softmax(scores, axis=-1), v)
    return mixed.reshape(q.shape)


def _here(rooms: jax.Array) -> jax.Array:
    return rooms


def experts(
    x: jax.Array,
    router: jax.Array,
    w1: jax.Array,
    w2: jax.Array,
    send: ExchangeSlots = _here,
    fetch: ExchangeSlots = _here,
) -> jax.Array:
    """Mixture of experts: the output of each token's top expert times the router probability.

    ``x`` and the result are [b, s, dim]. As in GShard (arXiv 2006.16668), tokens are written to
    slots ``rooms`` [expert, slot, dim]. The capacity is the number of tokens, so none is dropped.
    ``send`` passes the slots to the devices with the experts ``w1`` [local expert, hidden, dim] and
    ``w2`` [local expert, dim, hidden]. ``fetch`` sends them back.
    """
    tokens = x.reshape(-1, x.shape[-1])
    probabilities = jax.nn.softmax(_linear(tokens, router), axis=-1)
    chosen = jnp.argmax(probabilities, axis=-1)
    mask = jax.nn.one_hot(chosen, len(router), dtype=jnp.int32)
    place = jnp.sum(jnp.cumsum(mask, axis=0) * mask, axis=-1) - 1
    rooms = send(jnp.zeros((len(router), *tokens.shape), x.dtype).at[chosen, place].set(tokens))
    hidden = jax.nn.relu(jnp.einsum("ecd,ehd->ech", rooms, w1))
    rooms = fetch(jnp.einsum("ech,edh->ecd", hidden, w2))
    gate = jnp.take_along_axis(probabilities, chosen[:, None], axis=-1)
    return (rooms[chosen, place] * gate).reshape(x.shape)


def _anywhere(x: jax.Array, name: str) -> jax.Array:
    return x


class ParallelHooks(msgspec.Struct, frozen=True):
    """What a parallel plan adds to a model. The defaults add nothing: all is on one device.

    ``at``: constrains an activation by its name in `activation_layouts.ACTIVATIONS`. ``attend`` and
    ``experts``: replace the functions of that name.
    """

    at: Callable[[jax.Array, str], jax.Array] = _anywhere
    attend: Attend = attend
    experts: Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array] = experts


def forward(model: str, sizes: Sizes, moves: ParallelHooks, t: Arrays) -> jax.Array:
    """The result ``out`` of a model. ``t``: parameters and inputs by name."""
    return _FORWARD[model](sizes, moves, t)


def loss(model: str, t: Arrays, out: jax.Array) -> jax.Array:
    """The scalar loss of ``out``."""
    # The loss is computed in at least float32.
    out = out.astype(jnp.promote_types(out.dtype, jnp.float32))
    if MODELS[model].loss == "squares":
        return jnp.mean(jnp.square(out - t["target"]))
    # A one-hot contraction, as in MaxText. It works on logits sharded over the vocabulary without
    # an all-gather.
    wanted = jax.nn.one_hot(t["labels"], out.shape[-1], dtype=out.dtype)
    return jnp.mean(jax.nn.logsumexp(out, axis=-1) - jnp.sum(wanted * out, axis=-1))


def _linear(x: jax.Array, weight: jax.Array) -> jax.Array:
    """Multiply ``x`` by ``weight``, [out, in]."""
    return jnp.einsum("...i,oi->...o", x, weight)


def _mlp(sizes: Sizes, moves: ParallelHooks, t: Arrays) -> jax.Array:
    hidden = moves.at(_linear(t["x"], t["up.weight"]) + t["up.bias"], "row_hidden")
    return moves.at(_linear(jax.nn.relu(hidden), t["down.weight"]) + t["down.bias"], "row")


def _norm(x: jax.Array, weight: jax.Array) -> jax.Array:
    scale = jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + EPSILON)
    return x * scale * weight


def _rotated(x: jax.Array) -> jax.Array:
    """Apply rotary embeddings to ``x``, [b, s, heads, head], in pairs of head halves."""
    half = x.shape[-1] // 2
    # bfloat16 cannot represent positions in the thousands.
    wide = jnp.promote_types(x.dtype, jnp.float32)
    rates = THETA ** (-jnp.arange(half, dtype=wide) / half)
    angles = (jnp.arange(x.shape[1], dtype=wide)[:, None] * rates)[:, None, :]
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    one, other = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([one * cos - other * sin, other * cos + one * sin], axis=-1)


def _attention(
    sizes: Sizes,
    moves: ParallelHooks,
    t: Arrays,
    x: jax.Array,
    prefix: str = "",
    causal: bool = True,
) -> jax.Array:
    def projected(name: str) -> jax.Array:
        y = _linear(x, t[f"{prefix}{name}.weight"])
        return moves.at(y.reshape(*x.shape[:2], -1, sizes["head"]), "queries")

    q, k, v = projected("wq"), projected("wk"), projected("wv")
    mixed = moves.at(moves.attend(_rotated(q), _rotated(k), v, causal), "queries")
    out = _linear(mixed.reshape(*x.shape[:2], -1), t[f"{prefix}wo.weight"])
    return moves.at(out, "residual")


def _block(sizes: Sizes, moves: ParallelHooks, t: Arrays) -> jax.Array:
    def weighted(x: jax.Array, name: str, at: str) -> jax.Array:
        return moves.at(_linear(x, t[f"feed_forward.{name}.weight"]), at)

    n = moves.at(_norm(t["x"], t["attention_norm.weight"]), "normed")
    h = t["x"] + _attention(sizes, moves, t, n, "attention.")
    n = moves.at(_norm(h, t["ffn_norm.weight"]), "normed")
    hidden = jax.nn.silu(weighted(n, "w1", "hidden")) * weighted(n, "w3", "hidden")
    return h + weighted(hidden, "w2", "residual")


def _head(sizes: Sizes, moves: ParallelHooks, t: Arrays) -> jax.Array:
    h = moves.at(jnp.take(t["tok_embeddings.weight"], t["tokens"], axis=0), "residual")
    n = moves.at(_norm(h, t["norm.weight"]), "normed")
    return moves.at(_linear(n, t["output.weight"]), "logits")


def _moe(sizes: Sizes, moves: ParallelHooks, t: Arrays) -> jax.Array:
    return moves.experts(t["x"], t["router.weight"], t["experts.w1"], t["experts.w2"])


_FORWARD: dict[str, Callable[[Sizes, ParallelHooks, Arrays], jax.Array]] = {
    "mlp": _mlp,
    "attention": lambda sizes, moves, t: _attention(sizes, moves, t, t["x"]),
    "full-attention": lambda sizes, moves, t: _attention(sizes, moves, t, t["x"], causal=False),
    "block": _block,
    "head": _head,
    "moe": _moe,
}
