"""Which ops work element by element? With one operand, two, or three, and numbers among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from scipy import special

from cases.arrays import numpy_dtype
from cases.model import Param
from cases.ops import labels
from cases.ops.promotion import (
    by_torch,
    cast,
    is_array,
    joined,
    joined_by_torch,
    real,
    real_by_torch,
    together,
)
from cases.ops.row import (
    ANY,
    ORDER,
    SUM_LIKE,
    Apart,
    Op,
    Value,
    floats,
    is_narrow,
    rounded,
    wide,
)

_APPROXIMATE = "libraries approximate it to a few roundings"
_EXP = "an exponential multiplies the error of its argument by the argument"


def _unary(name: str, function: Callable[..., Any], **about: Any) -> Op:
    """A function of real numbers, done in float64 and rounded once."""
    return Op(name, "pointwise", ("x",), rounded(function), labels=labels.same, grads=(0,),
              **{"why": _APPROXIMATE, **about})  # fmt: skip


def _real(name: str, function: Callable[..., Any], **about: Any) -> Op:
    """As `_unary`, and of whole numbers too, which it makes real."""
    done = rounded(function)
    apart = by_torch(done, real, real_by_torch)
    return Op(name, "pointwise", ("x",), together(done, real), labels=labels.same, grads=(0,),
              **{"why": _APPROXIMATE, "apart": apart, **about})  # fmt: skip


def _plain(name: str, function: Callable[..., Any], **about: Any) -> Op:
    """A function of one operand that NumPy does in its own dtype."""
    return Op(name, "pointwise", ("x",), function, labels=labels.same, **about)


def _binary(name: str, function: Callable[..., Any], **about: Any) -> Op:
    """A function of two operands of one dtype, either of which may be a number."""
    return Op(name, "pointwise", ("x", "y"), together(function), numbers=True,
              labels=labels.broadcast, **{"apart": by_torch(function), **about})  # fmt: skip


def _test(name: str, function: Callable[..., Any]) -> Op:
    """A comparison or a logical function: the result is boolean."""
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
    # Towards zero, as C does it; narrow floats are widened first, which changes nothing.
    before, after = np.asarray(wide(x)), numpy_dtype(dtype)
    if before.dtype.kind == "f" and after.kind in "iu":
        limits, whole = np.iinfo(after), np.trunc(before)
        if not np.all((whole >= float(limits.min)) & (whole < float(limits.max) + 1)):
            raise ValueError(f"numbers that {dtype} holds: for others none is defined")
    return before.astype(after)


def _clip(of: Callable[[tuple[Any, ...]], Any]) -> Callable[..., Any]:
    def meaning(x: Value, min: Param = None, max: Param = None) -> Value:
        given = tuple(one for one in (min, max) if one is not None)
        if not given:
            raise ValueError("clip with min, max or both")
        dtype = of((x, *given))
        low, high = (None if one is None else np.asarray(one).astype(dtype) for one in (min, max))
        return np.asarray(np.clip(x.astype(dtype), low, high))

    return meaning


def _divides(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of whole numbers by 0 there is no value, and some processors stop the program."""

    def meaning(x: Value, y: Value) -> Value:
        if x.dtype.kind == "b":
            raise TypeError("takes numbers, not bool")
        if x.dtype.kind in "iu" and not np.all(y):
            raise ZeroDivisionError("whole numbers divided by 0")
        return np.asarray(function(x, y))

    return meaning


def _divide(x: Value, y: Value) -> Value:
    return np.asarray(np.divide(x, y))


def _bits(name: str, function: Callable[..., Any]) -> Op:
    """A function of the bits of whole numbers, or of booleans."""

    def meaning(x: Value, y: Value) -> Value:
        if x.dtype.kind not in "biu":
            raise TypeError(f"takes integers or booleans, not {x.dtype.name}")
        return np.asarray(function(x, y))

    return _binary(name, meaning, whole=True)


def _shift(name: str, function: Callable[..., Any]) -> Op:
    """By fewer places than there are bits, else nothing is defined."""

    def meaning(x: Value, y: Value) -> Value:
        if x.dtype.kind not in "iu":
            raise TypeError(f"takes integers, not {x.dtype.name}")
        most = 8 * x.dtype.itemsize - 1
        if not np.all((y >= 0) & (y <= most)):
            raise ValueError(f"shifts by 0 to {most} places")
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
    """Of booleans too, which count as numbers of ``dtype``."""
    return lambda x: np.asarray(np.square(x.astype(dtype) if x.dtype.kind == "b" else x))


def _where(of: Callable[[tuple[Any, ...]], Any]) -> Callable[..., Any]:
    def meaning(c: Value, x: Any, y: Any) -> Value:
        if not is_array(c) or c.dtype != np.bool_:
            raise TypeError(
                f"takes a boolean condition, not {c.dtype.name if is_array(c) else 'a number'}"
            )
        if not is_array(x) and not is_array(y):
            raise TypeError("takes one array besides its condition")
        return np.where(c, *cast((x, y), of((x, y))))

    return meaning


_WHERE = {"torch": msgspec.structs.replace(
    by_torch(np.where)["torch"], meaning=_where(joined_by_torch),
    differs=lambda args, params: joined(args[1:]) != joined_by_torch(args[1:]),
)}  # fmt: skip


