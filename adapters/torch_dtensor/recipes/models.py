"""What are the models of recipes in torch? Plain modules, which know nothing of devices.

Each computes what `cases.recipes.meaning` says, with parameters of the same names. If a split gives
a size another value on each rank, it is read from what arrives (``-1``), as in torchtitan's models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adapters.torch_dtensor.compat import DTensor, RMSNorm

EPSILON = 1e-5
# Base of the rotary angles, as Llama 3 has it.
THETA = 500000.0

Sizes = Mapping[str, int]


class Mlp(nn.Module):
    """Linear, ReLU, Linear."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.up = nn.Linear(sizes["dim"], sizes["hidden"])
        self.down = nn.Linear(sizes["hidden"], sizes["dim"])

    def forward(self, x: Tensor) -> Tensor:
        """Of [batch, dim]."""
        out: Tensor = self.down(torch.relu(self.up(x)))
        return out


def rotary_angles(start: int, stop: int, head: int) -> Tensor:
    """Rotary angles of the places from ``start`` to ``stop``: [places, head / 2], float64."""
    half = head // 2
    rates = THETA ** (-torch.arange(half, dtype=torch.float64) / half)
    return torch.arange(start, stop, dtype=torch.float64)[:, None] * rates


def _rotated(x: Tensor, turns: Tensor) -> Tensor:
    """Of [batch, seq, heads, head]: halves of each head as pairs, turned by [seq, head / 2]."""
    one, other = x.chunk(2, dim=-1)
    cos, sin = (wave(turns)[:, None, :].to(x.dtype) for wave in (torch.cos, torch.sin))
    return torch.cat([one * cos - other * sin, other * cos + one * sin], dim=-1)


class CoreAttention(nn.Module):
    """Values mixed by the weights of queries and keys; if causal, no later ones. No parameters."""

    def __init__(self, causal: bool):
        super().__init__()
        self.causal = causal

    def forward(self, q: Tensor, k: Tensor, v: Tensor, start: int | None = None) -> Tensor:
        """Of [batch, seq, heads, head] each; k and v may have fewer heads, one for a group of q's.

        ``start``: where the queries begin among the keys, if there are more keys.
        """
        group = q.shape[2] // k.shape[2]
        k, v = (one.repeat_interleave(group, dim=2) for one in (k, v))
        q, k, v = (one.transpose(1, 2) for one in (q, k, v))
        if start is None or not self.causal:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        else:
            places = torch.arange(start, start + q.shape[2], device=q.device)[:, None]
            seen = places >= torch.arange(k.shape[2], device=q.device)
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return mixed.transpose(1, 2)


class Attention(nn.Module):
    """Attention with rotary positions, and fewer key heads than query heads."""

    def __init__(self, sizes: Sizes, causal: bool = True):
        super().__init__()
        dim, self.head = sizes["dim"], sizes["head"]
        self.wq = nn.Linear(dim, sizes["heads"] * self.head, bias=False)
        self.wk = nn.Linear(dim, sizes["kv"] * self.head, bias=False)
        self.wv = nn.Linear(dim, sizes["kv"] * self.head, bias=False)
        self.wo = nn.Linear(sizes["heads"] * self.head, dim, bias=False)
        self.mix = CoreAttention(causal)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        """Of [batch, seq, dim] and the `rotary_angles` of these places."""
        q, k, v = (part(x).unflatten(-1, (-1, self.head)) for part in (self.wq, self.wk, self.wv))
        mixed = self.mix(_rotated(q, turns), _rotated(k, turns), v)
        out: Tensor = self.wo(mixed.flatten(2))
        return out


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        dim, hidden = sizes["dim"], sizes["hidden"]
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Of [batch, seq, dim]."""
        out: Tensor = self.w2(F.silu(self.w1(x)) * self.w3(x))
        return out


class Block(nn.Module):
    """A Llama layer."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.attention_norm = RMSNorm(sizes["dim"], EPSILON)
        self.attention = Attention(sizes)
        self.ffn_norm = RMSNorm(sizes["dim"], EPSILON)
        self.feed_forward = FeedForward(sizes)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        """Of [batch, seq, dim] and the `rotary_angles` of all places of the whole sequence."""
        h = x + self.attention(self.attention_norm(x), turns)
        out: Tensor = h + self.feed_forward(self.ffn_norm(h))
        return out


class Head(nn.Module):
    """Embedding, norm, output weights over the vocabulary."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.tok_embeddings = nn.Embedding(sizes["vocab"], sizes["dim"])
        self.norm = RMSNorm(sizes["dim"], EPSILON)
        self.output = nn.Linear(sizes["dim"], sizes["vocab"], bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Of [batch, seq]."""
        out: Tensor = self.output(self.norm(self.tok_embeddings(tokens)))
        return out


class Experts(nn.Module):
    """Linear, ReLU, Linear of every expert that is here."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        experts, dim, hidden = sizes["experts"], sizes["dim"], sizes["hidden"]
        self.w1 = nn.Parameter(torch.empty(experts, hidden, dim))
        self.w2 = nn.Parameter(torch.empty(experts, dim, hidden))

    def forward(self, tokens: Tensor, counts: Tensor) -> Tensor:
        """Of [tokens, dim], sorted by expert, and how many each expert has."""
        w1, w2 = (w.to_local() if isinstance(w, DTensor) else w for w in (self.w1, self.w2))
        parts = torch.split(tokens, counts.tolist())
        return torch.cat(
            [torch.relu(part @ up.T) @ down.T for part, up, down in zip(parts, w1, w2, strict=True)]
        )


class Moe(nn.Module):
    """Each token to the expert that its router likes best, and back times the probability."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.router = nn.Linear(sizes["dim"], sizes["experts"], bias=False)
        self.experts = Experts(sizes)

    def forward(self, x: Tensor) -> Tensor:
        """Of [batch, seq, dim]."""
        tokens = x.flatten(0, 1)
        scores = self.router(tokens)
        gate, chosen = torch.softmax(scores, dim=-1).max(dim=-1)
        order = torch.argsort(chosen, stable=True)
        counts = torch.bincount(chosen, minlength=scores.shape[-1])
        sorted_out = self.experts(tokens[order], counts)
        out = torch.empty_like(sorted_out).index_copy(0, order, sorted_out)
        return out.view_as(x) * gate.view(*x.shape[:-1], 1)


# By the names of `cases.recipes.MODELS`.
MODULES: dict[str, Callable[[Sizes], nn.Module]] = {
    "mlp": Mlp,
    "attention": Attention,
    "full-attention": lambda sizes: Attention(sizes, causal=False),
    "block": Block,
    "head": Head,
    "moe": Moe,
}
