"""What does a row of the vocabulary say about an op? And what rows have in common.

A row knows the op's arguments, parameters, meaning in NumPy and layout rule. How a framework spells
the op is in the table of its adapter.
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
# The label of a dim; or, for a dim of several parts, each label with its size, major to minor. A
# dim (or part) with the label "" is never split. There is no rule if one labelled `NO_RULE` is
# split.
Label = str | tuple[tuple[str, int], ...]
NO_RULE = "?"
# For each operand and the result, a label per dim.
Labels = tuple[tuple[tuple[Label, ...], ...], tuple[Label, ...]]
Rule = Callable[[tuple[Shape, ...], Params], Labels | None]

Family = Literal[
    "move", "creation", "pointwise", "reduction", "contraction", "shape", "indexing", "ordering",
    "normalisation", "loss", "convolution", "attention", "linalg", "fft", "inplace", "local",
    "gradient", "random",
]  # fmt: skip


class FrameworkMeaning(msgspec.Struct, frozen=True):
    """What an op means in a framework that defines a dtype or a value in its own way.

    ``differs``: whether its meaning differs for these arguments and parameters. ``why`` says what
    is defined, and ``link`` where.
    """

    meaning: Callable[..., Any]
    differs: Callable[[tuple[Any, ...], Params], bool]
    why: str
    link: str


class Op(msgspec.Struct, frozen=True):
    """One row of the vocabulary.

    ``meaning`` takes the arguments in order and the parameters by name. ``args`` are the
    names of the arguments; those in ``more`` may follow, from the left. ``numbers``: an
    argument may be a number. ``required`` and ``optional`` are parameter names.

    ``labels``: the layout rule, which says for the shapes of the tensor operands what each
    dim is called in them and in the result; None where there is no clear rule. ``linear``: the
    pending reductions that the op passes through when every argument owes the same, or every
    one of those ``together`` while the others owe nothing; a function of the parameters if they
    say. ``each``: the arguments in which it passes on those of ``singly`` one at a time, the
    others held fixed. ``addend``: the argument that is added to the rest, so that it must owe
    what the rest owes. ``unclear``: the pending reductions of which no rule says whether they
    are passed on. ``reduces``: the reduction that it is over the labels that vanish, or those
    that do as well; "by reduction": the parameter says.

    ``moves``: elements are only moved about or left out. ``whole``: whole numbers give whole
    numbers. ``roundings``: how many roundings of the dtype a right result may be off, and
    ``why``. ``grads``: the arguments in which it has a derivative, by position.
    ``places``: it takes the layout of its result as a parameter, placements or spec.
    ``own``: its values are each framework's own business (random numbers). ``apart``: by
    framework, the meaning that it documents where that is not the row's. ``jumps``: where its
    arguments change little, its value may change by a whole number or a truth.
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
# A function that never falls may be applied before the largest or smallest is taken.
MAX_MIN = frozenset({"max", "min"})
ALL_REDUCTIONS = frozenset(REDUCTIONS)

# Twice half the distance between neighbours at 1: one rounding of the dtype.
_ULPS = {
    "float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52,
    "complex64": 2.0**-23, "complex128": 2.0**-52,
}  # fmt: skip


def tolerance(op: Op, dtype: str) -> Tolerance:
    """How far a floating-point result of ``op`` may be from its NumPy meaning.

    In roundings of the dtype: of the element itself, and of the largest element of the result where
    that is above 1. Data movement and whole-number results must match bit for bit, and are not
    handled here.
    """
    if dtype not in _ULPS:
        return Tolerance()
    allowed = op.roundings * _ULPS[dtype]
    return Tolerance(allowed, allowed, f"{op.roundings} roundings: {op.why}")


def is_narrow(x: Any) -> bool:
    """Whether a value has a float dtype that is computed in float64 and rounded once."""
    return isinstance(x, np.ndarray | np.generic) and (
        x.dtype.kind not in "biuc" and x.dtype.itemsize < 8
    )


def widen(x: Any) -> Any:
    """Narrow floats as float64, complex64 as complex128, anything else unchanged."""
    if is_narrow(x):
        return x.astype(np.float64)
    if isinstance(x, np.ndarray | np.generic) and x.dtype == np.complex64:
        return x.astype(np.complex128)
    return x


def check_floating(*values: Any) -> None:
    """Refuse integers for an op on real numbers, because frameworks give different results.

    Raises:
        TypeError: a value is an array of integers or booleans.
    """
    for one in values:
        if isinstance(one, np.ndarray | np.generic) and one.dtype.kind in "biu":
            raise TypeError(f"takes floating-point numbers, not {one.dtype.name}")


def computed_in_float64(
    function: Callable[..., Any], takes: int | None = None
) -> Callable[..., Any]:
    """``function`` done in float64 and rounded once to the dtype of its floating arguments.

    ``takes``: how many leading arguments decide the dtype and must be floating; None: all.
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
    """The dims that a parameter ``axis`` means: one, several or, if None, all; none negative.

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
    """The dim that ``axis`` means, from 0.

    Raises:
        ValueError: not one dim, or out of range.
    """
    found = normalize_axes(axis, ndim)
    if axis is None or isinstance(axis, list):
        raise ValueError("axis is one dim here")
    return found[0]
