"""How is a program written, and what does it make? Step notation, and shapes of results.

A step is ``y = matmul(x, w)`` or ``["y", "matmul", ["x", "w"], {}]``. Knows the ops in `ops`.
Refuses to know layouts, and passes them on unread.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from cases import typed_fields
from cases.arrays import DTYPES, numpy_dtype
from cases.errors import Where, format_count, format_known, format_value
from cases.model import Param, Question, Step
from cases.ops import OPS, Op
from cases.ops.other_names import ALIASES, OTHER_NAMES
from cases.parameters import MAX_ELEMENTS, PARAMS

# People do not write longer steps, and Python's parser recurses.
MAX_STEP = 1000
MAX_NDIM = 8

_EXAMPLE = "a step such as 'y = matmul(x, w)'"
_INFIX: dict[type, str] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide",
    ast.MatMult: "matmul", ast.LShift: "left_shift", ast.RShift: "right_shift",
    ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or", ast.BitXor: "bitwise_xor",
}  # fmt: skip
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "none": None}


class TensorType(msgspec.Struct, frozen=True):
    """The global shape and the dtype of a tensor."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class WrittenStep(msgspec.Struct, frozen=True):
    """A step as it was written: its names and its layout are not yet read.

    ``layout``: placements, axis -> placement, or a PartitionSpec; None if there is none.
    ``asked_at``: the place of the layout. ``named``: the case names the result, which is not
    only a part of a step.
    """

    result: str
    op: str
    args: tuple[str | int | float | bool, ...]
    params: dict[str, Any]
    layout: Any
    where: Where
    asked_at: Where
    named: bool = True

    @property
    def operands(self) -> tuple[str, ...]:
        """The arguments that are names."""
        return tuple(arg for arg in self.args if isinstance(arg, str))


def read_program(raw: Any, where: Where) -> tuple[WrittenStep, ...]:
    """The steps of a program: strings, and lists [result, op, arguments, parameters].

    Raises:
        BadInput: a step that cannot be parsed. Names and ops are not checked here.
    """
    steps: list[WrittenStep] = []
    for i, one in enumerate(typed_fields.items(raw, where, "a list of steps")):
        if isinstance(one, str):
            steps += _parse(one, where.at(i))
        else:
            steps.append(_listed(one, where.at(i)))
    return tuple(msgspec.structs.replace(one, op=ALIASES.get(one.op, one.op)) for one in steps)


def _listed(raw: Any, where: Where) -> WrittenStep:
    parts = typed_fields.items(raw, where, "a string or a list [result, op, arguments, parameters]")
    if len(parts) not in (3, 4):
        raise where.error(
            format_count(len(parts), "part"), "[result, op, arguments] or with a fourth, parameters"
        )
    result = typed_fields.identifier(parts[0], where.at(0))
    op = typed_fields.text(parts[1], where.at(1), "the name of an op")
    args = []
    for i, arg in enumerate(typed_fields.items(parts[2], where.at(2), "a list of arguments")):
        if not isinstance(arg, str | bool):
            typed_fields.number(arg, where.at(2, i), "a name or a finite number")
        args.append(arg)
    params = dict(typed_fields.table(parts[3] if len(parts) == 4 else {}, where.at(3)))
    layout, asked_at = _placed(op, params, where.at(3), where)
    return WrittenStep(result, op, tuple(args), params, layout, where, asked_at)


def _placed(op: str, params: dict[str, Any], place: Where, where: Where) -> tuple[Any, Where]:
    """Takes the layout out of the parameters of an op that has one. Also gives its place."""
    if op in OPS and OPS[op].places:
        typed_fields.exclusive(params, "placements", "spec", place)
        for key in ("placements", "spec"):
            if key in params:
                return params.pop(key), place.at(key)
    return None, where


