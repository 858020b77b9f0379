"""What are the models of recipes in torch? They are plain modules without knowledge of devices.

Each computes what `cases.recipes.meaning` says, with parameters of the same names. A size that
differs between ranks is inferred from the input (``-1``), as in the models of torchtitan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adapters.torch_dtensor.compat import DTensor, RMSNorm

EPSILON = 1e-5
# The base of the rotary angles, as in Llama 3.
THETA = 500000.0

Sizes = Mapping[str, int]


class Mlp(nn.Module):
    """Linear, ReLU, Linear."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.up = nn.Linear(sizes["dim"], sizes["hidden"])
        self.down = nn.Linear(sizes["hidden"], sizes["dim"])

    def forward(self, x: Tensor) -> Tensor:
        """``x``: [batch, dim]."""
        out: Tensor = self.down(torch.relu(self.up(x)))
        return out


def rotary_angles(start: int, stop: int, head: int) -> Tensor:
    """Rotary angles of positions ``start`` to ``stop`` - 1: [positions, head / 2], float64."""
    half = head // 2
    rates = THETA ** (-torch.arange(half, dtype=torch.float64) / half)
    return torch.arange(start, stop, dtype=torch.float64)[:, None] * rates


def _rotated(x: Tensor, turns: Tensor) -> Tensor:
    """Rotate ``x``, [batch, seq, heads, head], in pairs of head halves, by [seq, head / 2]."""
    one, other = x.chunk(2, dim=-1)
    cos, sin = (wave(turns)[:, None, :].to(x.dtype) for wave in (torch.cos, torch.sin))
    return torch.cat([one * cos - other * sin, other * cos + one * sin], dim=-1)


class CoreAttention(nn.Module):
    """Scaled dot-product attention without parameters. Causal attention masks later keys."""

    def __init__(self, causal: bool):
        super().__init__()
        self.causal = causal

    def forward(self, q: Tensor, k: Tensor, v: Tensor, start: int | None = None) -> Tensor:
        """``q``, ``k``, ``v``: [batch, seq, heads, head]. Groups of query heads share a key head.

        ``start``: the position of the first query among the keys, if there are more keys.
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
        """``x``: [batch, seq, dim]. ``turns``: the `rotary_angles` of these positions."""
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
        """``x``: [batch, seq, dim]."""
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
        """``x``: [batch, seq, dim]. ``turns``: the `rotary_angles` of the whole sequence."""
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
        """``tokens``: [batch, seq]."""
        out: Tensor = self.output(self.norm(self.tok_embeddings(tokens)))
        return out


class Experts(nn.Module):
    """Linear, ReLU, Linear for each expert on this rank."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        experts, dim, hidden = sizes["experts"], sizes["dim"], sizes["hidden"]
        self.w1 = nn.Parameter(torch.empty(experts, hidden, dim))
        self.w2 = nn.Parameter(torch.empty(experts, dim, hidden))

    def forward(self, tokens: Tensor, counts: Tensor) -> Tensor:
        """``tokens``: [tokens, dim], sorted by expert. ``counts``: the tokens of each expert."""
        w1, w2 = (w.to_local() if isinstance(w, DTensor) else w for w in (self.w1, self.w2))
        parts = torch.split(tokens, counts.tolist())
        return torch.cat(
            [torch.relu(part @ up.T) @ down.T for part, up, down in zip(parts, w1, w2, strict=True)]
        )


class Moe(nn.Module):
    """Mixture of experts: each token goes to its top expert, scaled by the router probability."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.router = nn.Linear(sizes["dim"], sizes["experts"], bias=False)
        self.experts = Experts(sizes)

    def forward(self, x: Tensor) -> Tensor:
        """``x``: [batch, seq, dim]."""
        tokens = x.flatten(0, 1)
        scores = self.router(tokens)
        gate, chosen = torch.softmax(scores, dim=-1).max(dim=-1)
        order = torch.argsort(chosen, stable=True)
        counts = torch.bincount(chosen, minlength=scores.shape[-1])
        sorted_out = self.experts(tokens[order], counts)
        out = torch.empty_like(sorted_out).index_copy(0, order, sorted_out)
        return out.view_as(x) * gate.view(*x.shape[:-1], 1)


# The keys are those of `cases.recipes.MODELS`.
MODULES: dict[str, Callable[[Sizes], nn.Module]] = {
    "mlp": Mlp,
    "attention": Attention,
    "full-attention": lambda sizes: Attention(sizes, causal=False),
    "block": Block,
    "head": Head,
    "moe": Moe,
}
