"""What do torch, NumPy and JAX call an op that has another name here?

A name that means the same with the same arguments is read as the op. Any other name of the kind
gets an error that says the name here, because its arguments may differ.
"""

from __future__ import annotations

# A name that is read as the op.
ALIASES = {"bitwise_invert": "bitwise_not", "invert": "bitwise_not"}

# A name that people type -> the op of the vocabulary that they mean.
OTHER_NAMES = {
    "absolute": "abs", "amax": "max", "amin": "min", "bmm": "matmul", "cat": "concat",
    "clamp": "clip", "concatenate": "concat", "cumprod": "cumulative_prod",
    "cumsum": "cumulative_sum", "div": "divide", "dot": "matmul",
    "dot_product_attention": "scaled_dot_product_attention", "eq": "equal",
    "gather": "take_along_axis", "ge": "greater_equal", "gt": "greater",
    "index_add": "scatter_add_rows", "index_copy": "scatter_rows", "index_select": "take",
    "le": "less_equal", "lt": "less", "mm": "matmul", "moveaxis": "permute_dims",
    "movedim": "permute_dims", "mul": "multiply", "narrow": "slice", "ne": "not_equal",
    "neg": "negative", "norm": "vector_norm", "permute": "permute_dims", "pow": "power",
    "product": "prod", "repeat_interleave": "repeat", "reshard": "redistribute",
    "scatter_": "scatter", "select": "index", "shift_left": "left_shift",
    "shift_right": "right_shift", "sub": "subtract", "swapaxes": "permute_dims", "swish": "silu",
    "t": "matrix_transpose", "tensordot": "einsum", "top_k": "topk_values", "topk": "topk_values",
    "transpose": "permute_dims", "true_divide": "divide", "unsqueeze": "expand_dims",
    "view": "reshape", "with_sharding_constraint": "redistribute",
}  # fmt: skip