def _parse(text: str, where: Where) -> list[WrittenStep]:
    if len(text) > MAX_STEP:
        raise where.error(f"a step of {len(text):,} characters", f"at most {MAX_STEP:,}")
    try:
        return _steps_of(_body(text), text, where)
    except SyntaxError as error:
        found = f"{format_value(text)}: {error.msg} at column {error.offset or 1}"
        raise where.error(found, _EXAMPLE) from None
    except (MemoryError, RecursionError):
        raise where.error(f"{format_value(text)}, nested too deeply to read", _EXAMPLE) from None
    except ValueError:
        raise where.error(f"{format_value(text)} with a NUL", _EXAMPLE) from None


@lru_cache(maxsize=4096)
def _body(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def _steps_of(body: list[ast.stmt], text: str, where: Where) -> list[WrittenStep]:
    if len(body) != 1 or not isinstance(body[0], ast.Assign) or len(body[0].targets) != 1:
        raise where.error(format_value(text), _EXAMPLE)
    target, value = body[0].targets[0], body[0].value
    if not isinstance(target, ast.Name):
        raise _unexpected(target, where, "the name of the result")
    result = typed_fields.identifier(target.id, where)
    steps: list[WrittenStep] = []
    if isinstance(_operand(value, result, steps, where), str) and steps:
        # The outermost op comes last and makes the named result.
        steps[-1] = msgspec.structs.replace(steps[-1], result=result, named=True)
        return steps
    raise _unexpected(value, where, "an op such as matmul(x, w)")


def _unexpected(node: ast.AST, where: Where, wanted: str) -> Exception:
    column = getattr(node, "col_offset", 0) + 1
    return where.error(f"{format_value(ast.unparse(node))} at column {column}", wanted)


def _operand(
    node: ast.expr, result: str, steps: list[WrittenStep], where: Where
) -> str | int | float | bool:
    """The name or number that an expression stands for. Adds its steps to ``steps``.

    Parts of a step without a name are numbered: ``l = sum(z * z)`` makes l_1.
    """
    layout: Any = None
    params: dict[str, Any] = {}
    asked_at = where
    match node:
        case ast.Name(id=name):
            return name
        case ast.Constant(value=bool() | int() | float() as value):
            return value if isinstance(value, bool) else typed_fields.number(value, where)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return typed_fields.number(-value, where)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            op, written = "negative", [inner]
        case ast.UnaryOp(op=ast.Invert(), operand=inner):
            op, written = "bitwise_not", [inner]
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _INFIX:
            op, written = _INFIX[type(sign)], [left, right]
        case ast.Call(func=ast.Name(id="redistribute")):
            op = "redistribute"
            written, layout, params = _redistribute(node, where)
        case ast.Call(func=ast.Name(id=op), args=written, keywords=keywords):
            params = _params(keywords, where)
            layout, asked_at = _placed(op, params, where, where)
        case _:
            raise _unexpected(node, where, "a name, a finite number or an op")
    args = tuple(_operand(one, result, steps, where) for one in written)
    name = f"{result}_{len(steps) + 1}"
    steps.append(WrittenStep(name, op, args, params, layout, where, asked_at, named=False))
    return name


def _redistribute(node: ast.Call, where: Where) -> tuple[list[ast.expr], Any, dict[str, Any]]:
    placed: dict[str, Any] = {}
    params: dict[str, Any] = {}
    for word in node.keywords:
        if word.arg is None:
            raise _unexpected(word.value, where, "a placement by axis, such as dp=S(0)")
        if word.arg == "view":
            params["view"] = _literal(word.value, where)
        else:
            placed[word.arg] = _placement(word.value)
    if len(node.args) < 2:
        return node.args, placed or None, params
    if placed or len(node.args) > 2:
        wanted = "one layout: P(…), or placements by axis"
        raise _unexpected(node, where, wanted)
    asked = node.args[1]
    if isinstance(asked, ast.List):
        return node.args[:1], [_placement(one) for one in asked.elts], params
    return node.args[:1], ast.unparse(asked), params


def _placement(node: ast.expr) -> Any:
    return node.value if isinstance(node, ast.Constant) else ast.unparse(node)


def _params(keywords: list[ast.keyword], where: Where) -> dict[str, Any]:
    params = {}
    for word in keywords:
        if word.arg is None:
            raise _unexpected(word.value, where, "parameters by name")
        params[word.arg] = _literal(word.value, where)
    return params


# A keyword takes a number, a flag, a text or a list.
_LITERAL = "a literal: tensors are given by position, and keywords take literals"


def _literal(node: ast.expr, where: Where) -> Any:
    if isinstance(node, ast.Name) and node.id in _CONSTANTS:
        return _CONSTANTS[node.id]
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError):
        raise _unexpected(node, where, _LITERAL) from None
    return list(value) if isinstance(value, tuple) else value


