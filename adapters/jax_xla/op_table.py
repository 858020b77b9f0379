"""How does JAX spell each op? One row per op: the text of an expression, run and printed alike.

Knows no jax: a row is text here, and how its slots are filled is in `lines`. Refuses to know
what an op means: that is `cases.ops`.
"""

from __future__ import annotations

import msgspec


class Spelling(msgspec.Struct, frozen=True):
    """One op in JAX.

    ``text`` is a Python expression with slots: ``{x}`` for an argument or a parameter,
    ``{axis:-1}`` with the text that stands there if it is not given; ``{params}`` for the given
    parameters without a slot, as keywords; ``{out:f}`` where the call of f, which is all of the op,
    takes the layout of its result, ``{within:f}`` where more is done after. ``{pre}`` and
    ``{post}`` are what stands before and after the index of dim ``axis`` in brackets;
    ``{strides}`` and ``{pads}`` are ``stride`` and ``padding`` for each place; ``{key}`` is that of
    a seed.

    ``more``: the text with one optional argument, with two. ``given``: the text where a
    parameter is given that asks for another. ``out``: the text where a layout
    is asked of the op itself, if only another spelling takes one; ``{sharding}`` is that layout.
    ``words``: per parameter, the text that stands for a value of it. ``without``: by a name of
    `names.NAMES`, a part of the text and what stands there in a release that lacks it; a parameter
    that has no slot then is not to be had.
    """

    text: str
    more: tuple[str, ...] = ()
    out: str = ""
    given: dict[str, str] = {}
    words: dict[str, dict[str, str]] = {}
    without: dict[str, tuple[str, str]] = {}


_REDUCTION = {"reduction": {"mean": "jnp.mean", "sum": "jnp.sum", "none": ""}}
# Of _h, which holds for each row the weight of its class there, and nothing for ignored rows.
_BY_CLASS = {"reduction": {
    "mean": "-jnp.sum(_h * _x) / jnp.sum(_h)",
    "sum": "-jnp.sum(_h * _x)",
    "none": "-jnp.sum(_h * _x, axis=1)",
}}  # fmt: skip
_HOT = "jax.nn.one_hot(jnp.where({t} == {ignore:-100}, -1, {t}), {x}.shape[1], dtype={x}.dtype)"
_CAUSAL = {"causal": {
    "True": "jnp.where(jnp.tri(*_s.shape[-2:], dtype=bool), _s, -jnp.inf)", "False": "_s",
}}  # fmt: skip
# _i along one dim, and along every other where an element stands: in _x, or in _i if smaller.
_ALONG = (
    "tuple(_i if _dim == {axis} % _x.ndim else _at "
    "for _dim, _at in enumerate(jnp.indices(_x.shape, sparse=True)))"
)
_WITHIN = _ALONG.replace("_x.shape", "_i.shape")
_AT_PLACES, _PLACED = f"(lambda _x, _i, _v: _x.at[{_ALONG}]", "({x}, {i}, {v})"
# Older releases count negative places from the end; no case has one.
_AS_THEY_ARE = ", allow_negative_indices=False"
_DEGREES = ("{params}", ", ddof={correction:0}{params}")
_SOME = "axis_names={*{distinct}}"
_CONV = Spelling(
    "jax.lax.conv_general_dilated({x}, {w}, {strides}, {pads}{out:jax.lax.conv_general_dilated})"
)
_NORMED = "(lambda _x: _x / jnp.sqrt(jnp.mean(_x * _x, axis=-1, keepdims=True) + {eps:1e-05}))"
_CENTRED = "({x} - jnp.mean({x}, axis=-1, keepdims=True))"


def _loss(each: str) -> Spelling:
    return Spelling(f"{{reduction:mean}}({each})", words=_REDUCTION)


def _by_class(logs: str) -> Spelling:
    text = "(lambda _h, _x: {reduction:mean})"
    return Spelling(
        f"{text}({_HOT}, {logs})", more=(f"{text}({_HOT} * {{w}}, {logs})",), words=_BY_CLASS
    )


def _array(name: str) -> Spelling:
    text = f"jax.random.{name}({{key}}, {{shape}}, jnp.float32"
    # Drawn whole, and split after it.
    return Spelling(f"{text}{{out:jax.random.{name}}})", given={"whole": f"{text})"})


