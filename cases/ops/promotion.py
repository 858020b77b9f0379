"""Which dtype has a result of operands with several dtypes, or of integers in a real function?

The meaning of an op follows JAX's rule with 64-bit types on. torch's rule is used where torch
documents another. Tests check both. Refuses to know shapes and layouts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from cases.ops.op import FrameworkMeaning, Params

Dtype = np.dtype[Any]

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)

_TORCH_LINK = "https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc"
_TORCH_WHY = (
    "torch converts integers to float32, its default dtype, and a 0-d tensor decides only the"
    " kind of the result's dtype"
)


def is_array(value: Any) -> bool:
    """Whether an argument is an array and no Python number."""
    return isinstance(value, np.ndarray | np.generic)


def _rank(dtype: Dtype) -> int:
    """0 for booleans, 1 for integers, 2 for real numbers, 3 for complex numbers."""
    return {"b": 0, "i": 1, "u": 1, "c": 3}.get(dtype.kind, 2)


def _promote_two(one: Dtype, other: Dtype) -> Dtype:
    """The dtype of two arrays together. The higher kind decides, but may have to be widened."""
    if _rank(one) < _rank(other):
        one, other = other, one
    if _rank(one) >= 2 and _rank(other) < 2:
        return one
    if _rank(one) == 3 and _rank(other) == 2:
        return np.dtype(np.complex128) if other == _FLOAT64 else one
    if _BFLOAT16 in (one, other) and one != other:
        return max(one, other, _FLOAT32, key=lambda dtype: dtype.itemsize)
    return np.result_type(one, other)


def _of_number(number: Any) -> int:
    return 0 if isinstance(number, bool) else 1 if isinstance(number, int) else 2


def promote(args: tuple[Any, ...]) -> Dtype:
    """The dtype of arrays and numbers together. A number decides only the lowest kind."""
    dtype: Dtype = reduce(_promote_two, (one.dtype for one in args if is_array(one)))
    kind = max((_of_number(one) for one in args if not is_array(one)), default=0)
    if kind <= _rank(dtype):
        return dtype
    return np.dtype(np.int64) if kind == 1 else _FLOAT64


def promote_by_torch(args: tuple[Any, ...]) -> Dtype:
    """Like `promote`, by torch's rule: tensors with dims, then 0-d tensors, then numbers."""
    arrays = [one for one in args if is_array(one)]
    groups = [
        [one.dtype for one in arrays if one.ndim],
        [one.dtype for one in arrays if not one.ndim],
        [(np.dtype(np.bool_), np.dtype(np.int64), _FLOAT32)[_of_number(one)]
         for one in args if not is_array(one)],
    ]  # fmt: skip
    found = [reduce(_promote_two, group) for group in groups if group]
    return reduce(_promote_groups, reversed(found[:-1]), found[-1])


def _promote_groups(lower: Dtype, higher: Dtype) -> Dtype:
    """``higher`` decides, unless ``lower`` has a higher kind."""
    if _rank(higher) == 2 and _rank(lower) == 3:
        return np.dtype(np.complex128 if higher == _FLOAT64 else np.complex64)
    return higher if _rank(higher) >= _rank(lower) else _promote_two(higher, lower)


def real_dtype(dtype: Dtype) -> Dtype:
    """The result dtype of a real function. Integers of 64 bits give float64, others float32."""
    if _rank(dtype) >= 2:
        return dtype
    return _FLOAT64 if dtype.itemsize == 8 else _FLOAT32


def real_dtype_by_torch(dtype: Dtype) -> Dtype:
    """Like `real_dtype`, by torch's rule: its default dtype."""
    return dtype if _rank(dtype) >= 2 else _FLOAT32


def cast_all(args: tuple[Any, ...], dtype: Dtype) -> list[NDArray[Any]]:
    """All arguments in one dtype. Arrays that have it already are not copied."""
    return [
        one if is_array(one) and one.dtype == dtype else np.asarray(one).astype(dtype)
        for one in args
    ]


def with_promotion(
    function: Callable[..., Any], of: Callable[[Dtype], Dtype] = lambda dtype: dtype
) -> Callable[..., Any]:
    """``function`` of arguments that are first converted to one dtype, which ``of`` gives."""
    return lambda *args, **params: function(*cast_all(args, of(promote(args))), **params)


def torch_meaning(
    function: Callable[..., Any],
    ours: Callable[[Dtype], Dtype] = lambda dtype: dtype,
    theirs: Callable[[Dtype], Dtype] = lambda dtype: dtype,
) -> dict[str, FrameworkMeaning]:
    """``function`` by torch's dtype rule, where it differs from that of `with_promotion`.

    ``ours`` and ``theirs``: the result dtype for the operands by either rule.
    """

    def differs(args: tuple[Any, ...], params: Params) -> bool:
        return theirs(promote_by_torch(args)) != ours(promote(args))

    def meaning(*args: Any, **params: Any) -> Any:
        return function(*cast_all(args, theirs(promote_by_torch(args))), **params)

    return {"torch": FrameworkMeaning(meaning, differs, _TORCH_WHY, _TORCH_LINK)}