# Parameters that make a result larger by this factor.
_GROWS = ("repeats", "classes", "before", "after")


def check_step(step: WrittenStep, known: dict[str, TensorType], later: set[str]) -> Op:
    """The row of a step's op, after a check of its arguments and parameters.

    ``known``: the tensors that exist before the step. ``later``: later results.

    Raises:
        BadInput: an unknown op or name, a wrong number of arguments, or an unknown, missing or
            mistyped parameter.
    """
    where, row = step.where, OPS.get(step.op)
    if row is None:
        meant = OTHER_NAMES.get(step.op)
        wanted = f"{meant}, its name here" if meant else format_known("a known op", step.op, OPS)
        raise where.error(f"op {format_value(step.op)}", wanted)
    most = len(row.args) + len(row.more)
    if not len(row.args) <= len(step.args) <= most:
        wanted = f"{len(row.args)} for {step.op}: {', '.join(row.args) or 'none'}"
        if row.more:
            wanted += f", optionally also {' and '.join(row.more)}"
        raise where.error(format_count(len(step.args), "argument"), wanted)
    for arg in step.args:
        if isinstance(arg, str) and arg not in known:
            found = format_value(arg) + (" before it is made" if arg in later else "")
            raise where.error(
                found, "an input or an earlier result: " + (", ".join(known) or "none")
            )
        if not isinstance(arg, str) and not row.numbers:
            raise where.error(
                f"number {format_value(arg)}", f"names only: {step.op} takes no numbers"
            )
    if row.args and not step.operands:
        raise where.error("numbers only", "at least one input or result as an argument")
    accepted = row.required + row.optional
    for name, value in step.params.items():
        if name not in accepted:
            what = f"a parameter of {step.op}: {', '.join(accepted) or 'it has none'}"
            raise where.error(f"parameter {format_value(name)}", what)
        fits, wanted = PARAMS[name]
        if not fits(value):
            raise where.error(f"{name} = {format_value(value)}", wanted)
    for name in row.required:
        if name not in step.params:
            raise where.error(f"no {name}", f"{step.op} with {', '.join(row.required)}")
    return row


def infer_type(
    row: Op, args: tuple[Any, ...], params: dict[str, Param], framework: str = ""
) -> TensorType:
    """Shape and dtype of an op's result, from its meaning in NumPy.

    ``args``: `TensorType` or numbers. Small sizes replace large ones if the op only compares
    sizes, which saves memory. ``framework``: uses that framework's own meaning of the op.

    Raises:
        ValueError: NumPy refuses the arguments. The text is NumPy's.
    """
    small: dict[int, int] = {}
    if _is_blind(row, args) and params.keys() <= _SIZELESS:
        sizes = {size for arg in args if isinstance(arg, TensorType) for size in arg.shape}
        small = {size: 17 + i for i, size in enumerate(sorted(sizes - set(range(17))))}
    large = {short: size for size, short in small.items()}
    stand_ins = [
        _stand_in(arg.dtype, tuple(small.get(size, size) for size in arg.shape), row.family)
        if isinstance(arg, TensorType)
        else arg
        for arg in args
    ]
    heavy = max(
        (math.prod(one.shape) for one in stand_ins if isinstance(one, np.ndarray)), default=0
    )
    if heavy > MAX_ELEMENTS:
        raise ValueError(f"{heavy:,} elements, more than {MAX_ELEMENTS:,} to infer a shape")
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            # The mean of no elements is NaN, as in the frameworks.
            warnings.simplefilter("ignore", RuntimeWarning)
            own = row.apart.get(framework)
            apart = own is not None and own.differs(tuple(stand_ins), params)
            made = np.asarray((own if apart and own else row).meaning(*stand_ins, **params))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        text = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(re.sub(r"\d+", lambda n: str(large.get(int(n[0]), n[0])), text)) from None
    return TensorType(tuple(large.get(int(n), int(n)) for n in made.shape), made.dtype.name)


