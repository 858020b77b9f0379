"""Which line of JAX does each op become? `adapters.op_lines` explains the syntax of the table.

Slots are arguments, parameters, ``{mesh}``, ``{key}`` for a seed, ``{spec}`` for the requested
layout, and ``{sharding}``. The last exists only if the route requests a layout from the op itself.
``{, out_sharding=sharding}`` is empty in a release whose function lacks that argument. This module
does not import jax: lines are text here.
"""

from __future__ import annotations

from adapters.jax_xla import op_functions as functions
from adapters.jax_xla.op_functions import Call, by_class, loss, since
from adapters.op_lines import Entry

_BINARY = {
    "jnp": (
        "add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "remainder",
        "floor_divide", "hypot", "logaddexp", "equal", "not_equal", "less", "less_equal", "greater",
        "greater_equal", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or",
        "bitwise_xor", "outer",
    ),
    "jnp.linalg": ("solve",),
}  # fmt: skip
_UNARY = {
    "jnp": (
        "bitwise_not", "negative", "abs", "square", "sign", "logical_not", "isnan", "isfinite",
        "floor", "ceil", "round", "exp", "expm1", "log", "log1p", "sqrt", "reciprocal", "sin",
        "cos", "tanh", "diagonal",
    ),
    "jax.lax": ("rsqrt",),
    "jax.nn": ("sigmoid", "relu", "silu", "softplus"),
    "jax.scipy.special": ("erf",),
    "jnp.linalg": ("inv", "cholesky", "det"),
}  # fmt: skip
_REDUCTIONS = {
    "jnp": ("sum", "mean", "prod", "max", "min", "any", "all", "argmax", "argmin"),
    "jax.nn": ("logsumexp",),
}
_OVER = "{, axis=axis}{, keepdims=keepdims}"
_OUT = "{, out_sharding=sharding}"
# Normalization over the last dim.
_NORMED = "(lambda _x: _x / jnp.sqrt(jnp.mean(_x * _x, axis=-1, keepdims=True) + {eps:1e-05}))"
_SPAN = "{pre}{start:0}:{stop:None}:{step:1}{post}"
# JAX arrays are immutable, so an assignment to a slice also makes a new array.
_SET_SLICE = (
    f"{{x}}.at[{_SPAN}].set({{v}}{_OUT})",
    f"{{x}}.at[{_SPAN}].set({{value}}{_OUT})",
)
# _i indexes the dim ``axis``. The position of an element in _x (or _i: _WITHIN) indexes the others.
_ALONG = (
    "tuple(_i if _dim == {axis} % _x.ndim else _at "
    "for _dim, _at in enumerate(jnp.indices(_x.shape, sparse=True)))"
)
_WITHIN = _ALONG.replace("_x.shape", "_i.shape")
_SCATTERED = f"(lambda _x, _i, _v: _x.at[{_ALONG}].set(_v{_OUT}))({{x}}, {{i}}, {{v}})"
_PUT = "jnp.put_along_axis({x}, {i}, {v}, axis={axis}, inplace=False)"
# Older releases count negative positions from the end. No case has a negative position.
_SLICED = "jax.lax.dynamic_slice_in_dim({x}, {i}, {size}, {axis}%s)"
_UPDATED = "jax.lax.dynamic_update_slice_in_dim({x}, {v}, {i}, {axis}%s)"
_AS_THEY_ARE = ", allow_negative_indices=False"

