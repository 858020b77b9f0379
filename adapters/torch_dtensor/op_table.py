"""Which line of torch does each op become? `adapters.op_lines` explains the syntax of the table.

Each line is what a user of DTensor would write, because the suite tests how DTensor shards that
line. Slots are arguments, parameters, ``{mesh}`` and ``{placements}``. A ``|`` precedes a filter of
`op_functions.FILTERS`. This module does not import torch: lines are text here.
"""

from __future__ import annotations

from adapters.op_lines import Entry
from adapters.torch_dtensor import op_functions as functions
from adapters.torch_dtensor.op_functions import Call

# torch.add and similar functions refuse a number on the left, so the lines use operators.
_OPERATORS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "remainder": "%",
    "floor_divide": "//", "equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=",
    "greater": ">", "greater_equal": ">=", "left_shift": "<<", "right_shift": ">>",
}  # fmt: skip
_UNARY = {
    "torch": (
        "abs", "square", "sign", "logical_not", "bitwise_not", "isnan", "isfinite", "floor",
        "ceil", "round", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "reciprocal", "sin",
        "cos", "tanh", "sigmoid", "erf", "relu", "diagonal",
    ),
    "F": ("gelu", "silu", "softplus"),
    "torch.linalg": ("inv", "cholesky", "det"),
}  # fmt: skip
_BINARY = {
    "torch": (
        "bitwise_left_shift", "bitwise_right_shift", "bitwise_and", "bitwise_or", "bitwise_xor",
        "outer",
    ),
    "torch.linalg": ("solve",),
}  # fmt: skip
# These functions do not take numbers.
_BINARY_OF_TENSORS = ("atan2", "hypot", "logaddexp", "logical_and", "logical_or", "logical_xor")
_KEEP = "{, keepdim=keepdims}"
_REDUCTIONS = ("sum", "mean", "any", "all", "argmax", "argmin")
_SPAN = "{pre}{start:}:{stop:}{:step}{post}"
_PLACED = "{mesh}{, placements=placements}"

