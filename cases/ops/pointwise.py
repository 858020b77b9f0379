"""Which ops work element by element? With one operand, two, or three, and numbers among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from cases.arrays import numpy_dtype
from cases.model import Param
from cases.ops import labels
from cases.ops.row import ANY, SUM_LIKE, Op, Value, floats, is_narrow, rounded, wide

_APPROXIMATE = "libraries approximate it to a few roundings"
_EXP = "an exponential multiplies the error of its argument by the argument"


def _unary(name: str, function: Callable[..., Any], **about: Any) -> Op:
    """A function of real numbers, done in float64 and rounded once."""
    return Op(name, "pointwise", ("x",), rounded(function), labels=labels.same, grads=(0,),
              **{"why": _APPROXIMATE, **about})  # fmt: skip


def _plain(name: str, function: Callable[..., Any], **about: Any) -> Op:
    """A function of one operand that NumPy does in its own dtype."""
    return Op(name, "pointwise", ("x",), function, labels=labels.same, **about)


def _binary(name: str, function: Callable[..., Any], **about: Any) -> Op:
    """A function of two operands, either of which may be a number."""
    return Op(name, "pointwise", ("x", "y"), function, numbers=True, labels=labels.broadcast,
              **about)  # fmt: skip


def _test(name: str, function: Callable[..., Any]) -> Op:
    """A comparison or a logical function: the result is boolean."""
    return _binary(name, function, whole=True)


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
    return np.asarray(wide(x)).astype(numpy_dtype(dtype))


def _clip(x: Value, min: Param = None, max: Param = None) -> Value:
    if min is None and max is None:
        raise ValueError("clip with min, max or both")
    out: Value = np.clip(x, min, max)  # type: ignore[arg-type]
    return out


def _remainder(x: Any, y: Any) -> Value:
    # The sign of the divisor, as Python has it.
    return np.asarray(np.remainder(x, y))


def _where(c: Value, x: Any, y: Any) -> Value:
    if not isinstance(c, np.ndarray | np.generic) or c.dtype != np.bool_:
        found = c.dtype.name if isinstance(c, np.ndarray | np.generic) else "a number"
        raise TypeError(f"takes a boolean condition, not {found}")
    out: Value = np.where(c, x, y)
    arrays = [one for one in (x, y) if isinstance(one, np.ndarray | np.generic)]
    return out if len(arrays) != 1 else out.astype(np.result_type(*arrays))


def _power(x: Any, y: Any) -> Value:
    if any(is_narrow(one) for one in (x, y)):
        made = rounded(np.power)(x, y)
        return np.asarray(made)
    floats(*(one for one in (x, y) if isinstance(one, np.ndarray)))
    return np.asarray(np.power(x, y))


ROWS = (
    _binary("add", np.add, linear=SUM_LIKE, whole=True, grads=(0, 1)),
    _binary("subtract", np.subtract, linear=SUM_LIKE, whole=True, grads=(0, 1)),
    _binary("multiply", np.multiply, each=(0, 1), whole=True, grads=(0, 1)),
    _binary("divide", np.divide, each=(0,), grads=(0, 1), roundings=4,
            why="a quotient may be a product with the inverse"),
    _binary("maximum", np.maximum, linear=frozenset({"max"}), whole=True, grads=(0, 1)),
    _binary("minimum", np.minimum, linear=frozenset({"min"}), whole=True, grads=(0, 1)),
    _binary("power", _power, grads=(0,), roundings=32, why=_EXP),
    _binary("remainder", _remainder, whole=True),
    _binary("floor_divide", np.floor_divide, whole=True),
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
    _plain("negative", np.negative, linear=SUM_LIKE, whole=True, grads=(0,)),
    _plain("abs", np.abs, whole=True, grads=(0,)),
    _plain("square", np.square, whole=True, grads=(0,)),
    _plain("sign", np.sign, whole=True),
    _plain("logical_not", np.logical_not, whole=True),
    _plain("isnan", np.isnan, whole=True),
    _plain("isfinite", np.isfinite, whole=True),
    _plain("floor", np.floor, whole=True),
    _plain("ceil", np.ceil, whole=True),
    _plain("round", np.round, whole=True),
    _unary("exp", np.exp, roundings=32, why=_EXP),
    _unary("expm1", np.expm1, roundings=32, why=_EXP),
    _unary("log", np.log),
    _unary("log1p", np.log1p),
    _unary("sqrt", np.sqrt),
    _unary("rsqrt", lambda x: 1 / np.sqrt(x)),
    _unary("reciprocal", np.reciprocal),
    _unary("sin", np.sin),
    _unary("cos", np.cos),
    _unary("tanh", np.tanh),
    _unary("sigmoid", special.expit),
    _unary("erf", special.erf),
    _unary("relu", lambda x: np.maximum(x, 0)),
    _unary("gelu", _gelu),
    _unary("silu", _silu),
    _unary("softplus", _softplus),
    Op("clip", "pointwise", ("x",), _clip, optional=("min", "max"), labels=labels.same,
       whole=True, grads=(0,)),
    Op("astype", "pointwise", ("x",), _astype, required=("dtype",), labels=labels.same,
       whole=True, grads=(0,)),
    Op("where", "pointwise", ("c", "x", "y"), _where, numbers=True, labels=labels.broadcast,
       whole=True, grads=(1, 2)),
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
