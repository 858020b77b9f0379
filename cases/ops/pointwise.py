"""Which ops work element by element? Refuses to know frameworks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from scipy import special

from cases.arrays import numpy_dtype
from cases.model import Param
from cases.ops import labels
from cases.ops.op import (
    ALL_REDUCTIONS,
    MAX_MIN,
    SUM_AVG,
    FrameworkMeaning,
    Op,
    Value,
    check_floating,
    computed_in_float64,
    is_narrow,
    widen,
)
from cases.ops.promotion import (
    cast_all,
    is_array,
    promote,
    promote_by_torch,
    real_dtype,
    real_dtype_by_torch,
    torch_meaning,
    with_promotion,
)

_APPROXIMATE = "libraries approximate it to a few roundings"
_EXP = "an exponential multiplies the error of its argument by the argument"


def _unary(name: str, function: Callable[..., Any], **about: Any) -> Op:
    """A function of real numbers, computed in float64 and rounded once."""
    return Op(name, "pointwise", ("x",), computed_in_float64(function), labels=labels.same_dims,
              grads=(0,),
              **{"why": _APPROXIMATE, **about})  # fmt: skip


def _real(name: str, function: Callable[..., Any], **about: Any) -> Op:
    """Like `_unary`, but it also takes integers and makes them real."""
    done = computed_in_float64(function)
    apart = torch_meaning(done, real_dtype, real_dtype_by_torch)
    return Op(name, "pointwise", ("x",), with_promotion(done, real_dtype), labels=labels.same_dims,
              grads=(0,),
              **{"why": _APPROXIMATE, "apart": apart, **about})  # fmt: skip


def _plain(name: str, function: Callable[..., Any], **about: Any) -> Op:
    """A function that NumPy computes in the dtype of its operand."""
    return Op(name, "pointwise", ("x",), function, labels=labels.same_dims, **about)


def _binary(name: str, function: Callable[..., Any], **about: Any) -> Op:
    """A function of two operands of one dtype. Either may be a number."""
    return Op(name, "pointwise", ("x", "y"), with_promotion(function), numbers=True,
              labels=labels.broadcast, **{"apart": torch_meaning(function), **about})  # fmt: skip


def _test(name: str, function: Callable[..., Any]) -> Op:
    """A comparison or a logical function with a boolean result."""
    return _binary(name, function, whole=True, jumps=True)


def _gelu(x: Value) -> Value:
    out: Value = x * special.ndtr(x)
    return out


def _softplus(x: Value) -> Value:
    out: Value = np.logaddexp(x, 0.0)
    return out


def _silu(x: Value) -> Value:
    out: Value = x * special.expit(x)
    return out


def _astype(x: Value, dtype: str) -> Value:
    # Rounds towards zero, as C does. Widening narrow floats first changes no value.
    before, after = np.asarray(widen(x)), numpy_dtype(dtype)
    if before.dtype.kind == "f" and after.kind in "iu":
        limits, whole = np.iinfo(after), np.trunc(before)
        if not np.all((whole >= float(limits.min)) & (whole < float(limits.max) + 1)):
            raise ValueError(f"{dtype} must hold the numbers, as others have no defined result")
    return before.astype(after)


def _clip(of: Callable[[tuple[Any, ...]], Any]) -> Callable[..., Any]:
    def meaning(x: Value, min: Param = None, max: Param = None) -> Value:
        given = tuple(one for one in (min, max) if one is not None)
        if not given:
            raise ValueError("clip needs min, max or both")
        dtype = of((x, *given))
        low, high = (None if one is None else np.asarray(one).astype(dtype) for one in (min, max))
        return np.asarray(np.clip(x.astype(dtype), low, high))

    return meaning


def _divides(function: Callable[..., Any]) -> Callable[..., Any]:
    """Refuses integers divided by 0, which have no value and may stop the program."""

    def meaning(x: Value, y: Value) -> Value:
        if x.dtype.kind == "b":
            raise TypeError("takes numbers, not bool")
        if x.dtype.kind in "iu" and not np.all(y):
            raise ZeroDivisionError("integers divided by 0")
        return np.asarray(function(x, y))

    return meaning


def _divide(x: Value, y: Value) -> Value:
    return np.asarray(np.divide(x, y))


def _bits(name: str, function: Callable[..., Any]) -> Op:
    """A function of the bits of integers, or of booleans."""

    def meaning(x: Value, y: Value) -> Value:
        if x.dtype.kind not in "biu":
            raise TypeError(f"takes integers or booleans, not {x.dtype.name}")
        return np.asarray(function(x, y))

    return _binary(name, meaning, whole=True)


def _shift(name: str, function: Callable[..., Any]) -> Op:
    """Refuses a shift by as many bits as there are, or more, which is not defined."""

    def meaning(x: Value, y: Value) -> Value:
        if x.dtype.kind not in "iu":
            raise TypeError(f"takes integers, not {x.dtype.name}")
        most = 8 * x.dtype.itemsize - 1
        if not np.all((y >= 0) & (y <= most)):
            raise ValueError(f"shifts must be by 0 to {most} places")
        return np.asarray(function(x, y))

    return _binary(name, meaning, whole=True)


def _not(x: Value) -> Value:
    if x.dtype.kind not in "biu":
        raise TypeError(f"takes integers or booleans, not {x.dtype.name}")
    return np.asarray(np.invert(x))


def _rounds(function: Callable[..., Any]) -> Callable[..., Any]:
    def meaning(x: Value) -> Value:
        if x.dtype.kind == "b":
            raise TypeError("takes numbers, not bool")
        return np.asarray(function(x))

    return meaning


def _square_of(dtype: type) -> Callable[[Value], Value]:
    """The square. Booleans count as numbers of ``dtype``."""
    return lambda x: np.asarray(np.square(x.astype(dtype) if x.dtype.kind == "b" else x))


def _where(of: Callable[[tuple[Any, ...]], Any]) -> Callable[..., Any]:
    def meaning(c: Value, x: Any, y: Any) -> Value:
        if not is_array(c) or c.dtype != np.bool_:
            raise TypeError(
                f"takes a boolean condition, not {c.dtype.name if is_array(c) else 'a number'}"
            )
        if not is_array(x) and not is_array(y):
            raise TypeError("takes one array besides its condition")
        return np.where(c, *cast_all((x, y), of((x, y))))

    return meaning


_WHERE = {"torch": msgspec.structs.replace(
    torch_meaning(np.where)["torch"], meaning=_where(promote_by_torch),
    differs=lambda args, params: promote(args[1:]) != promote_by_torch(args[1:]),
)}  # fmt: skip


def _power(x: Any, y: Any) -> Value:
    check_floating(x, y)
    return np.asarray(computed_in_float64(np.power)(x, y) if is_narrow(x) else np.power(x, y))


def _clips_apart(args: tuple[Any, ...], params: dict[str, Any]) -> bool:
    given = (*args, *(bound for bound in params.values() if bound is not None))
    return promote(given) != promote_by_torch(given)


_CLIPS = {"torch": msgspec.structs.replace(
    torch_meaning(np.clip)["torch"], meaning=_clip(promote_by_torch), differs=_clips_apart,
)}  # fmt: skip

_SQUARES = {
    "jax": FrameworkMeaning(
        _square_of(np.int32), lambda args, params: args[0].dtype.kind == "b",
        "JAX squares booleans as int32, torch as int64",
        "https://docs.jax.dev/en/latest/_autosummary/jax.numpy.square.html",
    )
}  # fmt: skip

ROWS = (
    _binary("add", np.add, linear=SUM_AVG, each=(0, 1), singly=MAX_MIN | {"avg"}, whole=True,
            grads=(0, 1)),
    _binary("subtract", np.subtract, linear=SUM_AVG, each=(0,), singly=MAX_MIN | {"avg"},
            whole=True,
            grads=(0, 1)),
    _binary("multiply", np.multiply, each=(0, 1), whole=True, grads=(0, 1)),
    Op("divide", "pointwise", ("x", "y"), with_promotion(_divide, real_dtype), numbers=True,
       labels=labels.broadcast, each=(0,), grads=(0, 1), roundings=4,
       why="libraries may multiply by the inverse",
       apart=torch_meaning(_divide, real_dtype, real_dtype_by_torch)),
    _binary("maximum", np.maximum, linear=frozenset({"max"}), each=(0, 1), singly=MAX_MIN,
            whole=True, grads=(0, 1)),
    _binary("minimum", np.minimum, linear=frozenset({"min"}), each=(0, 1), singly=MAX_MIN,
            whole=True, grads=(0, 1)),
    _binary("power", _power, grads=(0,), roundings=32, why=_EXP),
    # The result has the sign of the divisor, as in Python.
    _binary("remainder", _divides(np.remainder), whole=True, jumps=True),
    _binary("floor_divide", _divides(np.floor_divide), whole=True, jumps=True),
    _binary("atan2", computed_in_float64(np.arctan2), grads=(0, 1), why=_APPROXIMATE),
    _binary("hypot", computed_in_float64(np.hypot), grads=(0, 1), why=_APPROXIMATE),
    _binary("logaddexp", computed_in_float64(np.logaddexp), grads=(0, 1), why=_APPROXIMATE),
    _test("equal", np.equal),
    _test("not_equal", np.not_equal),
    _test("less", np.less),
    _test("less_equal", np.less_equal),
    _test("greater", np.greater),
    _test("greater_equal", np.greater_equal),
    _test("logical_and", np.logical_and),
    _test("logical_or", np.logical_or),
    _test("logical_xor", np.logical_xor),
    _shift("left_shift", np.left_shift),
    _shift("right_shift", np.right_shift),
    _shift("bitwise_left_shift", np.left_shift),
    _shift("bitwise_right_shift", np.right_shift),
    _bits("bitwise_and", np.bitwise_and),
    _bits("bitwise_or", np.bitwise_or),
    _bits("bitwise_xor", np.bitwise_xor),
    _plain("bitwise_not", _not, whole=True),
    _plain("negative", np.negative, linear=SUM_AVG, whole=True, grads=(0,)),
    _plain("abs", np.abs, whole=True, grads=(0,)),
    _plain("square", _square_of(np.int64), whole=True, grads=(0,), apart=_SQUARES),
    _plain("sign", np.sign, linear=MAX_MIN, whole=True, jumps=True),
    _plain("logical_not", np.logical_not, whole=True, jumps=True),
    _plain("isnan", np.isnan, whole=True),
    _plain("isfinite", np.isfinite, whole=True),
    _plain("floor", _rounds(np.floor), linear=MAX_MIN, whole=True, jumps=True),
    _plain("ceil", _rounds(np.ceil), linear=MAX_MIN, whole=True, jumps=True),
    # Halves are rounded to the even neighbour.
    _plain("round", _rounds(np.round), linear=MAX_MIN, whole=True, jumps=True),
    _real("exp", np.exp, linear=MAX_MIN, roundings=32, why=_EXP),
    _real("expm1", np.expm1, linear=MAX_MIN, roundings=32, why=_EXP),
    _real("log", np.log),
    _real("log1p", np.log1p),
    _real("sqrt", np.sqrt),
    _unary("rsqrt", lambda x: 1 / np.sqrt(x)),
    _real("reciprocal", np.reciprocal),
    _real("sin", np.sin),
    _real("cos", np.cos),
    _real("tanh", np.tanh, linear=MAX_MIN),
    _unary("sigmoid", special.expit, linear=MAX_MIN),
    _real("erf", special.erf, linear=MAX_MIN),
    # Nothing is rounded here.
    _unary("relu", lambda x: np.maximum(x, 0), linear=MAX_MIN, whole=True),
    _unary("gelu", _gelu),
    _unary("silu", _silu),
    _unary("softplus", _softplus, linear=MAX_MIN),
    Op("clip", "pointwise", ("x",), _clip(promote), optional=("min", "max"),
       labels=labels.same_dims,
       linear=MAX_MIN, whole=True, grads=(0,), apart=_CLIPS),
    Op("astype", "pointwise", ("x",), _astype, required=("dtype",), labels=labels.same_dims,
       # Whether this rounds depends on the dtypes, which rules do not know.
       unclear=ALL_REDUCTIONS, whole=True, grads=(0,), jumps=True),
    Op("where", "pointwise", ("c", "x", "y"), _where(promote), numbers=True,
       labels=labels.broadcast, linear=ALL_REDUCTIONS, together=(1, 2), whole=True, grads=(1, 2),
       apart=_WHERE),
)  # fmt: skip


def _moved(x: Value, view: str = "") -> Value:
    """A layout does not change a value."""
    return x


MOVES = (
    Op("redistribute", "move", ("x",), _moved, optional=("view",), labels=labels.same_dims,
       linear=ALL_REDUCTIONS,
       moves=True, whole=True, grads=(0,), places=True),
    Op("identity", "move", ("x",), lambda x: x, labels=labels.same_dims, linear=ALL_REDUCTIONS,
       moves=True,
       whole=True, grads=(0,)),
)  # fmt: skip