OP_TABLE: dict[str, Entry[Call]] = {
    "redistribute": "{x}",
    "identity": "{x}",
    # Pointwise.
    **{op: f"{module}.{op}({{x}}, {{y}})" for module, ops in _BINARY.items() for op in ops},
    **{op: f"{module}.{op}({{x}})" for module, ops in _UNARY.items() for op in ops},
    "atan2": "jnp.arctan2({x}, {y})",
    "left_shift": "{x} << {y}",
    "right_shift": "{x} >> {y}",
    "bitwise_left_shift": "jnp.left_shift({x}, {y})",
    "bitwise_right_shift": "jnp.right_shift({x}, {y})",
    "gelu": "jax.nn.gelu({x}, approximate=False)",
    "clip": since(
        "jnp.clip(min=, max=)",
        "jnp.clip({x}{, min=min}{, max=max})",
        "jnp.clip({x}, {min:None}, {max:None})",
    ),
    "astype": "{x}.astype({dtype})",
    "where": "jnp.where({c}, {x}, {y})",
    # Reductions.
    **{op: f"{module}.{op}({{x}}{_OVER})" for module, ops in _REDUCTIONS.items() for op in ops},
    **{
        op: since(
            f"jnp.{op}(correction=)",
            f"jnp.{op}({{x}}{_OVER}{{, correction=correction}})",
            f"jnp.{op}({{x}}, ddof={{correction:0}}{_OVER})",
        )
        for op in ("var", "std")
    },
    "vector_norm": f"jnp.linalg.vector_norm({{x}}, ord={{ord|order}}{_OVER})",
    "max_with_index": "jnp.argmax({x}, axis={axis})",
    "count_nonzero": "jnp.count_nonzero({x}{, axis=axis})",
    # Contractions.
    "matmul": f"jnp.matmul({{x}}, {{w}}{_OUT})",
    "einsum": f"jnp.einsum({{subscripts}}, {{x}}, {{w}}{_OUT})",
    "linear": f"jnp.matmul({{x}}, {{w}}.T{_OUT}){{ + b}}",
    "addmm": f"jnp.matmul({{x}}, {{w}}{_OUT}) + {{c}}",
    "vecdot": "jnp.vecdot({x}, {y}, axis={axis:-1})",
    "conv1d": functions.convolution(1),
    "conv2d": functions.convolution(2),
    "scaled_dot_product_attention": functions.attention,
    # Shapes.
    "reshape": f"jnp.reshape({{x}}, {{shape}}{_OUT})",
    "flatten": (
        f"jnp.reshape({{x}}, (*{{x}}.shape[:{{start:0}}], -1, *{{x}}.shape[{{end:-1}}:][1:]){_OUT})"
    ),
    "permute_dims": "jnp.transpose({x}, {axes})",
    "matrix_transpose": "jnp.swapaxes({x}, -1, -2)",
    "expand_dims": "jnp.expand_dims({x}, {axis})",
    "squeeze": "jnp.squeeze({x}{, axis})",
    "broadcast_to": "jnp.broadcast_to({x}, {shape})",
    "split": "jnp.split({x}, {sections}, axis={axis})[{part}]",
    "chunk": (
        "(lambda _x, _n: _x[{pre}{part} * _n:({part} + 1) * _n{post}])"
        "({x}, -(-{x}.shape[{axis}] // {chunks}))"
    ),
    "concat": "jnp.concatenate([{x}, {y}], axis={axis})",
    "stack": "jnp.stack([{x}, {y}], axis={axis})",
    "flip": "jnp.flip({x}{, axis})",
    "roll": "jnp.roll({x}, {shift}, axis={axis})",
    "pad": (
        "(lambda _x: jnp.pad(_x, [({before}, {after}) if _dim == {axis} % _x.ndim else (0, 0) "
        "for _dim in range(_x.ndim)], constant_values={value:0}))({x})"
    ),
    "tril": "jnp.tril({x}, {diagonal:0})",
    "triu": "jnp.triu({x}, {diagonal:0})",
    "slice": f"{{x}}[{_SPAN}]",
    "index": "{x}[{pre}{index}{post}]",
    "repeat": f"jnp.repeat({{x}}, {{repeats}}, axis={{axis}}{_OUT})",
    "tile": "jnp.concatenate([{x}] * {repeats}, axis={axis})",
    # Indexing.
    "take": functions.ask_layout(
        "jnp.take({x}, {i}, axis={axis})", "{x}.at[{pre}{i}{post}].get(out_sharding={sharding})"
    ),
    "take_along_axis": functions.ask_layout(
        "jnp.take_along_axis({x}, {i}, axis={axis})",
        f"(lambda _x, _i: _x.at[{_ALONG}].get(out_sharding={{sharding}}))({{x}}, {{i}})",
    ),
    "scatter": functions.ask_layout(
        since("jnp.put_along_axis", _PUT, _SCATTERED), _SCATTERED, "x.at[].set(out_sharding=)"
    ),
    "scatter_add": f"(lambda _x, _i, _v: _x.at[{_WITHIN}].add(_v{_OUT}))({{x}}, {{i}}, {{v}})",
    "scatter_rows": f"{{x}}.at[{{pre}}{{i}}{{post}}].set({{v}}{_OUT})",
    "scatter_add_rows": f"{{x}}.at[{{pre}}{{i}}{{post}}].add({{v}}{_OUT})",
    "index_put": f"{{x}}.at[{{i}}, {{j}}].set({{v}}{_OUT})",
    "masked_fill": "jnp.where({mask}, jnp.asarray({value}, {x}.dtype), {x})",
    "embedding": functions.ask_layout(
        "jnp.take({w}, {i}, axis=0)", "{w}.at[{i}].get(out_sharding={sharding})"
    ),
    "one_hot": "jax.nn.one_hot({i}, {classes}, dtype=jnp.int64)",
    "dynamic_slice": since(
        "jax.lax.dynamic_slice_in_dim(allow_negative_indices=)",
        _SLICED % _AS_THEY_ARE,
        _SLICED % "",
    ),
    "dynamic_update_slice": since(
        "jax.lax.dynamic_update_slice_in_dim(allow_negative_indices=)",
        _UPDATED % _AS_THEY_ARE,
        _UPDATED % "",
    ),
    "set_slice": _SET_SLICE,
    "assign_slice": _SET_SLICE,
    "inplace_add": "({x} + {y}).astype({x}.dtype)",
    "inplace_subtract": "({x} - {y}).astype({x}.dtype)",
    "inplace_multiply": "({x} * {y}).astype({x}.dtype)",
    "inplace_fill": "jnp.full_like({x}, {value})",
    # Order.
    "sort": "jnp.sort({x}{, axis=axis}{, descending=descending})",
    "argsort": "jnp.argsort({x}{, axis=axis}{, descending=descending})",
    "topk_values": functions.top_k("[0]"),
    "topk_indices": functions.top_k("[1].astype(jnp.int64)"),
    "cumulative_sum": "jnp.cumulative_sum({x}, axis={axis:-1})",
    "cumulative_prod": "jnp.cumulative_prod({x}, axis={axis:-1})",
    # Layers and losses.
    "softmax": "jax.nn.softmax({x}, axis={axis:-1})",
    "log_softmax": "jax.nn.log_softmax({x}, axis={axis:-1})",
    "layer_norm": f"{_NORMED}({{x}} - jnp.mean({{x}}, axis=-1, keepdims=True)){{ * w}}{{ + b}}",
    "rms_norm": f"{_NORMED}({{x}}){{ * w}}",
    "mse_loss": loss("jnp.square({x} - {y})"),
    "l1_loss": loss("jnp.abs({x} - {y})"),
    "huber_loss": loss(
        "(lambda _d: jnp.where(_d < {delta:1.0}, 0.5 * _d * _d, "
        "{delta:1.0} * (_d - 0.5 * {delta:1.0})))"
        "(jnp.abs({x} - {y}))"
    ),
    "smooth_l1_loss": loss(
        "(lambda _d: jnp.where(_d < {beta:1.0}, 0.5 * _d * _d / {beta:1.0}, "
        "_d - 0.5 * {beta:1.0}))"
        "(jnp.abs({x} - {y}))"
    ),
    "binary_cross_entropy": loss("-({y} * jnp.log({x}) + (1 - {y}) * jnp.log1p(-{x}))"),
    "binary_cross_entropy_with_logits": loss("jax.nn.softplus({x}) - {x} * {y}"),
    "kl_div": loss("jax.scipy.special.xlogy({y}, {y}) - {y} * {x}"),
    "nll_loss": by_class("{x}"),
    "cross_entropy": by_class("jax.nn.log_softmax({x}, axis=1)"),
    # Fourier transforms.
    "fft": "jnp.fft.fft({x}, axis={axis:-1})",
    "ifft": "jnp.fft.ifft({x}, axis={axis:-1})",
    # Ops that make an array or leave the global view. jit has no local view, so those return the
    # array itself.
    "arange": f"jnp.arange({{n}}, dtype={{dtype:'float32'}}{_OUT})",
    "full": f"jnp.full({{shape}}, {{value}}, dtype={{dtype:'float32'}}{_OUT})",
    "random_uniform": functions.random_array("uniform"),
    "random_normal": functions.random_array("normal"),
    "inplace_uniform": functions.random_in_place("uniform"),
    "inplace_normal": functions.random_in_place("normal"),
    "dropout": "jnp.where(jax.random.bernoulli({key}, 1.0 - {p}, {x}.shape), {x} / (1 - {p}), 0)",
    "to_local": "{x}",
    "from_local": "{x}",
    "full_tensor": "{x}",
    "distribute": functions.ask_layout("{x}", "jax.device_put({x}, {sharding})"),
    "map_shards": (
        "jax.shard_map(lambda _t: _t * {scale}, mesh={mesh}, "
        "in_specs={spec}, out_specs={spec})({x})"
    ),
    "item": "jnp.reshape({x}, ())",
    # `source_lines` writes the function ``{y}_of`` above this line.
    "grad": "jax.grad({y}_of)({x})",
}
