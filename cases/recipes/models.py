"""Which models do recipes run? Names, shapes and roles of dims. Refuses to know meshes."""

from __future__ import annotations

from cases.recipes.recipe import Model, ModelTensor, Role

_X = ModelTensor("x", ("batch", "seq", "dim"), ("batch", "sequence", ""))
_TARGET = ModelTensor("target", ("batch", "seq", "dim"), ("batch", "sequence", ""))
_OUT = ModelTensor("out", ("batch", "seq", "dim"), ("batch", "sequence", ""))


def _weight(name: str, rows: str, columns: str, split: int | None) -> ModelTensor:
    """A weight of ``torch.nn.Linear``, out by in. ``split`` is the tensor-parallel dim."""
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
    # Linear, ReLU, Linear, as in the lesson.
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
    # Causal, with rotary positions and several query heads for each key head.
    "attention": Model("attention", _ATTENTION, _attention(""), (_X, _TARGET), _OUT),
    # The same without the causal mask.
    "full-attention": Model("full-attention", _ATTENTION, _attention(""), (_X, _TARGET), _OUT),
    # A Llama layer: h = x + attention(norm(x)), n = norm(h), out = h + w2(silu(w1 n) * w3 n).
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
    # Embedding, norm, output weights (vocabulary by dim), cross entropy.
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
    # Each token x goes to the expert with its largest router logit. The result is w2(relu(w1 x))
    # times the router's probability of that expert. No token is dropped.
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