OP_TABLE: dict[str, Entry[Call]] = {
    "redistribute": (
        "{x}.redistribute({view}, placements={placements})",
        "{x}.redistribute(placements={placements})",
    ),
    "identity": "{x}",
    # Pointwise.
    **{op: f"{{x}} {sign} {{y}}" for op, sign in _OPERATORS.items()},
    **{op: f"{module}.{op}({{x}})" for module, ops in _UNARY.items() for op in ops},
    **{op: f"{module}.{op}({{x}}, {{y}})" for module, ops in _BINARY.items() for op in ops},
    **{op: f"torch.{op}({{x|tensor}}, {{y|tensor}})" for op in _BINARY_OF_TENSORS},
    "negative": "torch.neg({x})",
    "power": functions.power,
    "maximum": functions.limit("torch.maximum", "min"),
    "minimum": functions.limit("torch.minimum", "max"),
    "clip": "torch.clamp({x}{, min=min}{, max=max})",
    "astype": "{x}.to({dtype})",
    "where": "torch.where({c}, {x}, {y})",
    # Reductions.
    **{
        op: (f"torch.{op}({{x}})", f"torch.{op}({{x}}, dim={{axis:None}}{_KEEP})")
        for op in _REDUCTIONS
    },
    "max": ("torch.max({x})", f"torch.amax({{x}}{{, dim=axis}}{_KEEP})"),
    "min": ("torch.min({x})", f"torch.amin({{x}}{{, dim=axis}}{_KEEP})"),
    "prod": functions.product,
    # The default of torch is correction=1.
    "var": f"torch.var({{x}}, dim={{axis:None}}, correction={{correction:0}}{_KEEP})",
    "std": f"torch.std({{x}}, dim={{axis:None}}, correction={{correction:0}}{_KEEP})",
    "vector_norm": f"torch.linalg.vector_norm({{x}}, ord={{ord|order}}{{, dim=axis}}{_KEEP})",
    # torch.logsumexp has no default for dim.
    "logsumexp": (
        f"torch.logsumexp({{x}}, dim={{axis}}{_KEEP})",
        f"torch.logsumexp({{x}}, dim={{axis|dims}}{_KEEP})",
    ),
    "max_with_index": "torch.max({x}, dim={axis}).indices",
    "count_nonzero": "torch.count_nonzero({x}{, dim=axis})",
    # Contractions.
    "matmul": "torch.matmul({x}, {w})",
    "einsum": "torch.einsum({subscripts}, {x}, {w})",
    "linear": "F.linear({x}, {w}{, b})",
    "addmm": "torch.addmm({c}, {x}, {w})",
    "vecdot": "torch.linalg.vecdot({x}, {y}, dim={axis:-1})",
    "conv1d": "F.conv1d({x}, {w}{, stride=stride}{, padding=padding})",
    "conv2d": "F.conv2d({x}, {w}{, stride=stride}{, padding=padding})",
    "scaled_dot_product_attention": (
        "F.scaled_dot_product_attention({q}, {k}, {v}{, is_causal=causal})"
    ),
    # Shapes.
    "reshape": "torch.reshape({x}, shape={shape})",
    "flatten": "torch.flatten({x}{, start_dim=start}{, end_dim=end})",
    "permute_dims": "torch.permute({x}, dims={axes})",
    "matrix_transpose": "torch.transpose({x}, -2, -1)",
    "expand_dims": "torch.unsqueeze({x}, dim={axis})",
    "squeeze": "torch.squeeze({x}{, dim=axis})",
    "broadcast_to": "torch.broadcast_to({x}, size={shape})",
    "split": functions.split,
    "chunk": "torch.chunk({x}, {chunks}, dim={axis})[{part}]",
    "concat": "torch.cat([{x}, {y}], dim={axis})",
    "stack": "torch.stack([{x}, {y}], dim={axis})",
    "flip": "torch.flip({x}, dims={axis|dims})",
    "roll": "torch.roll({x}, shifts={shift}, dims={axis})",
    "pad": functions.pad,
    "tril": "torch.tril({x}{, diagonal=diagonal})",
    "triu": "torch.triu({x}{, diagonal=diagonal})",
    "slice": f"{{x}}[{_SPAN}]",
    "index": "{x}[{pre}{index}{post}]",
    "repeat": "torch.repeat_interleave({x}, repeats={repeats}, dim={axis})",
    "tile": functions.tile,
    # Sorting. Equal elements keep their order.
    "sort": "torch.sort({x}{, dim=axis}{, descending=descending}, stable=True).values",
    "argsort": "torch.argsort({x}{, dim=axis}{, descending=descending}, stable=True)",
    "topk_values": "torch.topk({x}, k={k}{, dim=axis}).values",
    "topk_indices": "torch.topk({x}, k={k}{, dim=axis}).indices",
    "cumulative_sum": "torch.cumsum({x}, dim={axis:-1})",
    "cumulative_prod": "torch.cumprod({x}, dim={axis:-1})",
    # Fourier transforms and layers.
    "fft": "torch.fft.fft({x}{, dim=axis})",
    "ifft": "torch.fft.ifft({x}{, dim=axis})",
    "softmax": "torch.softmax({x}, dim={axis:-1})",
    "log_softmax": "torch.log_softmax({x}, dim={axis:-1})",
    # torch has another default for eps of rms_norm.
    "layer_norm": "F.layer_norm({x}, ({x|last_size},){, w}{, b}, eps={eps:1e-05})",
    "rms_norm": "F.rms_norm({x}, ({x|last_size},){, w}, eps={eps:1e-05})",
    # Losses.
    "mse_loss": "F.mse_loss({x}, {y}{, reduction=reduction})",
    "l1_loss": "F.l1_loss({x}, {y}{, reduction=reduction})",
    "huber_loss": "F.huber_loss({x}, {y}{, reduction=reduction}{, delta=delta})",
    "smooth_l1_loss": "F.smooth_l1_loss({x}, {y}{, reduction=reduction}{, beta=beta})",
    "binary_cross_entropy": "F.binary_cross_entropy({x}, {y}{, reduction=reduction})",
    "binary_cross_entropy_with_logits": (
        "F.binary_cross_entropy_with_logits({x}, {y}{, reduction=reduction})"
    ),
    "kl_div": "F.kl_div({x}, {y}{, reduction=reduction})",
    "nll_loss": "F.nll_loss({x}, {t|long}{, w}{, reduction=reduction}{, ignore_index=ignore})",
    "cross_entropy": (
        "F.cross_entropy({x}, {t|long}{, w}{, reduction=reduction}{, ignore_index=ignore})"
    ),
    # Indexing.
    "take": "{x}[{pre}{i|index}{post}]",
    "take_along_axis": "torch.take_along_dim({x}, {i|long}, dim={axis})",
    "scatter": functions.scatter,
    "scatter_add": "torch.scatter_add({x}, {axis}, {i|long}, {v})",
    "scatter_rows": "{x}.index_copy({axis}, {i|long}, {v})",
    "scatter_add_rows": "{x}.index_add({axis}, {i|long}, {v})",
    "index_put": "{x}.index_put(({i|index}, {j|index}), {v})",
    "masked_fill": "{x}.masked_fill({mask}, {value})",
    "embedding": "F.embedding({i}, {w}{, padding_idx=padding_row})",
    "one_hot": "F.one_hot({i|long}, {classes})",
    "dynamic_slice": functions.dynamic_slice,
    "dynamic_update_slice": functions.dynamic_update_slice,
    "set_slice": functions.set_slice,
    "assign_slice": functions.assign_slice,
    # In-place ops run on a clone, so that the operand does not change.
    "inplace_add": "{x}.clone().add_({y})",
    "inplace_subtract": "{x}.clone().sub_({y})",
    "inplace_multiply": "{x}.clone().mul_({y})",
    "inplace_fill": "{x}.clone().fill_({value})",
    # Ops that make a DTensor, leave the global view, or compute a gradient.
    "arange": f"distribute_tensor(torch.arange({{n}}, dtype={{dtype:torch.float32}}), {_PLACED})",
    "full": (
        f"dtensor.full({{shape}}, {{value}}, dtype={{dtype:torch.float32}}, device_mesh={_PLACED})"
    ),
    "to_local": "{x}.to_local()",
    # Users do not pass the global shape. Then torch assumes that all local shards have one size.
    "from_local": f"DTensor.from_local({{x}}, {_PLACED}, run_check=False)",
    "full_tensor": "{x}.full_tensor()",
    # Every rank has the whole tensor, so no rank has to send it.
    "distribute": f"distribute_tensor({{x}}, {_PLACED}, src_data_rank=None)",
    "map_shards": (
        "local_map(lambda _t: _t * {scale}, out_placements={placements}, "
        "in_placements=({placements},), device_mesh={mesh})({x})"
    ),
    "item": "torch.tensor({x}.item(), dtype={x}.dtype)",
    "grad": "torch.autograd.grad({y}, {x}, retain_graph=True)[0]",
    # Random ops: `op_functions` seeds a generator before the draw.
    "random_uniform": functions.random_array("rand"),
    "random_normal": functions.random_array("randn"),
    "inplace_uniform": functions.random_in_place("uniform_"),
    "inplace_normal": functions.random_in_place("normal_"),
    "dropout": functions.dropout,
}