# Families and ops that only compare sizes, and parameters that are no sizes.
_BLIND = ("pointwise", "reduction", "move", "normalisation", "loss", "ordering")
_BLIND_OPS = (
    "matmul", "einsum", "linear", "addmm", "outer", "vecdot", "grad", "embedding", "dropout",
    "scaled_dot_product_attention",
)  # fmt: skip
_SIZELESS = {
    "axis", "keepdims", "subscripts", "dtype", "correction", "ord", "eps", "descending",
    "reduction", "causal", "p", "seed", "draw", "seeding",
}  # fmt: skip


def _is_blind(row: Op, args: tuple[Any, ...]) -> bool:
    """Whether other sizes may replace the sizes of the arguments."""
    if row.name == "scaled_dot_product_attention":
        # The size of a group of heads is a quotient of sizes.
        return len({arg.shape[:-2] for arg in args if isinstance(arg, TensorType)}) == 1
    return row.family in _BLIND or row.name in _BLIND_OPS


@lru_cache(maxsize=4096)
def _stand_in(dtype: str, shape: tuple[int, ...], family: str) -> Any:
    if family == "linalg" and len(shape) > 1:
        # A matrix of ones has no inverse.
        return np.broadcast_to(np.eye(*shape[-2:], dtype=numpy_dtype(dtype)), shape)
    return np.broadcast_to(np.ones((), numpy_dtype(dtype)), shape)


def infer_result(
    step: WrittenStep | Step, row: Op, known: dict[str, TensorType], where: Where
) -> TensorType:
    """Like `infer_type`, for a step on ``known`` tensors.

    Raises:
        BadInput: the op does not accept the shapes or dtypes.
    """
    args = tuple(known[arg] if isinstance(arg, str) else arg for arg in step.args)
    for name in _GROWS:
        factor = step.params.get(name, 0)
        size = max((arg.size for arg in args if isinstance(arg, TensorType)), default=1)
        if isinstance(factor, int) and factor * size > MAX_ELEMENTS:
            raise where.error(
                f"{name} = {factor:,} of {size:,}", f"at most {MAX_ELEMENTS:,} elements"
            )
    try:
        made = infer_type(row, args, step.params)
    except ValueError as error:
        said = ", ".join(_format_argument(arg) for arg in args)
        wanted = f"arguments that {step.op} takes (NumPy: {error})"
        raise where.error(said, wanted) from None
    if made.dtype not in DTYPES:
        raise where.error(f"a result of dtype {made.dtype}", "a dtype that both frameworks have")
    return made


def _format_argument(arg: TensorType | float) -> str:
    return f"{arg.dtype}{list(arg.shape)}" if isinstance(arg, TensorType) else str(arg)


def check_size(tensor: TensorType, mode: str, where: Where) -> None:
    """Refuses a tensor that is too large.

    Raises:
        BadInput: more than `MAX_NDIM` dims, or in mode real more than `MAX_ELEMENTS` elements.
    """
    if len(tensor.shape) > MAX_NDIM:
        raise where.error(f"{len(tensor.shape)} dims", f"at most {MAX_NDIM}")
    if mode == "real" and tensor.size > MAX_ELEMENTS:
        raise where.error(f"{tensor.size:,} elements", f"at most {MAX_ELEMENTS:,} in mode real")


def infer_types(question: Question, framework: str = "") -> dict[str, TensorType]:
    """Global shape and dtype of every input and result in a framework, in program order.

    Raises:
        ValueError: NumPy refuses a step. `load` refuses such a step first.
    """
    known = {given.name: TensorType(given.shape, given.dtype) for given in question.inputs}
    for step in question.steps:
        args = step.arguments(known)
        known[step.result] = infer_type(OPS[step.op], args, step.params, framework)
    return known
