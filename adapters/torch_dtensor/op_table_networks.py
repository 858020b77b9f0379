"""How does torch spell indexing, layers, losses, and what makes or leaves a DTensor?

The second part of the table in `rows`: the same form, the same rules.
"""

from __future__ import annotations

import msgspec

from adapters.torch_dtensor.python_text import (
    Call,
    OpFormatter,
    Unsayable,
    form,
    format_literal,
    function,
    index_at_dim,
)


def _long(call: Call, place: int) -> str:
    """An argument of indices, where torch takes 64-bit ones only."""
    text = call.args[place]
    return text if call.typed(place).dtype == "int64" else f"{text}.long()"


def _place(call: Call, place: int) -> str:
    """An argument of indices between brackets, where torch takes bytes for a mask."""
    typed = call.known().get(str(call.step.args[place]))
    narrow = typed is not None and typed.dtype not in ("int32", "int64")
    return f"{call.args[place]}.long()" if narrow else call.args[place]


def _take_along(call: Call) -> str:
    return f"torch.take_along_dim({call.args[0]}, {_long(call, 1)}, dim={call.integer('axis')})"


def _scatter(name: str) -> OpFormatter:
    """torch.scatter writes as far as its indices go; NumPy repeats those of size 1."""

    def row(call: Call) -> str:
        axis, x, i = call.integer("axis"), call.typed(0).shape, call.typed(1).shape
        if name == "torch.scatter" and any(
            a != b for dim, (a, b) in enumerate(zip(x, i)) if dim != axis % len(x)
        ):
            raise Unsayable("torch.scatter does not repeat its indices")
        return f"{name}({call.args[0]}, {axis}, {_long(call, 1)}, {call.args[2]})"

    return row


def _at_rows(method: str) -> OpFormatter:
    def row(call: Call) -> str:
        x, _, v = call.args
        return f"{x}.{method}({call.integer('axis')}, {_long(call, 1)}, {v})"

    return row


def _embedding(call: Call) -> str:
    skipped = call.params.get("padding_row")
    padding = "" if skipped is None else f", padding_idx={skipped}"
    return f"F.embedding({call.args[0]}, {call.args[1]}{padding})"


def _start(call: Call, place: int, length: int) -> str:
    """A start read from a tensor and moved back to where ``length`` elements are."""
    last = call.typed(0).shape[call.integer("axis")] - length
    return f"min(max(int({call.args[place]}), 0), {last})"


def _dynamic_slice(call: Call) -> str:
    length = call.integer("size")
    return (
        f"torch.narrow({call.args[0]}, {call.integer('axis')}, {_start(call, 1, length)}, {length})"
    )


def _dynamic_update(call: Call) -> str:
    length = call.typed(1).shape[call.integer("axis")]
    start = _start(call, 2, length)
    span = f"dim={call.integer('axis')}, start={start}, end={start} + {length}"
    return f"torch.slice_scatter({call.args[0]}, {call.args[1]}, {span})"


def _assign_slice(call: Call) -> str:
    """What ``y[2:4] = v`` calls, on a copy; as an expression, since that is a statement."""
    axis = call.integer("axis")
    parts = ["slice(None)"] * (axis if axis >= 0 else len(call.typed(0).shape) + axis)
    start, stop, step = (call.params.get(name) for name in ("start", "stop", "step"))
    parts.append(f"slice({start}, {stop}, {step})")
    new = call.args[1] if len(call.args) > 1 else format_literal(call.params["value"])
    made = f"(_copy.__setitem__(({', '.join(parts)},), _new), _copy)[1]"
    return f"(lambda _copy, _new: {made})({call.args[0]}.clone(), {new})"


def _set_slice(call: Call) -> str:
    """An assignment is no expression; this is the one that has a slice and a new result."""
    x, axis, span = call.args[0], call.integer("axis"), call.span
    if len(call.args) == 1:
        new = f"torch.full_like({x}[{index_at_dim(axis, span)}], {format_literal(call.params['value'])})"
    else:
        new, shape = call.args[1], list(call.typed(0).shape)
        numbers = (int(text) if text else None for text in span.split(":"))
        shape[axis] = len(range(shape[axis])[slice(*numbers)])
        if call.typed(1).shape != tuple(shape):
            new = f"torch.broadcast_to({new}, {tuple(shape)})"
    scatter = function("torch.slice_scatter", axis="dim", start="start", stop="end", step="step")
    return scatter(msgspec.structs.replace(call, args=(x, new)))


def _inplace(method: str) -> OpFormatter:
    """Of a clone, so that the operand stays what it was."""
    return lambda call: f"{call.args[0]}.clone().{method}({call.args[1]})"