def _power(x: Any, y: Any) -> Value:
    floats(x, y)
    return np.asarray(rounded(np.power)(x, y) if is_narrow(x) else np.power(x, y))


def _clips_apart(args: tuple[Any, ...], params: dict[str, Any]) -> bool:
    given = (*args, *(bound for bound in params.values() if bound is not None))
    return joined(given) != joined_by_torch(given)


_CLIPS = {"torch": msgspec.structs.replace(
    by_torch(np.clip)["torch"], meaning=_clip(joined_by_torch), differs=_clips_apart,
)}  # fmt: skip

_SQUARES = {
    "jax": Apart(
        _square_of(np.int32), lambda args, params: args[0].dtype.kind == "b",
        "JAX squares booleans as int32, torch as int64",
        "https://docs.jax.dev/en/latest/_autosummary/jax.numpy.square.html",
    )
}  # fmt: skip

ROWS = (
    _binary("add", np.add, linear=SUM_LIKE, each=(0, 1), singly=ORDER | {"avg"}, whole=True,
            grads=(0, 1)),
    _binary("subtract", np.subtract, linear=SUM_LIKE, each=(0,), singly=ORDER | {"avg"}, whole=True,
            grads=(0, 1)),
    _binary("multiply", np.multiply, each=(0, 1), whole=True, grads=(0, 1)),
    Op("divide", "pointwise", ("x", "y"), together(_divide, real), numbers=True,
       labels=labels.broadcast, each=(0,), grads=(0, 1), roundings=4,
       why="a quotient may be a product with the inverse",
       apart=by_torch(_divide, real, real_by_torch)),
    _binary("maximum", np.maximum, linear=frozenset({"max"}), each=(0, 1), singly=ORDER,
            whole=True, grads=(0, 1)),
    _binary("minimum", np.minimum, linear=frozenset({"min"}), each=(0, 1), singly=ORDER,
            whole=True, grads=(0, 1)),
    _binary("power", _power, grads=(0,), roundings=32, why=_EXP),
    # The sign of the divisor, as Python has it.
    _binary("remainder", _divides(np.remainder), whole=True, jumps=True),
    _binary("floor_divide", _divides(np.floor_divide), whole=True, jumps=True),
    _binary("atan2", rounded(np.arctan2), grads=(0, 1), why=_APPROXIMATE),
    _binary("hypot", rounded(np.hypot), grads=(0, 1), why=_APPROXIMATE),
    _binary("logaddexp", rounded(np.logaddexp), grads=(0, 1), why=_APPROXIMATE),
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
    _plain("negative", np.negative, linear=SUM_LIKE, whole=True, grads=(0,)),
    _plain("abs", np.abs, whole=True, grads=(0,)),
    _plain("square", _square_of(np.int64), whole=True, grads=(0,), apart=_SQUARES),
    _plain("sign", np.sign, linear=ORDER, whole=True, jumps=True),
    _plain("logical_not", np.logical_not, whole=True, jumps=True),
    _plain("isnan", np.isnan, whole=True),
    _plain("isfinite", np.isfinite, whole=True),
    _plain("floor", _rounds(np.floor), linear=ORDER, whole=True, jumps=True),
    _plain("ceil", _rounds(np.ceil), linear=ORDER, whole=True, jumps=True),
    # Halves go to the even neighbour.
    _plain("round", _rounds(np.round), linear=ORDER, whole=True, jumps=True),
    _real("exp", np.exp, linear=ORDER, roundings=32, why=_EXP),
    _real("expm1", np.expm1, linear=ORDER, roundings=32, why=_EXP),
    _real("log", np.log),
    _real("log1p", np.log1p),
    _real("sqrt", np.sqrt),
    _unary("rsqrt", lambda x: 1 / np.sqrt(x)),
    _real("reciprocal", np.reciprocal),
    _real("sin", np.sin),
    _real("cos", np.cos),
    _real("tanh", np.tanh, linear=ORDER),
    _unary("sigmoid", special.expit, linear=ORDER),
    _real("erf", special.erf, linear=ORDER),
    # Nothing is rounded.
    _unary("relu", lambda x: np.maximum(x, 0), linear=ORDER, whole=True),
    _unary("gelu", _gelu),
    _unary("silu", _silu),
    _unary("softplus", _softplus, linear=ORDER),
    Op("clip", "pointwise", ("x",), _clip(joined), optional=("min", "max"), labels=labels.same,
       linear=ORDER, whole=True, grads=(0,), apart=_CLIPS),
    Op("astype", "pointwise", ("x",), _astype, required=("dtype",), labels=labels.same,
       # Which rounds less, and which not at all, is a question of dtypes, which no rule knows.
       unclear=ANY, whole=True, grads=(0,), jumps=True),
    Op("where", "pointwise", ("c", "x", "y"), _where(joined), numbers=True,
       labels=labels.broadcast, linear=ANY, together=(1, 2), whole=True, grads=(1, 2),
       apart=_WHERE),
)  # fmt: skip


def _moved(x: Value, view: str = "") -> Value:
    """Where something lies does not change what it is."""
    return x


MOVES = (
    Op("redistribute", "move", ("x",), _moved, optional=("view",), labels=labels.same, linear=ANY,
       moves=True, whole=True, grads=(0,), places=True),
    Op("identity", "move", ("x",), lambda x: x, labels=labels.same, linear=ANY, moves=True,
       whole=True, grads=(0,)),
)  # fmt: skip