def _initial(name: str) -> Spelling:
    """Arrays are values here: new ones of the shape and dtype of the old.

    With distinct axes, devices along them fold their place into the key; the others' axes are
    left to the compiler.
    """
    apart = "jax.random.fold_in({key}, jax.lax.axis_index({distinct}))"
    return Spelling(
        f"jax.random.{name}({{key}}, {{x}}.shape, {{x}}.dtype{{out:jax.random.{name}}})",
        given={
            "distinct": f"jax.shard_map(lambda _t: jax.random.{name}({apart}, _t.shape, _t.dtype), "
            "mesh={mesh}, in_specs=P({distinct}), out_specs=P({distinct}), "
            f"{_SOME})({{x}})"
        },
        without={
            "jax.shard_map(axis_names=)": (
                _SOME,
                "auto=frozenset({mesh}.axis_names) - {*{distinct}}",
            )
        },
    )


def _top_k(part: str) -> Spelling:
    return Spelling(
        f"jax.lax.top_k({{x}}, {{k}}, axis={{axis:-1}}){part}",
        without={"jax.lax.top_k(axis=)": (", axis={axis:-1}", "")},
    )


_AT_SLICE = "{x}.at[{pre}{start:0}:{stop:None}:{step:1}{post}]"
# Arrays are values here, so that an assignment to a slice is a new array too.
_SET_SLICE = Spelling(
    f"{_AT_SLICE}.set({{value}}{{out:x.at[].set}})",
    more=(f"{_AT_SLICE}.set({{v}}{{out:x.at[].set}})",),
)

