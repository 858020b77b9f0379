"""What does the vocabulary say about an op? The type of its row, and helpers of rows.

A row knows the op's arguments, parameters, meaning in NumPy and layout rule. Refuses to know how a
framework spells the op, which its adapter says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from cases.model import REDUCTIONS, Param, Tolerance

Value = NDArray[Any]
Shape = tuple[int, ...]
Params = dict[str, Param]
# The label of a dim, or for a dim of several parts, label and size of each, major to minor. A dim
# or part with the label "" is never split. One with `NO_RULE` has no rule if it is split.
Label = str | tuple[tuple[str, int], ...]
NO_RULE = "?"
# A label for each dim of each operand, and for each dim of the result.
Labels = tuple[tuple[tuple[Label, ...], ...], tuple[Label, ...]]
Rule = Callable[[tuple[Shape, ...], Params], Labels | None]

Family = Literal[
    "move", "creation", "pointwise", "reduction", "contraction", "shape", "indexing", "ordering",
    "normalisation", "loss", "convolution", "attention", "linalg", "fft", "inplace", "local",
    "gradient", "random",
]  # fmt: skip


class FrameworkMeaning(msgspec.Struct, frozen=True):
    """The meaning of an op in one framework that documents another dtype or value.

    ``differs``: whether it applies to these arguments and parameters. If not, the row's meaning
    applies. ``why`` says what the framework documents, and ``link`` where.
    """

    meaning: Callable[..., Any]
    differs: Callable[[tuple[Any, ...], Params], bool]
    why: str
    link: str


class Op(msgspec.Struct, frozen=True):
    """One row of the vocabulary.

    ``meaning`` takes the arguments in order and the parameters by name. ``args`` are the
    names of the arguments, which those in ``more`` may follow. ``numbers``: an argument may be
    a number. ``required`` and ``optional`` are names of parameters.

    ``labels``: the layout rule. It gives each dim of the operands and the result a label. None
    means no rule. ``linear``: the pending reductions that the op passes on if all arguments have
    the same ones, or if all arguments in ``together`` do and the others have none. It may be a
    function of the parameters. ``each``: the arguments in which the op passes on a reduction of
    ``singly`` if no other argument has one. ``addend``: the argument that is added to the rest,
    and so must have the pending reductions of the rest. ``unclear``: the reductions for which no
    rule says whether the op passes them on. ``reduces``: the reduction over the labels that
    vanish, or several that fit; "by reduction": the parameter names it.

    ``moves``: elements are only moved or left out. ``whole``: integers give integers.
    ``roundings``: by how many roundings of the dtype a right result may be off, with ``why``.
    ``grads``: the positions of arguments with a derivative. ``places``: the op takes the layout
    of its result as a parameter. ``own``: its values are each framework's own (random numbers).
    ``apart``: framework -> its documented meaning, if not the row's. ``jumps``: a small change
    of an argument may change the result by an integer or flip a truth value.
    """

    name: str
    family: Family
    args: tuple[str, ...]
    meaning: Callable[..., Any]
    more: tuple[str, ...] = ()
    numbers: bool = False
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    labels: Rule | None = None
    linear: frozenset[str] | Callable[[Params], frozenset[str]] = frozenset()
    together: tuple[int, ...] = ()
    each: tuple[int, ...] = ()
    singly: frozenset[str] = frozenset({"sum", "avg"})
    addend: int | None = None
    unclear: frozenset[str] = frozenset()
    reduces: str | tuple[str, ...] = ()
    moves: bool = False
    whole: bool = False
    roundings: int = 8
    why: str = "sums may be done in any order"
    grads: tuple[int, ...] = ()
    places: bool = False
    own: bool = False
    apart: dict[str, FrameworkMeaning] = {}
    jumps: bool = False


SUM_AVG = frozenset({"sum", "avg"})
# A non-decreasing function commutes with max and min.
MAX_MIN = frozenset({"max", "min"})
ALL_REDUCTIONS = frozenset(REDUCTIONS)

# One rounding of a dtype, as the distance between neighbours at 1.
_ULPS = {
    "float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52,
    "complex64": 2.0**-23, "complex128": 2.0**-52,
}  # fmt: skip


def tolerance(op: Op, dtype: str) -> Tolerance:
    """How far a floating-point result of ``op`` may be from its NumPy meaning.

    A rounding is relative to the element, or to the largest element if that is above 1. Moved
    elements and integers must be exact and are not checked with this.
    """
    if dtype not in _ULPS:
        return Tolerance()
    allowed = op.roundings * _ULPS[dtype]
    return Tolerance(allowed, allowed, f"{op.roundings} roundings: {op.why}")


def is_narrow(x: Any) -> bool:
    """Whether a value has a float dtype narrower than float64."""
    return isinstance(x, np.ndarray | np.generic) and (
        x.dtype.kind not in "biuc" and x.dtype.itemsize < 8
    )


def widen(x: Any) -> Any:
    """Narrow floats become float64 and complex64 becomes complex128. Others stay unchanged."""
    if is_narrow(x):
        return x.astype(np.float64)
    if isinstance(x, np.ndarray | np.generic) and x.dtype == np.complex64:
        return x.astype(np.complex128)
    return x


def check_floating(*values: Any) -> None:
    """Refuses integers for an op on real numbers, because frameworks return different dtypes.

    Raises:
        TypeError: a value is an array of integers or booleans.
    """
    for one in values:
        if isinstance(one, np.ndarray | np.generic) and one.dtype.kind in "biu":
            raise TypeError(f"takes floating-point numbers, not {one.dtype.name}")


def computed_in_float64(
    function: Callable[..., Any], takes: int | None = None
) -> Callable[..., Any]:
    """``function`` in float64, rounded once to the dtype of its floating arguments.

    ``takes``: how many leading arguments must be floating and decide the dtype; None means all.
    """

    def meaning(*args: Any, **params: Any) -> Value:
        deciding = args if takes is None else args[:takes]
        check_floating(*deciding)
        arrays = [one for one in deciding if isinstance(one, np.ndarray | np.generic)]
        dtype = np.result_type(*arrays)
        out = np.asarray(function(*map(widen, args), **params))
        kind = {"f": np.float64, "c": np.complex128}.get(out.dtype.kind)
        if kind is None or out.dtype != kind:
            return out
        if kind is np.complex128 and dtype.kind != "c":
            return out.astype(np.complex64 if dtype.itemsize < 8 else np.complex128)
        if kind is np.float64 and dtype.kind == "c":
            return out.astype(np.float32 if dtype.itemsize < 16 else np.float64)
        return out.astype(dtype)

    return meaning


def normalize_axes(axis: Param, ndim: int) -> tuple[int, ...]:
    """The dims that a parameter ``axis`` names, counted from 0. None means all dims.

    Raises:
        ValueError: a dim is out of range.
    """
    listed = axis if isinstance(axis, list) else range(ndim) if axis is None else [axis]
    found = []
    for dim in listed:
        if not isinstance(dim, int) or not -ndim <= dim < ndim:
            raise ValueError(f"axis {dim} is out of bounds for array of dimension {ndim}")
        found.append(dim % ndim)
    if len(set(found)) < len(found):
        raise ValueError("duplicate value in 'axis'")
    return tuple(found)


def single_dim(axis: Param, ndim: int) -> int:
    """The dim that ``axis`` names, counted from 0.

    Raises:
        ValueError: it is not a single dim, or is out of range.
    """
    found = normalize_axes(axis, ndim)
    if axis is None or isinstance(axis, list):
        raise ValueError("axis must be one dim")
    return found[0]