def _norm(name: str) -> OpFormatter:
    """Over the last dim. Torch's own eps of rms_norm is another."""

    def row(call: Call) -> str:
        last = call.typed(0).shape[-1]
        eps = format_literal(call.params.get("eps", 1e-5))
        weights = "".join(f", {text}" for text in call.args[1:])
        return f"{name}({call.args[0]}, ({last},){weights}, eps={eps})"

    return row


def _loss(name: str, **words: str) -> OpFormatter:
    return function(name, "", None, reduction="reduction", **words)


def _by_class(name: str) -> OpFormatter:
    """Of x, classes and perhaps weights."""
    row = _loss(name, ignore="ignore_index")

    def wide(call: Call) -> str:
        x, _, *weights = call.args
        return row(msgspec.structs.replace(call, args=(x, _long(call, 1), *weights)))

    return wide


def _dtype(call: Call) -> str:
    return f"torch.{call.params.get('dtype', 'float32')}"


def _arange(call: Call) -> str:
    made = f"torch.arange({call.params['n']}, dtype={_dtype(call)})"
    return f"distribute_tensor({made}, {call.home}{call.placements})"


def _full(call: Call) -> str:
    value = format_literal(call.params["value"])
    made = f"{format_literal(call.params['shape'])}, {value}, dtype={_dtype(call)}"
    return f"dtensor.full({made}, device_mesh={call.home}{call.placements})"


def _from_local(call: Call) -> str:
    """As users write it: without the global shape, which torch then takes from even shards."""
    return f"DTensor.from_local({call.args[0]}, {call.home}{call.placements}, run_check=False)"


def _map_shards(call: Call) -> str:
    where = call.placements.removeprefix(", placements=")
    return (
        f"local_map(lambda _t: _t * {format_literal(call.params['scale'])}, out_placements={where},"
        f" in_placements=({where},), device_mesh={call.home})({call.args[0]})"
    )


def _item(call: Call) -> str:
    return f"torch.tensor({call.args[0]}.item(), dtype={call.args[0]}.dtype)"


NETWORK_OPS: dict[str, OpFormatter] = {
    # Indexing.
    "take": lambda call: f"{call.args[0]}[{index_at_dim(call.integer('axis'), _place(call, 1))}]",
    "take_along_axis": _take_along,
    "scatter": _scatter("torch.scatter"),
    "scatter_add": _scatter("torch.scatter_add"),
    "scatter_rows": _at_rows("index_copy"),
    "scatter_add_rows": _at_rows("index_add"),
    "index_put": lambda call: (
        f"{call.args[0]}.index_put(({_place(call, 2)}, {_place(call, 3)}), {call.args[1]})"),
    "masked_fill": lambda call: (
        f"{call.args[0]}.masked_fill({call.args[1]}, {format_literal(call.params['value'])})"),
    "embedding": _embedding,
    "one_hot": lambda call: f"F.one_hot({_long(call, 0)}, {call.params['classes']})",
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update,
    "set_slice": _set_slice,
    "assign_slice": _assign_slice,
    "inplace_add": _inplace("add_"),
    "inplace_subtract": _inplace("sub_"),
    "inplace_multiply": _inplace("mul_"),
    "inplace_fill": lambda call: f"{call.args[0]}.clone().fill_({format_literal(call.params['value'])})",
    # Layers and losses.
    "layer_norm": _norm("F.layer_norm"),
    "rms_norm": _norm("F.rms_norm"),
    "mse_loss": _loss("F.mse_loss"),
    "l1_loss": _loss("F.l1_loss"),
    "huber_loss": _loss("F.huber_loss", delta="delta"),
    "smooth_l1_loss": _loss("F.smooth_l1_loss", beta="beta"),
    "binary_cross_entropy": _loss("F.binary_cross_entropy"),
    "binary_cross_entropy_with_logits": _loss("F.binary_cross_entropy_with_logits"),
    "kl_div": _loss("F.kl_div"),
    "nll_loss": _by_class("F.nll_loss"),
    "cross_entropy": _by_class("F.cross_entropy"),
    # What makes a DTensor, leaves it, or goes back through a program.
    "arange": _arange,
    "full": _full,
    "to_local": form("{0}.to_local()"),
    "from_local": _from_local,
    "full_tensor": form("{0}.full_tensor()"),
    # Every rank has the whole: without a source none has to send it.
    "distribute": lambda call: (
        f"distribute_tensor({call.args[0]}, {call.home}{call.placements}, src_data_rank=None)"),
    "map_shards": _map_shards,
    "item": _item,
    "grad": form("torch.autograd.grad({0}, {1}, retain_graph=True)[0]"),
}  # fmt: skip