OP_TABLE: dict[str, Spelling] = {
    "redistribute": Spelling("{x}"),
    "identity": Spelling("{x}"),
    # Element by element.
    "add": Spelling("jnp.add({x}, {y})"),
    "subtract": Spelling("jnp.subtract({x}, {y})"),
    "multiply": Spelling("jnp.multiply({x}, {y})"),
    "divide": Spelling("jnp.divide({x}, {y})"),
    "maximum": Spelling("jnp.maximum({x}, {y})"),
    "minimum": Spelling("jnp.minimum({x}, {y})"),
    "power": Spelling("jnp.power({x}, {y})"),
    "remainder": Spelling("jnp.remainder({x}, {y})"),
    "floor_divide": Spelling("jnp.floor_divide({x}, {y})"),
    "atan2": Spelling("jnp.arctan2({x}, {y})"),
    "hypot": Spelling("jnp.hypot({x}, {y})"),
    "logaddexp": Spelling("jnp.logaddexp({x}, {y})"),
    "equal": Spelling("jnp.equal({x}, {y})"),
    "not_equal": Spelling("jnp.not_equal({x}, {y})"),
    "less": Spelling("jnp.less({x}, {y})"),
    "less_equal": Spelling("jnp.less_equal({x}, {y})"),
    "greater": Spelling("jnp.greater({x}, {y})"),
    "greater_equal": Spelling("jnp.greater_equal({x}, {y})"),
    "logical_and": Spelling("jnp.logical_and({x}, {y})"),
    "logical_or": Spelling("jnp.logical_or({x}, {y})"),
    "logical_xor": Spelling("jnp.logical_xor({x}, {y})"),
    "left_shift": Spelling("{x} << {y}"),
    "right_shift": Spelling("{x} >> {y}"),
    "bitwise_left_shift": Spelling("jnp.left_shift({x}, {y})"),
    "bitwise_right_shift": Spelling("jnp.right_shift({x}, {y})"),
    "bitwise_and": Spelling("jnp.bitwise_and({x}, {y})"),
    "bitwise_or": Spelling("jnp.bitwise_or({x}, {y})"),
    "bitwise_xor": Spelling("jnp.bitwise_xor({x}, {y})"),
    "bitwise_not": Spelling("jnp.bitwise_not({x})"),
    "negative": Spelling("jnp.negative({x})"),
    "abs": Spelling("jnp.abs({x})"),
    "square": Spelling("jnp.square({x})"),
    "sign": Spelling("jnp.sign({x})"),
    "logical_not": Spelling("jnp.logical_not({x})"),
    "isnan": Spelling("jnp.isnan({x})"),
    "isfinite": Spelling("jnp.isfinite({x})"),
    "floor": Spelling("jnp.floor({x})"),
    "ceil": Spelling("jnp.ceil({x})"),
    "round": Spelling("jnp.round({x})"),
    "exp": Spelling("jnp.exp({x})"),
    "expm1": Spelling("jnp.expm1({x})"),
    "log": Spelling("jnp.log({x})"),
    "log1p": Spelling("jnp.log1p({x})"),
    "sqrt": Spelling("jnp.sqrt({x})"),
    "rsqrt": Spelling("jax.lax.rsqrt({x})"),
    "reciprocal": Spelling("jnp.reciprocal({x})"),
    "sin": Spelling("jnp.sin({x})"),
    "cos": Spelling("jnp.cos({x})"),
    "tanh": Spelling("jnp.tanh({x})"),
    "sigmoid": Spelling("jax.nn.sigmoid({x})"),
    "erf": Spelling("jax.scipy.special.erf({x})"),
    "relu": Spelling("jax.nn.relu({x})"),
    "gelu": Spelling("jax.nn.gelu({x}, approximate=False)"),
    "silu": Spelling("jax.nn.silu({x})"),
    "softplus": Spelling("jax.nn.softplus({x})"),
    "clip": Spelling(
        "jnp.clip({x}{params})",
        without={"jnp.clip(min=, max=)": ("{params}", ", {min:None}, {max:None}")},
    ),
    "astype": Spelling("{x}.astype({dtype})"),
    "where": Spelling("jnp.where({c}, {x}, {y})"),
    # Reductions.
    "sum": Spelling("jnp.sum({x}{params})"),
    "mean": Spelling("jnp.mean({x}{params})"),
    "prod": Spelling("jnp.prod({x}{params})"),
    "max": Spelling("jnp.max({x}{params})"),
    "min": Spelling("jnp.min({x}{params})"),
    "any": Spelling("jnp.any({x}{params})"),
    "all": Spelling("jnp.all({x}{params})"),
    "var": Spelling("jnp.var({x}{params})", without={"jnp.var(correction=)": _DEGREES}),
    "std": Spelling("jnp.std({x}{params})", without={"jnp.std(correction=)": _DEGREES}),
    "vector_norm": Spelling(
        "jnp.linalg.vector_norm({x}, ord={ord:2}{params})", words={"ord": {"inf": "jnp.inf"}}
    ),
    "logsumexp": Spelling("jax.nn.logsumexp({x}{params})"),
    "argmax": Spelling("jnp.argmax({x}{params})"),
    "argmin": Spelling("jnp.argmin({x}{params})"),
    "max_with_index": Spelling("jnp.argmax({x}, axis={axis})"),
    "count_nonzero": Spelling("jnp.count_nonzero({x}{params})"),
    # Contractions.
    "matmul": Spelling("jnp.matmul({x}, {w}{out:jnp.matmul})"),
    "einsum": Spelling("jnp.einsum({subscripts}, {x}, {w}{out:jnp.einsum})"),
    "linear": Spelling(
        "jnp.matmul({x}, {w}.T{out:jnp.matmul})",
        more=("jnp.matmul({x}, {w}.T{within:jnp.matmul}) + {b}",),
    ),
    "addmm": Spelling("jnp.matmul({x}, {w}{within:jnp.matmul}) + {c}"),
    "outer": Spelling("jnp.outer({x}, {y})"),
    "vecdot": Spelling("jnp.vecdot({x}, {y}, axis={axis:-1})"),
    "conv1d": _CONV,
    "conv2d": _CONV,
    "scaled_dot_product_attention": Spelling(
        "(lambda _s, _v: jnp.matmul(jax.nn.softmax({causal:False}), _v))"
        "(jnp.matmul({q}, jnp.swapaxes({k}, -1, -2)) / {q}.shape[-1] ** 0.5, {v})",
        words=_CAUSAL,
    ),
    # Shapes.
    "reshape": Spelling("jnp.reshape({x}, {shape}{out:jnp.reshape})"),
    "flatten": Spelling(
        "jnp.reshape({x}, (*{x}.shape[:{start:0}], -1, *{x}.shape[{end:-1}:][1:]){out:jnp.reshape})"
    ),
    "permute_dims": Spelling("jnp.transpose({x}, {axes})"),
    "matrix_transpose": Spelling("jnp.swapaxes({x}, -1, -2)"),
    "expand_dims": Spelling("jnp.expand_dims({x}, {axis})"),
    "squeeze": Spelling("jnp.squeeze({x}, {axis})"),
    "broadcast_to": Spelling("jnp.broadcast_to({x}, {shape})"),
    "split": Spelling("jnp.split({x}, {sections}, axis={axis})[{part}]"),
    "chunk": Spelling(
        "(lambda _x, _n: _x[{pre}{part} * _n:({part} + 1) * _n{post}])"
        "({x}, -(-{x}.shape[{axis}] // {chunks}))"
    ),
    "concat": Spelling("jnp.concatenate([{x}, {y}], axis={axis})"),
    "stack": Spelling("jnp.stack([{x}, {y}], axis={axis})"),
    "flip": Spelling("jnp.flip({x}, {axis})"),
    "roll": Spelling("jnp.roll({x}, {shift}, axis={axis})"),
    "pad": Spelling(
        "(lambda _x: jnp.pad(_x, [({before}, {after}) if _dim == {axis} % _x.ndim else (0, 0) "
        "for _dim in range(_x.ndim)], constant_values={value:0}))({x})"
    ),
    "tril": Spelling("jnp.tril({x}, {diagonal:0})"),
    "triu": Spelling("jnp.triu({x}, {diagonal:0})"),
    "diagonal": Spelling("jnp.diagonal({x})"),
    "slice": Spelling("{x}[{pre}{start:0}:{stop:None}:{step:1}{post}]"),
    "index": Spelling("{x}[{pre}{index}{post}]"),
    "repeat": Spelling("jnp.repeat({x}, {repeats}, axis={axis}{out:jnp.repeat})"),
    "tile": Spelling("jnp.concatenate([{x}] * {repeats}, axis={axis})"),
    # Positions that are data, and parts that are set.
    "take": Spelling(
        "jnp.take({x}, {i}, axis={axis})",
        out="{x}.at[{pre}{i}{post}].get(out_sharding={sharding})",
    ),
    "take_along_axis": Spelling(
        "jnp.take_along_axis({x}, {i}, axis={axis})",
        out=f"(lambda _x, _i: _x.at[{_ALONG}].get(out_sharding={{sharding}}))({{x}}, {{i}})",
    ),
    "scatter": Spelling(
        "jnp.put_along_axis({x}, {i}, {v}, axis={axis}, inplace=False)",
        out=f"{_AT_PLACES}.set(_v{{out:x.at[].set}})){_PLACED}",
        without={
            "jnp.put_along_axis": (
                "jnp.put_along_axis({x}, {i}, {v}, axis={axis}, inplace=False)",
                f"{_AT_PLACES}.set(_v)){_PLACED}",
            )
        },
    ),
    "scatter_add": Spelling(
        f"(lambda _x, _i, _v: _x.at[{_WITHIN}].add(_v{{out:x.at[].add}})){_PLACED}"
    ),
    "scatter_rows": Spelling("{x}.at[{pre}{i}{post}].set({v}{out:x.at[].set})"),
    "scatter_add_rows": Spelling("{x}.at[{pre}{i}{post}].add({v}{out:x.at[].add})"),
    "index_put": Spelling("{x}.at[{i}, {j}].set({v}{out:x.at[].set})"),
    "masked_fill": Spelling("jnp.where({mask}, jnp.asarray({value}, {x}.dtype), {x})"),
    "embedding": Spelling(
        "jnp.take({w}, {i}, axis=0)", out="{w}.at[{i}].get(out_sharding={sharding})"
    ),
    "one_hot": Spelling("jax.nn.one_hot({i}, {classes}, dtype=jnp.int64)"),
    "dynamic_slice": Spelling(
        f"jax.lax.dynamic_slice_in_dim({{x}}, {{i}}, {{size}}, {{axis}}{_AS_THEY_ARE})",
        without={"jax.lax.dynamic_slice_in_dim(allow_negative_indices=)": (_AS_THEY_ARE, "")},
    ),
    "dynamic_update_slice": Spelling(
        f"jax.lax.dynamic_update_slice_in_dim({{x}}, {{v}}, {{i}}, {{axis}}{_AS_THEY_ARE})",
        without={
            "jax.lax.dynamic_update_slice_in_dim(allow_negative_indices=)": (_AS_THEY_ARE, "")
        },
    ),
    "set_slice": _SET_SLICE,
    "assign_slice": _SET_SLICE,
    "inplace_add": Spelling("({x} + {y}).astype({x}.dtype)"),
    "inplace_subtract": Spelling("({x} - {y}).astype({x}.dtype)"),
    "inplace_multiply": Spelling("({x} * {y}).astype({x}.dtype)"),
    "inplace_fill": Spelling("jnp.full_like({x}, {value})"),
    # Order.
    "sort": Spelling("jnp.sort({x}{params})"),
    "argsort": Spelling("jnp.argsort({x}{params})"),
    "topk_values": _top_k("[0]"),
    "topk_indices": _top_k("[1].astype(jnp.int64)"),
    "cumulative_sum": Spelling("jnp.cumulative_sum({x}, axis={axis:-1})"),
    "cumulative_prod": Spelling("jnp.cumulative_prod({x}, axis={axis:-1})"),
    # Layers and losses.
    "softmax": Spelling("jax.nn.softmax({x}, axis={axis:-1})"),
    "log_softmax": Spelling("jax.nn.log_softmax({x}, axis={axis:-1})"),
    "layer_norm": Spelling(
        f"{_NORMED}{_CENTRED}",
        more=(f"{_NORMED}{_CENTRED} * {{w}}", f"{_NORMED}{_CENTRED} * {{w}} + {{b}}"),
    ),
    "rms_norm": Spelling(f"{_NORMED}({{x}})", more=(f"{_NORMED}({{x}}) * {{w}}",)),
    "mse_loss": _loss("jnp.square({x} - {y})"),
    "l1_loss": _loss("jnp.abs({x} - {y})"),
    "huber_loss": _loss(
        "(lambda _d: jnp.where(_d < {delta:1.0}, 0.5 * _d * _d, "
        "{delta:1.0} * (_d - 0.5 * {delta:1.0})))"
        "(jnp.abs({x} - {y}))"
    ),
    "smooth_l1_loss": _loss(
        "(lambda _d: jnp.where(_d < {beta:1.0}, 0.5 * _d * _d / {beta:1.0}, "
        "_d - 0.5 * {beta:1.0}))"
        "(jnp.abs({x} - {y}))"
    ),
    "binary_cross_entropy": _loss("-({y} * jnp.log({x}) + (1 - {y}) * jnp.log1p(-{x}))"),
    "binary_cross_entropy_with_logits": _loss("jax.nn.softplus({x}) - {x} * {y}"),
    "kl_div": _loss("jax.scipy.special.xlogy({y}, {y}) - {y} * {x}"),
    "nll_loss": _by_class("{x}"),
    "cross_entropy": _by_class("jax.nn.log_softmax({x}, axis=1)"),
    # Linear algebra and Fourier transforms.
    "inv": Spelling("jnp.linalg.inv({x})"),
    "cholesky": Spelling("jnp.linalg.cholesky({x})"),
    "solve": Spelling("jnp.linalg.solve({x}, {y})"),
    "det": Spelling("jnp.linalg.det({x})"),
    "fft": Spelling("jnp.fft.fft({x}, axis={axis:-1})"),
    "ifft": Spelling("jnp.fft.ifft({x}, axis={axis:-1})"),
    # Arrays from nothing, and what leaves the global view. Inside jit there is no local view:
    # the array is its own.
    "arange": Spelling("jnp.arange({n}, dtype={dtype:'float32'}{out:jnp.arange})"),
    "full": Spelling("jnp.full({shape}, {value}, dtype={dtype:'float32'}{out:jnp.full})"),
    "random_uniform": _array("uniform"),
    "random_normal": _array("normal"),
    "inplace_uniform": _initial("uniform"),
    "inplace_normal": _initial("normal"),
    "dropout": Spelling(
        "jnp.where(jax.random.bernoulli({key}, 1.0 - {p}, {x}.shape), {x} / (1 - {p}), 0)"
    ),
    "to_local": Spelling("{x}"),
    "from_local": Spelling("{x}"),
    "full_tensor": Spelling("{x}"),
    "distribute": Spelling("{x}", out="jax.device_put({x}, {sharding})"),
    "map_shards": Spelling(
        "jax.shard_map(lambda _t: _t * {scale}, "
        "mesh={mesh}, in_specs={spec}, out_specs={spec})({x})"
    ),
    "item": Spelling("jnp.reshape({x}, ())"),
    # The function of an input that `lines` writes above it, and the input.
    "grad": Spelling("jax.grad({y}_of)({x})"),
}
