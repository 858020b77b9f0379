"""Which collectives must a parallel plan issue? Formulas in the sizes of the model and the mesh.

They come from the papers of the plans. Refuses to know what a framework does. Only the judge
reads them, never an adapter.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from cases.layout import index_ranges, local_shape
from cases.model import CollectiveKind, Layout, Mesh, Pass
from cases.recipes.layouts import parameter_layout
from cases.recipes.models import MODELS
from cases.recipes.recipe import RecipeKind


class ContractTerm(msgspec.Struct, frozen=True):
    """Some collectives of one kind, over the same axes, in one pass.

    ``count`` and ``bytes`` are formulas over the model's sizes, the mesh's axes, and these names.
    ``itemsize``. ``wide``: the itemsize of the loss, at least that of float32. ``weights``: the
    elements of all FSDP parameters on a device, split by tensor parallelism only. ``arrivals``:
    the tokens at the experts of the busiest device. ``bytes`` adds up all local operands.
    ``spare``: the term only saves memory or learns sizes, and a right plan may leave it out.
    """

    pass_: Pass
    kind: CollectiveKind
    axes: tuple[str, ...]
    count: str
    bytes: str
    what: str
    spare: bool = False


class Contract(msgspec.Struct, frozen=True):
    """The collectives that a recipe must issue, and the paper that says so."""

    terms: tuple[ContractTerm, ...]
    source: str


class ExpectedCollectives(msgspec.Struct, frozen=True):
    """The numbers of a term on one mesh."""

    term: ContractTerm
    count: int
    bytes: int


_MEGATRON = "https://arxiv.org/abs/1909.08053"
_SEQUENCE = "https://arxiv.org/abs/2205.05198"
_FSDP = "https://arxiv.org/abs/2304.11277"
_TITAN = "https://arxiv.org/abs/2410.06511"
_GSHARD = "https://arxiv.org/abs/2006.16668"
_LLAMA = "https://arxiv.org/abs/2407.21783"
_RING = "https://arxiv.org/abs/2310.01889"


def _sums(axis: str, bytes_: str, count: int = 1) -> tuple[ContractTerm, ...]:
    """Megatron's g sums partial results forward, and its f sums an input's gradient backward."""
    n = str(count)
    return (
        ContractTerm("forward", "all-reduce", (axis,), n, bytes_,
                     "results of row-parallel weights"),
        ContractTerm("backward", "all-reduce", (axis,), n, bytes_,
             "gradients of the inputs of column-parallel weights"),
    )  # fmt: skip


def _sequence(rows: str) -> tuple[ContractTerm, ...]:
    """The terms of a block whose norms and residuals are split by the sequence along tp."""
    whole, part = f"2 * {rows} * seq * dim * itemsize", f"2 * {rows} * seq / tp * dim * itemsize"
    return (
        ContractTerm("forward", "all-gather", ("tp",), "2", part, "inputs of attention and MLP"),
        ContractTerm("forward", "reduce-scatter", ("tp",), "2", whole, "their outputs"),
        ContractTerm("backward", "all-gather", ("tp",), "2", part,
                     "the gradients of their outputs"),
        ContractTerm("backward", "reduce-scatter", ("tp",), "2", whole,
             "the gradients of their inputs"),
        ContractTerm("backward", "all-reduce", ("tp",), "2", "2 * dim * itemsize",
             "the gradients of the two norms' weights, from each part of the sequence"),
    )  # fmt: skip


def _gathered(axis: str, more: tuple[ContractTerm, ...] = ()) -> tuple[ContractTerm, ...]:
    """The terms of parameters that are sharded along ``axis`` and gathered for use."""
    part = f"weights / {axis} * itemsize"
    return (
        ContractTerm("forward", "all-gather", (axis,), "1", part, "all parameters, for use"),
        ContractTerm("backward", "all-gather", (axis,), "1", part,
             "all parameters again, if they were freed to save memory", spare=True),
        ContractTerm("backward", "reduce-scatter", (axis,), "1", "weights * itemsize",
             "the gradients of all parameters"),
        *more,
    )  # fmt: skip


def _loss(*axes: str) -> ContractTerm:
    return ContractTerm("forward", "all-reduce", axes, "1", "wide", "the loss that is reported")


_ACTIVATION = "batch * seq * dim * itemsize"
_KV = "2 * batch * seq / cp * kv * head * itemsize"
_TOKENS = "(batch / ep * seq + arrivals) * dim * itemsize"

CONTRACTS = {
    "mlp-tp": Contract(_sums("tp", "batch * dim * itemsize"), _MEGATRON),
    "attention-tp": Contract(_sums("tp", _ACTIVATION), _MEGATRON),
    "block-tp": Contract(_sums("tp", f"2 * {_ACTIVATION}", 2), _MEGATRON),
    "block-sp": Contract((*_sequence("batch"), _loss("tp")), _SEQUENCE),
    "block-fsdp": Contract((*_gathered("fsdp"), _loss("fsdp")), _FSDP),
    "block-hsdp": Contract(
        (
            *_gathered("fsdp"),
            ContractTerm("backward", "all-reduce", ("dp_replicate",), "1",
                 "weights / fsdp * itemsize",
                 "the shards of the gradients over the replicas"),
            _loss("dp_replicate", "fsdp"),
        ),
        _FSDP,
    ),
    "block-fsdp-tp": Contract(
        (*_gathered("fsdp"), *_sequence("batch / fsdp"), _loss("fsdp", "tp")), _TITAN
    ),
    "head-tp": Contract(
        (
            *_sums("tp", _ACTIVATION),
            ContractTerm("forward", "all-reduce", ("tp",), "3", "3 * batch * seq * wide",
                 "per token: the largest logit, the sum of exponentials, the picked logit"),
        ),
        _MEGATRON,
    ),
    "moe-ep": Contract(
        (
            ContractTerm("forward", "all-to-all", ("ep",), "1", "experts * 8",
                 "the number of tokens for each expert as int64", spare=True),
            ContractTerm("forward",
                     "all-to-all", ("ep",), "2", _TOKENS, "tokens to experts and back"),
            ContractTerm("backward", "all-to-all", ("ep",), "2", _TOKENS, "their gradients"),
            ContractTerm("backward", "all-reduce", ("ep",), "1", "experts * dim * itemsize",
                 "the gradient of the router"),
            _loss("ep"),
        ),
        _GSHARD,
    ),
    "attention-cp": Contract(
        (
            *_gathered("cp"),
            ContractTerm("forward", "all-gather", ("cp",), "2", _KV, "keys and values"),
            ContractTerm("backward", "reduce-scatter", ("cp",), "2", f"cp * {_KV}",
                         "their gradients"),
            _loss("cp"),
        ),
        _LLAMA,
    ),
    "attention-ring": Contract(
        (
            *_gathered("cp"),
            ContractTerm("forward", "collective-permute", ("cp",), "2 * (cp - 1)",
                 f"(cp - 1) * {_KV}",
                 "keys and values from neighbour to neighbour"),
            ContractTerm("backward", "collective-permute", ("cp",), "2 * (cp - 1)",
                 f"(cp - 1) * {_KV}",
                 "their gradients in the other direction"),
            ContractTerm("backward", "collective-permute", ("cp",), "2 * (cp - 1)",
                 f"(cp - 1) * {_KV}",
                 "keys and values again, if they were freed", spare=True),
            _loss("cp"),
        ),
        _RING,
    ),
}  # fmt: skip


def expected_collectives(
    row: RecipeKind, sizes: dict[str, int], mesh: Mesh, itemsize: int, arrivals: int | None = None
) -> tuple[ExpectedCollectives, ...]:
    """A recipe's terms on a mesh, without those that only use axes of size 1.

    ``arrivals``: None if tokens arrive evenly at the experts.

    Raises:
        ValueError: a formula does not give an integer.
    """
    names = {
        **sizes,
        **dict(mesh.axes),
        "itemsize": itemsize,
        "wide": max(itemsize, 4),
        "weights": _weights(row, sizes, mesh),
    }
    if row.expert:
        even = sizes["batch"] * sizes["seq"] // mesh[row.expert]
        names["arrivals"] = even if arrivals is None else arrivals
    found = []
    for term in CONTRACTS[row.name].terms:
        if any(mesh[axis] > 1 for axis in term.axes):
            found.append(
                ExpectedCollectives(term, _number(term.count, names), _number(term.bytes, names))
            )
    return tuple(found)


def _number(formula: str, names: dict[str, int]) -> int:
    value: Any = eval(formula, {"__builtins__": {}}, dict(names))
    if value != int(value):
        raise ValueError(f"{formula} is {value}")
    return int(value)


def _weights(row: RecipeKind, sizes: dict[str, int], mesh: Mesh) -> int:
    """The elements that a device holds of all sharded parameters once they are gathered."""
    total = 0
    for tensor in MODELS[row.model].parameters:
        if tensor.gathered:
            dims = tuple(
                tuple(axis for axis in axes if axis not in row.shard)
                for axes in parameter_layout(row, tensor, sizes, mesh).dims
            )
            total += math.prod(
                local_shape(index_ranges(mesh, Layout(dims), tensor.sizes(sizes))[0])
            )
    return total
