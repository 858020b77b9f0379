"""What does each model compute? Forward and loss in NumPy on one device; no adapter reads this.

Refuses to know layouts. A reader can check it against the papers: RMSNorm (arXiv 1910.07467),
rotary positions (2104.09864, halves of a head rotated as pairs), SwiGLU (2002.05202), grouped
queries (2305.13245), top-1 routing (2101.03961, without its capacity).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from cases.recipes.models import MODELS

Arrays = Mapping[str, NDArray[Any]]
Sizes = Mapping[str, int]

EPSILON = 1e-5
# The base of the rotary angles in Llama 3.
THETA = 500000.0


def forward(model: str, sizes: Sizes, tensors: Arrays) -> NDArray[Any]:
    """The result ``out`` for these parameters and inputs."""
    return _FORWARD[model](sizes, tensors)


def loss(model: str, sizes: Sizes, tensors: Arrays, out: NDArray[Any]) -> NDArray[Any]:
    """The loss of ``out``, which is differentiated."""
    if MODELS[model].loss == "squares":
        return np.asarray(np.mean((out - tensors["target"]) ** 2))
    labels = tensors["labels"][..., None]
    picked = np.take_along_axis(special.log_softmax(out, axis=-1), labels, axis=-1)
    return np.asarray(-np.mean(picked))


def _mlp(sizes: Sizes, t: Arrays) -> NDArray[Any]:
    hidden = np.maximum(t["x"] @ t["up.weight"].T + t["up.bias"], 0)
    out: NDArray[Any] = hidden @ t["down.weight"].T + t["down.bias"]
    return out


def _norm(x: NDArray[Any], weight: NDArray[Any]) -> NDArray[Any]:
    normed: NDArray[Any] = x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + EPSILON) * weight
    return normed


def _rotated(x: NDArray[Any]) -> NDArray[Any]:
    """[batch, seq, heads, head] with rotated halves of each head; angles grow along seq."""
    half = x.shape[-1] // 2
    rates = THETA ** (-np.arange(half) / half)
    angles = (np.arange(x.shape[1])[:, None] * rates)[:, None, :]
    one, other = x[..., :half], x[..., half:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([one * cos - other * sin, other * cos + one * sin], axis=-1)


def _attention(
    sizes: Sizes, t: Arrays, x: NDArray[Any], prefix: str = "", causal: bool = True
) -> NDArray[Any]:
    batch, seq, _ = x.shape
    heads, kv, head = sizes["heads"], sizes["kv"], sizes["head"]

    def projected(name: str, count: int) -> NDArray[Any]:
        return (x @ t[f"{prefix}{name}.weight"].T).reshape(batch, seq, count, head)

    q, k = _rotated(projected("wq", heads)), _rotated(projected("wk", kv))
    v = projected("wv", kv)
    # Query head h attends to key head h // (heads / kv).
    k, v = (np.repeat(one, heads // kv, axis=2) for one in (k, v))
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(head)
    if causal:
        scores = np.where(np.tril(np.ones((seq, seq), bool)), scores, -np.inf)
    mixed = np.einsum("bhqk,bkhd->bqhd", special.softmax(scores, axis=-1), v)
    out: NDArray[Any] = mixed.reshape(batch, seq, heads * head) @ t[f"{prefix}wo.weight"].T
    return out


def _block(sizes: Sizes, t: Arrays) -> NDArray[Any]:
    h = t["x"] + _attention(sizes, t, _norm(t["x"], t["attention_norm.weight"]), "attention.")
    n = _norm(h, t["ffn_norm.weight"])
    one, three = (n @ t[f"feed_forward.{name}.weight"].T for name in ("w1", "w3"))
    out: NDArray[Any] = h + (one * special.expit(one) * three) @ t["feed_forward.w2.weight"].T
    return out


def _head(sizes: Sizes, t: Arrays) -> NDArray[Any]:
    h = _norm(t["tok_embeddings.weight"][t["tokens"]], t["norm.weight"])
    out: NDArray[Any] = h @ t["output.weight"].T
    return out


def chosen_experts(t: Arrays) -> NDArray[Any]:
    """The expert that each token goes to: [batch, seq]."""
    chosen: NDArray[Any] = np.argmax(t["x"] @ t["router.weight"].T, axis=-1)
    return chosen


def _moe(sizes: Sizes, t: Arrays) -> NDArray[Any]:
    probabilities = special.softmax(t["x"] @ t["router.weight"].T, axis=-1)
    chosen = chosen_experts(t)
    hidden = np.maximum(np.einsum("bsd,ehd->bseh", t["x"], t["experts.w1"]), 0)
    every = np.einsum("bseh,edh->bsed", hidden, t["experts.w2"])
    one = np.take_along_axis(every, chosen[..., None, None], axis=2)[..., 0, :]
    out: NDArray[Any] = one * np.take_along_axis(probabilities, chosen[..., None], axis=-1)
    return out


_FORWARD: dict[str, Callable[[Sizes, Arrays], NDArray[Any]]] = {
    "mlp": _mlp,
    "attention": lambda sizes, t: _attention(sizes, t, t["x"]),
    "full-attention": lambda sizes, t: _attention(sizes, t, t["x"], causal=False),
    "block": _block,
    "head": _head,
    "moe": _moe,
}
