"""How does torch spell each op? One row per op: a line of Python, run and printed alike.

The spelling is the one that a user of DTensor would write, since what is looked at is how
DTensor shards just that. Knows no torch: lines are text here. Networks, indexing and what
leaves the global view are in `rows_networks`.
"""

from __future__ import annotations

from adapters.torch_dtensor.op_table_networks import NETWORK_OPS
from adapters.torch_dtensor.op_table_random import RANDOM_OPS
from adapters.torch_dtensor.python_text import (
    Call,
    OpFormatter,
    Unsayable,
    form,
    format_literal,
    function,
    index_at_dim,
)
from cases.model import Param


def _operator(sign: str) -> OpFormatter:
    """Operators, since torch.add and its kin refuse a number on the left."""

    def row(call: Call) -> str:
        left, right = call.args
        if sign == "**" and left[0] == "-":
            # A power binds tighter than the sign of a number before it.
            left = f"({left})"
        return f"{left} {sign} {right}"

    return row


def _tensors(name: str) -> OpFormatter:
    """A function that takes tensors only: a number becomes one."""

    def row(call: Call) -> str:
        given = zip(call.args, call.step.args, strict=True)
        texts = [text if isinstance(arg, str) else f"torch.tensor({text})" for text, arg in given]
        return f"{name}({', '.join(texts)})"

    return row


def _limit(name: str, bound: str) -> OpFormatter:
    """torch.maximum and torch.minimum take tensors only; with a number they are clamps."""

    def row(call: Call) -> str:
        given = call.step.args
        numbers = [text for text, arg in zip(call.args, given) if not isinstance(arg, str)]
        tensors = [text for text, arg in zip(call.args, given) if isinstance(arg, str)]
        if not numbers:
            return f"{name}({', '.join(tensors)})"
        if not tensors:
            raise Unsayable(f"{name} of two numbers")
        return f"torch.clamp({tensors[0]}, {bound}={numbers[0]})"

    return row


def _dims(axis: Param, what: str) -> Param:
    if axis == []:
        raise Unsayable(f"{what} takes no dims for all dims")
    return axis


def _reduction(
    name: str, over_dims: str = "", every: str = ", dim=None", **words: str
) -> OpFormatter:
    """A reduction by ``name`` over everything, by ``over_dims`` over some dims.

    ``every``: the dims of one over everything that keeps them; some do without.
    ``words``: as `function` has them.
    """
    over_dims = over_dims or name

    def row(call: Call) -> str:
        dims = _dims(call.params.get("axis"), over_dims)
        kept = ", keepdim=True" if call.params.get("keepdims") else ""
        more = "".join(
            f", {word}={format_literal(call.params[ours])}"
            for ours, word in words.items()
            if ours in call.params
        )
        if dims is None and not kept:
            return f"{name}({call.args[0]}{more})"
        over = every if dims is None else f", dim={format_literal(dims)}"
        return f"{over_dims}({call.args[0]}{more}{over}{kept})"

    return row


def _product(call: Call) -> str:
    dims = _dims(call.params.get("axis"), "torch.prod")
    kept = ", keepdim=True" if call.params.get("keepdims") else ""
    if isinstance(dims, list):
        if len(dims) > 1:
            raise Unsayable("torch.prod is over one dim or all")
        dims = dims[0]
    if dims is None:
        if kept:
            raise Unsayable("torch.prod over all dims keeps none")
        return f"torch.prod({call.args[0]})"
    return f"torch.prod({call.args[0]}, dim={dims}{kept})"


def _spread(name: str) -> OpFormatter:
    """Variances; torch's own divide by one less than there are."""

    def row(call: Call) -> str:
        dims = format_literal(_dims(call.params.get("axis"), name))
        correction = call.params.get("correction", 0)
        kept = ", keepdim=True" if call.params.get("keepdims") else ""
        return f"{name}({call.args[0]}, dim={dims}, correction={correction}{kept})"

    return row


def _norm(call: Call) -> str:
    order = call.params.get("ord", 2)
    dims = _dims(call.params.get("axis"), "torch.linalg.vector_norm")
    over = "" if dims is None else f", dim={format_literal(dims)}"
    kept = ", keepdim=True" if call.params.get("keepdims") else ""
    order = float("inf") if order == "inf" else order
    return f"torch.linalg.vector_norm({call.args[0]}, ord={format_literal(order)}{over}{kept})"


