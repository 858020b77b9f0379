"""Which models do recipes run? Their parameters and inputs, by name, shape and what each dim is."""

from __future__ import annotations

from cases.recipes.recipe import Model, ModelTensor, Role

_X = ModelTensor("x", ("batch", "seq", "dim"), ("batch", "sequence", ""))
_TARGET = ModelTensor("target", ("batch", "seq", "dim"), ("batch", "sequence", ""))
_OUT = ModelTensor("out", ("batch", "seq", "dim"), ("batch", "sequence", ""))


def _weight(name: str, rows: str, columns: str, split: int | None) -> ModelTensor:
    """A weight as ``torch.nn.Linear`` has it: out by in; ``split`` is the tensor-parallel dim."""
    roles: list[Role] = ["", ""]
    if split is not None:
        roles[split] = "tensor"
    return ModelTensor(name, (rows, columns), tuple(roles), gathered=True)


def _attention(prefix: str) -> tuple[ModelTensor, ...]:
    return (
        _weight(f"{prefix}wq.weight", "heads*head", "dim", 0),
        _weight(f"{prefix}wk.weight", "kv*head", "dim", 0),
        _weight(f"{prefix}wv.weight", "kv*head", "dim", 0),
        _weight(f"{prefix}wo.weight", "dim", "heads*head", 1),
    )


def _norm(name: str) -> ModelTensor:
    return ModelTensor(name, ("dim",), ("",), gathered=True)


_ATTENTION = {"batch": 4, "seq": 8, "dim": 8, "heads": 8, "kv": 4, "head": 2}

MODELS = {
    # Linear, ReLU, Linear: the lesson's.
    "mlp": Model(
        "mlp",
        {"batch": 4, "dim": 4, "hidden": 8},
        (
            _weight("up.weight", "hidden", "dim", 0),
            ModelTensor("up.bias", ("hidden",), ("tensor",), gathered=True),
            _weight("down.weight", "dim", "hidden", 1),
            ModelTensor("down.bias", ("dim",), ("",), gathered=True),
        ),
        (
            ModelTensor("x", ("batch", "dim"), ("batch", "")),
            ModelTensor("target", ("batch", "dim"), ("batch", "")),
        ),
        ModelTensor("out", ("batch", "dim"), ("batch", "")),
    ),
    # Causal, rotary positions, groups of query heads on each key head.
    "attention": Model("attention", _ATTENTION, _attention(""), (_X, _TARGET), _OUT),
    # The same, except that every query looks at every key.
    "full-attention": Model("full-attention", _ATTENTION, _attention(""), (_X, _TARGET), _OUT),
    # A Llama layer: x + attention(norm(x)), then h + w2(silu(w1 n) * w3 n) of n = norm(h).
    "block": Model(
        "block",
        {**_ATTENTION, "hidden": 16},
        (
            _norm("attention_norm.weight"),
            *_attention("attention."),
            _norm("ffn_norm.weight"),
            _weight("feed_forward.w1.weight", "hidden", "dim", 0),
            _weight("feed_forward.w2.weight", "dim", "hidden", 1),
            _weight("feed_forward.w3.weight", "hidden", "dim", 0),
        ),
        (_X, _TARGET),
        _OUT,
    ),
    # Embedding, norm, output weights over the vocabulary, cross entropy.
    "head": Model(
        "head",
        {"batch": 4, "seq": 4, "dim": 8, "vocab": 16},
        (
            _weight("tok_embeddings.weight", "vocab", "dim", 0),
            _norm("norm.weight"),
            _weight("output.weight", "vocab", "dim", 0),
        ),
        (
            ModelTensor("tokens", ("batch", "seq"), ("batch", "sequence"), values="vocab"),
            ModelTensor("labels", ("batch", "seq"), ("batch", "sequence"), values="vocab"),
        ),
        ModelTensor("out", ("batch", "seq", "vocab"), ("batch", "sequence", "tensor")),
        "cross entropy",
    ),
    # Each token goes to the expert of its largest router logit, and comes back times the
    # router's probability of that expert: w2(relu(w1 x)). No token is dropped.
    "moe": Model(
        "moe",
        {"batch": 4, "seq": 4, "dim": 4, "hidden": 8, "experts": 4},
        (
            ModelTensor("router.weight", ("experts", "dim"), ("", "")),
            ModelTensor("experts.w1", ("experts", "hidden", "dim"), ("expert", "", "")),
            ModelTensor("experts.w2", ("experts", "dim", "hidden"), ("expert", "", "")),
        ),
        (_X, _TARGET),
        _OUT,
    ),
}
