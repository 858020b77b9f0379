"""On which operands is each op tried? They are small and distinct, without ties and kinks.

One row for each op and way to call it. An operand has a kind of values, and the numbers of a kind
depend only on the shape. Refuses to know layouts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from cases.arrays import numpy_dtype
from cases.model import Param

Value = NDArray[Any]


class Operand(msgspec.Struct, frozen=True):
    """A tensor operand: its global shape, the kind of its values, its dtype."""

    shape: tuple[int, ...]
    kind: str = "small"
    dtype: str = "float32"


class Sample(msgspec.Struct, frozen=True):
    """One way to call an op. ``name``: the op, with a word for the way if there are several.

    ``operands``: tensors and numbers, in the order of the op's arguments. ``resizes``: it is also
    valid with another first dim, for uneven and empty shards (see `resized`).
    """

    name: str
    op: str
    operands: tuple[Operand | float | int, ...]
    params: dict[str, Param] = {}
    resizes: bool = True


def _walk(count: int, times: int = 7, plus: int = 3) -> Value:
    """0 … count - 1, each once and not sorted."""
    while math.gcd(times, count) > 1:
        times += 2 if times % 2 else 1
    return (np.arange(count) * times + plus) % max(count, 1)


def _small(count: int) -> Value:
    # Multiples of 1/8, plus 3/16: distinct, not 0, and with a sum that is not 0.
    return (_walk(count) - count // 2) / 8 + 3 / 16


def _other(count: int) -> Value:
    # No element differs from one of `_small` by an integer.
    return (_walk(count, 11, 5) - count // 3) / 8 + 1 / 32


def _definite(shape: tuple[int, ...]) -> Value:
    """Distinct symmetric positive definite matrices."""
    n = shape[-1]
    off = _walk(math.prod(shape)).reshape(shape) % 5 / 8
    made: Value = off + np.swapaxes(off, -1, -2) + 4 * np.eye(n)
    return made + np.arange(math.prod(shape[:-2])).reshape(*shape[:-2], 1, 1) * np.eye(n)


OPERAND_KINDS: dict[str, Callable[[int], Value]] = {
    "small": _small,
    "other": _other,
    "whole": lambda count: _walk(count) - count // 3,
    "ordinal": lambda count: np.arange(count) + 1,
    "few": lambda count: _walk(count) % 3 + 1,
    "positive": lambda count: (_walk(count) + 2) / 16,
    "unit": lambda count: (_walk(count) + 0.5) / max(count, 1),
    "share": lambda count: (_walk(count, 11, 5) + 0.5) / max(count, 1),
    "mask": lambda count: np.floor(np.arange(count) * 0.6180339887) % 2 == 0,
    "sparse": lambda count: _walk(count) % 5 == 0,
    "holes": lambda count: np.where(_walk(count) % 4 == 0, np.nan, _small(count)),
}


def operand_values(operand: Operand) -> Value:
    """The global array of an operand.

    Kinds with a number: "below 4" has integers from 0 to 3. "distinct 8" repeats none of its 8
    integers until all are used. "classes 4" also has -100 for ignored rows. "start 3" is 3.
    """
    kind, _, number = operand.kind.partition(" ")
    count = math.prod(operand.shape)
    made: Value
    match kind:
        case "below":
            made = _walk(count) * 3 % int(number)
        case "distinct":
            made = (np.arange(count) * 3 + 1) % int(number)
        case "classes":
            made = np.where(np.arange(count) % 4 == 1, -100, np.arange(count) * 3 % int(number))
        case "start":
            made = np.full(operand.shape, int(number))
        case "definite":
            made = _definite(operand.shape)
        case _:
            made = OPERAND_KINDS[kind](count)
    return made.reshape(operand.shape).astype(numpy_dtype(operand.dtype))


def resized(sample: Sample, size: int) -> Sample:
    """The sample with another size for all first dims of 8."""
    made = []
    for one in sample.operands:
        if isinstance(one, Operand) and one.shape and one.shape[0] == 8:
            one = msgspec.structs.replace(one, shape=(size, *one.shape[1:]))
        made.append(one)
    return msgspec.structs.replace(sample, operands=tuple(made))


_X, _Y = Operand((8, 4)), Operand((8, 4), "other")
_ROW = Operand((4,), "other")
_B, _C = Operand((8, 4), "mask", "bool"), Operand((8, 4), "sparse", "bool")
_W = Operand((8, 4), "whole")


def _all(names: str, *operands: Operand | float, **params: Param) -> tuple[Sample, ...]:
    return tuple(Sample(name, name, operands, params) for name in names.split())


def _one(name: str, *operands: Operand | float, **params: Param) -> Sample:
    return Sample(name, name.partition(".")[0], operands, params)


def _fixed(name: str, *operands: Operand | float, **params: Param) -> Sample:
    return msgspec.structs.replace(_one(name, *operands, **params), resizes=False)


_POINTWISE = (
    *_all("add subtract multiply divide maximum minimum atan2 hypot logaddexp", _X, _Y),
    *_all("less less_equal greater greater_equal", _X, _Y),
    *_all("equal not_equal remainder floor_divide", _W, Operand((8, 4), "few")),
    *_all("logical_and logical_or logical_xor", _B, _C),
    _one("power", Operand((8, 4), "positive"), _Y),
    _one("add.row", _X, _ROW),
    _one("multiply.row", _X, _ROW),
    _one("add.number", _X, 2.5),
    _one("subtract.number-left", 2.5, _X),
    _one("multiply.number", _X, -3),
    _one("divide.number", _X, 4),
    _one("divide.number-left", 3, _X),
    _one("maximum.number", _X, 0.5),
    _one("power.number", _X, 2),
    _one("remainder.number", _W, 3),
    _one("greater.number", _X, 0.5),
    _one("equal.number", _W, 2),
    *_all("negative abs square sign sin cos tanh sigmoid erf relu gelu silu softplus", _X),
    *_all("exp expm1", _X),
    *_all("floor ceil round reciprocal isfinite", _X),
    *_all("log sqrt rsqrt log1p", Operand((8, 4), "positive")),
    _one("isnan", Operand((8, 4), "holes")),
    _one("logical_not", _B),
    _one("clip", _X, min=-1, max=1),
    _one("clip.low", _X, min=0),
    _one("astype.int32", _X, dtype="int32"),
    _one("astype.float64", _X, dtype="float64"),
    _one("astype.bfloat16", _W, dtype="bfloat16"),
    _one("astype.bool", _W, dtype="bool"),
    _one("where", _B, _X, _Y),
    _one("where.number", _B, _X, 0),
)  # fmt: skip

_REDUCTIONS = (
    *_all("sum mean max min var std vector_norm logsumexp", _X),
    _one("prod", Operand((8, 4), "few")),
    *(_one(f"{name}.rows", _X, axis=0) for name in
      ("sum", "mean", "max", "min", "var", "std", "logsumexp", "argmax", "argmin")),
    *(_one(f"{name}.kept", _X, axis=1, keepdims=True) for name in
      ("sum", "mean", "max", "var", "logsumexp", "argmax")),
    _one("prod.rows", Operand((8, 4), "few"), axis=0),
    _one("argmax", _X),
    _one("max_with_index", _X, axis=1),
    _one("vector_norm.one", _X, ord=1),
    _one("vector_norm.inf", _X, ord="inf"),
    _one("vector_norm.rows", _X, ord=2, axis=0),
    _one("var.sample", _X, axis=1, correction=1),
    *_all("any all", _B),
    _one("any.rows", _C, axis=0),
    _one("all.columns", _B, axis=1),
    _one("count_nonzero", _B),
    _one("sum.int", Operand((8, 4), "whole", "int32")),
    _one("sum.bool", _B, axis=0),
)  # fmt: skip

# With four dims, torch 2.13 searches for layouts for minutes.
_QKV = tuple(Operand((4, 4, 4), kind) for kind in ("unit", "share", "few"))

_CONTRACTIONS = (
    _one("matmul", Operand((8, 4), "whole"), Operand((4, 8), "few")),
    _one("matmul.batched", Operand((4, 4, 8)), Operand((4, 8, 4), "other")),
    _fixed("matmul.shared", Operand((4, 4, 8)), Operand((8, 4), "other")),
    _one("matmul.vector", Operand((8, 4)), Operand((4,), "other")),
    _one("einsum", Operand((8, 4)), Operand((8, 4), "other"), subscripts="mk,nk->mn"),
    _one("linear", Operand((8, 4)), Operand((8, 4), "other")),
    _one("linear.bias", Operand((8, 4)), Operand((4, 4), "other"), _ROW),
    _one("outer", Operand((8,)), Operand((4,), "other")),
    _one("addmm", Operand((8, 4)), Operand((8, 4), "other"), Operand((4, 4), "whole")),
    _one("vecdot", _X, _Y),
    _fixed("conv1d", Operand((4, 4, 8)), Operand((4, 4, 3), "other")),
    _fixed("conv1d.padded", Operand((4, 4, 8)), Operand((4, 4, 3), "other"), padding=1),
    _fixed("conv2d", Operand((4, 4, 4, 4), "whole"), Operand((4, 4, 2, 2), "few")),
    _fixed("conv2d.strided", Operand((4, 2, 4, 8), "whole"), Operand((4, 2, 2, 2), "few"),
           stride=2),
    _fixed("scaled_dot_product_attention", *_QKV),
    _fixed("scaled_dot_product_attention.causal", *_QKV, causal=True),
)  # fmt: skip

_SHAPES = (
    _fixed("reshape.merge", _X, shape=[32]),
    _fixed("reshape.split", _X, shape=[2, 4, 4]),
    _fixed("reshape.across", _X, shape=[4, 8]),
    _one("flatten", _X),
    _one("flatten.tail", Operand((8, 4, 2)), start=1),
    _one("permute_dims", Operand((8, 4, 4)), axes=[2, 0, 1]),
    _one("matrix_transpose", _X),
    _one("expand_dims", _X, axis=1),
    _one("squeeze", Operand((8, 1, 4)), axis=1),
    _one("broadcast_to", _ROW, shape=[8, 4]),
    _fixed("split", _X, sections=2, part=1, axis=0),
    _one("chunk", _X, chunks=4, part=0, axis=0),
    _one("concat", _X, _Y, axis=0),
    _one("concat.columns", _X, _Y, axis=1),
    _one("stack", _X, _Y, axis=0),
    _one("flip", _X, axis=0),
    _one("roll", _X, shift=1, axis=0),
    _one("roll.columns", _X, shift=-1, axis=1),
    _one("pad", _X, axis=0, before=1, after=3),
    _one("pad.value", _X, axis=1, before=2, after=2, value=-1),
    *_all("tril triu", Operand((8, 8))),
    _one("diagonal", Operand((8, 8))),
    _one("slice", _X, axis=0, start=2, stop=6),
    _one("slice.step", _X, axis=0, start=0, stop=8, step=2),
    _one("slice.columns", _X, axis=1, start=1, stop=3),
    _one("index", _X, axis=1, index=2),
    _fixed("index.rows", _X, axis=0, index=3),
    _one("repeat", _X, repeats=2, axis=0),
    _one("tile", _X, repeats=2, axis=1),
)  # fmt: skip

_I4 = Operand((4,), "distinct 8", "int64")
_B4 = Operand((4,), "below 4", "int64")
_V = Operand((4, 4), "other")
_AT_3, _AT_7 = (Operand((), f"start {at}", "int64") for at in (3, 7))

_INDEXING = (
    _fixed("take", _X, _I4, axis=0),
    _one("take.columns", _X, _B4, axis=1),
    _one("take_along_axis", _X, Operand((8, 4), "below 4", "int64"), axis=1),
    _fixed("take_along_axis.rows", _X, Operand((8, 4), "below 8", "int64"), axis=0),
    _one("scatter", _X, Operand((8, 1), "below 4", "int64"), Operand((8, 1), "other"), axis=1),
    _fixed("scatter_add", _X, Operand((8, 4), "below 8", "int64"), _Y, axis=0),
    _fixed("scatter_rows", _X, _I4, _V, axis=0),
    _fixed("scatter_add_rows", _X, _B4, _V, axis=0),
    _fixed("index_put", _X, Operand((4,), "other"), _I4, _B4),
    _one("masked_fill", _X, _C, value=-2),
    _fixed("embedding", Operand((8,), "below 8", "int64"), Operand((8, 4))),
    _fixed("embedding.padding", Operand((8,), "below 8", "int64"), Operand((8, 4)), padding_row=2),
    _one("one_hot", Operand((8,), "below 4", "int64"), classes=4),
    _fixed("dynamic_slice", _X, _AT_3, axis=0, size=4),
    _fixed("dynamic_slice.clamped", _X, _AT_7, axis=0, size=4),
    _fixed("dynamic_update_slice", _X, _V, _AT_3, axis=0),
    _fixed("dynamic_update_slice.clamped", _X, _V, _AT_7, axis=0),
    _fixed("set_slice", _X, _V, axis=0, start=2, stop=6),
    _fixed("set_slice.step", _X, _V, axis=0, start=0, stop=8, step=2),
    _fixed("set_slice.value", _X, axis=0, start=1, stop=7, value=-1),
    _one("set_slice.columns", _X, axis=1, start=1, stop=3, value=-1),
    _fixed("assign_slice", _X, _V, axis=0, start=2, stop=6),
    _one("assign_slice.columns", _X, Operand((8, 2), "other"), axis=1, start=1, stop=3),
    _fixed("assign_slice.value", _X, axis=0, start=1, stop=7, value=-1),
    *_all("inplace_add inplace_subtract inplace_multiply", _X, _Y),
    _one("inplace_add.number", _X, 2),
    _one("inplace_fill", _X, value=3),
)  # fmt: skip

_ORDERING = (
    *_all("sort argsort", _X),
    *(_one(f"{name}.rows", _X, axis=0, descending=True) for name in ("sort", "argsort")),
    *_all("topk_values topk_indices", _X, k=2),
    *(_fixed(f"{name}.rows", _X, k=2, axis=0) for name in ("topk_values", "topk_indices")),
    *_all("cumulative_sum", _X),
    _one("cumulative_sum.rows", _X, axis=0),
    _one("cumulative_prod.rows", Operand((8, 4), "few"), axis=0),
    _one("cumulative_prod", Operand((8, 4), "few")),
)  # fmt: skip

_T = Operand((8,), "below 4", "int64")
_IGNORED = Operand((8,), "classes 4", "int64")
_WEIGHTS = Operand((4,), "positive")
_PROBABLE = Operand((8, 4), "unit")
_SHARE = Operand((8, 4), "share")

_NETWORKS = (
    *_all("softmax log_softmax layer_norm rms_norm", _X),
    *(_one(f"{name}.rows", _X, axis=0) for name in ("softmax", "log_softmax")),
    _one("layer_norm.affine", _X, _ROW, Operand((4,), "positive")),
    _one("rms_norm.weight", _X, _ROW),
    *(
        _one(f"{name}.{reduction}", *operands, reduction=reduction)
        for name, operands in (
            ("mse_loss", (_X, _Y)), ("l1_loss", (_X, _Y)), ("huber_loss", (_X, _Y)),
            ("smooth_l1_loss", (_X, _Y)), ("binary_cross_entropy", (_PROBABLE, _SHARE)),
            ("binary_cross_entropy_with_logits", (_X, _SHARE)), ("kl_div", (_X, _SHARE)),
            ("nll_loss", (_X, _T)), ("cross_entropy", (_X, _T)),
        )
        for reduction in ("mean", "sum", "none")
    ),
    *(
        _one(f"{name}.{word}", _X, *rest)
        for name in ("nll_loss", "cross_entropy")
        for word, rest in (
            ("weighted", (_T, _WEIGHTS)), ("ignored", (_IGNORED,)),
            ("weighted-ignored", (_IGNORED, _WEIGHTS)),
        )
    ),
)  # fmt: skip

_BATCH = Operand((4, 4, 4), "definite")

_ALGEBRA = (
    *(_fixed(name, _BATCH) for name in ("inv", "cholesky", "det")),
    _fixed("solve", _BATCH, Operand((4, 4, 4), "other")),
    *_all("fft ifft", _X),
    _one("fft.rows", _X, axis=0),
)

_BITS, _MASKS = Operand((8, 4), "whole", "int32"), Operand((8, 4), "ordinal", "int32")
_PLACES = Operand((8, 4), "below 5", "int32")

_BITWISE = (
    *_all("left_shift right_shift bitwise_left_shift bitwise_right_shift", _BITS, _PLACES),
    _one("left_shift.number", _BITS, 2),
    _one("right_shift.number", _BITS, 1),
    *_all("bitwise_and bitwise_or bitwise_xor", _BITS, _MASKS),
    _one("bitwise_not", _BITS),
)  # fmt: skip

SAMPLES: dict[str, tuple[Sample, ...]] = {
    "pointwise": _POINTWISE,
    "reduction": _REDUCTIONS,
    "contraction": _CONTRACTIONS,
    "shape": _SHAPES,
    "indexing": _INDEXING,
    "ordering": _ORDERING,
    "network": _NETWORKS,
    "algebra": _ALGEBRA,
    "bits": _BITWISE,
}