def _logsumexp(call: Call) -> str:
    """Torch has it over dims that are named only."""
    dims = _dims(call.params.get("axis"), "torch.logsumexp")
    over = call.every_dim if dims is None else dims
    kept = ", keepdim=True" if call.params.get("keepdims") else ""
    return f"torch.logsumexp({call.args[0]}, dim={format_literal(over)}{kept})"


def _clip(call: Call) -> str:
    bounds = [f"{word}={format_literal(call.params[word])}" for word in ("min", "max")
              if call.params.get(word) is not None]  # fmt: skip
    return f"torch.clamp({', '.join((call.args[0], *bounds))})"


def _joined(name: str) -> OpFormatter:
    """Of a list of tensors."""
    return lambda call: (
        f"{name}([{', '.join(call.args)}], dim={format_literal(call.params['axis'])})"
    )


def _split(call: Call) -> str:
    axis = call.integer("axis")
    size = call.typed(0).shape[axis] // call.integer("sections")
    return f"torch.split({call.args[0]}, {size}, dim={axis})[{call.params['part']}]"


def _chunk(call: Call) -> str:
    given = call.params
    return f"torch.chunk({call.args[0]}, {given['chunks']}, dim={given['axis']})[{given['part']}]"


def _flip(call: Call) -> str:
    axis = call.params["axis"]
    dims = call.every_dim if axis is None else axis
    listed: Param = dims if isinstance(dims, list) else [call.integer("axis")]
    return f"torch.flip({call.args[0]}, dims={format_literal(listed)})"


def _pad(call: Call) -> str:
    """F.pad counts from the last dim."""
    shape, given = call.typed(0).shape, call.params
    later = len(shape) - 1 - call.integer("axis") % len(shape)
    widths = (*(0, 0) * later, given["before"], given["after"])
    value = f", value={format_literal(given['value'])}" if "value" in given else ""
    return f"F.pad({call.args[0]}, {widths}{value})"


def _tile(call: Call) -> str:
    times = [1] * len(call.typed(0).shape)
    times[call.integer("axis")] = call.integer("repeats")
    return f"torch.tile({call.args[0]}, {tuple(times)})"


def _slice(call: Call) -> str:
    return f"{call.args[0]}[{index_at_dim(call.integer('axis'), call.span)}]"


def _index(call: Call) -> str:
    axis = call.integer("axis")
    return f"{call.args[0]}[{index_at_dim(axis, str(call.params['index']))}]"


def _einsum(call: Call) -> str:
    return f"torch.einsum({call.params['subscripts']!r}, {', '.join(call.args)})"


def _sorted(name: str, after: str = "") -> OpFormatter:
    """Equal elements keep their order."""
    stable: dict[str, Param] = {"stable": True}
    return function(name, after, stable, axis="dim", descending="descending", stable="stable")


_LAST: dict[str, Param] = {"axis": -1}

OP_TABLE: dict[str, OpFormatter] = {
    "redistribute": lambda call: (
        f"{call.args[0]}.redistribute({call.home}{call.placements})" if "view" in call.params
        else f"{call.args[0]}.redistribute({call.placements[2:]})"),
    "identity": form("{0}"),
    # Pointwise.
    "add": _operator("+"),
    "subtract": _operator("-"),
    "multiply": _operator("*"),
    "divide": _operator("/"),
    "power": _operator("**"),
    "remainder": _operator("%"),
    "floor_divide": _operator("//"),
    "equal": _operator("=="),
    "not_equal": _operator("!="),
    "less": _operator("<"),
    "less_equal": _operator("<="),
    "greater": _operator(">"),
    "greater_equal": _operator(">="),
    "left_shift": _operator("<<"),
    "right_shift": _operator(">>"),
    **{name: form(f"torch.{name}({{0}}, {{1}})") for name in (
        "bitwise_left_shift", "bitwise_right_shift", "bitwise_and", "bitwise_or", "bitwise_xor")},
    "bitwise_not": form("torch.bitwise_not({0})"),
    "maximum": _limit("torch.maximum", "min"),
    "minimum": _limit("torch.minimum", "max"),
    **{name: _tensors(f"torch.{name}") for name in (
        "atan2", "hypot", "logaddexp", "logical_and", "logical_or", "logical_xor")},
    "negative": form("torch.neg({0})"),
    **{name: form(f"torch.{name}({{0}})") for name in (
        "abs", "square", "sign", "logical_not", "isnan", "isfinite", "floor", "ceil", "round",
        "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh",
        "sigmoid", "erf", "relu")},
    **{name: form(f"F.{name}({{0}})") for name in ("gelu", "silu", "softplus")},
    "clip": _clip,
    "astype": lambda call: f"{call.args[0]}.to(torch.{call.params['dtype']})",
    "where": form("torch.where({0}, {1}, {2})"),
    # Reductions.
    "sum": _reduction("torch.sum"),
    "mean": _reduction("torch.mean"),
    "max": _reduction("torch.max", "torch.amax", ""),
    "min": _reduction("torch.min", "torch.amin", ""),
    "prod": _product,
    "any": _reduction("torch.any"),
    "all": _reduction("torch.all"),
    "var": _spread("torch.var"),
    "std": _spread("torch.std"),
    "vector_norm": _norm,
    "logsumexp": _logsumexp,
    "argmax": _reduction("torch.argmax"),
    "argmin": _reduction("torch.argmin"),
    "max_with_index": function("torch.max", ".indices", axis="dim"),
    "count_nonzero": _reduction("torch.count_nonzero"),
    # Contractions.
    "matmul": form("torch.matmul({0}, {1})"),
    "einsum": _einsum,
    "linear": function("F.linear"),
    "addmm": form("torch.addmm({0}, {1}, {2})"),
    "outer": form("torch.outer({0}, {1})"),
    "vecdot": function("torch.linalg.vecdot", fixed=_LAST, axis="dim"),
    "conv1d": function("F.conv1d", stride="stride", padding="padding"),
    "conv2d": function("F.conv2d", stride="stride", padding="padding"),
    "scaled_dot_product_attention": function(
        "F.scaled_dot_product_attention", causal="is_causal"),
    # Shapes.
    "reshape": function("torch.reshape", shape="shape"),
    "flatten": function("torch.flatten", start="start_dim", end="end_dim"),
    "permute_dims": function("torch.permute", axes="dims"),
    "matrix_transpose": form("torch.transpose({0}, -2, -1)"),
    "expand_dims": function("torch.unsqueeze", axis="dim"),
    "squeeze": function("torch.squeeze", axis="dim"),
    "broadcast_to": function("torch.broadcast_to", shape="size"),
    "split": _split,
    "chunk": _chunk,
    "concat": _joined("torch.cat"),
    "stack": _joined("torch.stack"),
    "flip": _flip,
    "roll": function("torch.roll", shift="shifts", axis="dims"),
    "pad": _pad,
    "tril": function("torch.tril", diagonal="diagonal"),
    "triu": function("torch.triu", diagonal="diagonal"),
    "diagonal": form("torch.diagonal({0})"),
    "slice": _slice,
    "index": _index,
    "repeat": function("torch.repeat_interleave", repeats="repeats", axis="dim"),
    "tile": _tile,
    # Order.
    "sort": _sorted("torch.sort", ".values"),
    "argsort": _sorted("torch.argsort"),
    "topk_values": function("torch.topk", ".values", k="k", axis="dim"),
    "topk_indices": function("torch.topk", ".indices", k="k", axis="dim"),
    "cumulative_sum": function("torch.cumsum", fixed=_LAST, axis="dim"),
    "cumulative_prod": function("torch.cumprod", fixed=_LAST, axis="dim"),
    # Algebra.
    **{name: form(f"torch.linalg.{name}({{0}})") for name in ("inv", "cholesky", "det")},
    "solve": form("torch.linalg.solve({0}, {1})"),
    "fft": function("torch.fft.fft", axis="dim"),
    "ifft": function("torch.fft.ifft", axis="dim"),
    "softmax": function("torch.softmax", fixed=_LAST, axis="dim"),
    "log_softmax": function("torch.log_softmax", fixed=_LAST, axis="dim"),
    **NETWORK_OPS,
    **RANDOM_OPS,
}  # fmt: skip
