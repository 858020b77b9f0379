"""Which kinds of fault do public reports show, and which cases test each kind?

A kind is a report's fault with any op, size or order. Its cases are those of `siblings` with the
kind as a tag, and those of other families with matching ids. Refuses to know verdicts.
"""

from __future__ import annotations

import msgspec


class FaultKind(msgspec.Struct, frozen=True):
    """A kind of fault: the reports that show it, and what it is.

    ``patterns``: `fnmatch` patterns of ids of other families' cases that test this kind.
    """

    reports: tuple[str, ...]
    what: str
    patterns: tuple[str, ...] = ()


FAULT_KINDS: dict[str, FaultKind] = {
    "scalar": FaultKind(
        ("public/dtensor/T01",), "a Python number meets a pending reduction",
        ("add.number-x4-p", "subtract.number-left-x4-p", "multiply.number-x4-p",
         "divide.number*-x4-p", "maximum.number-x4-p", "power.number-x4-p",
         "greater.number-x4-p", "inplace_add.number-x4-p"),
    ),
    "cached": FaultKind((), "an op runs twice with different parameters"),
    "cache": FaultKind(("public/dtensor/T02",), "an op runs with several numbers in turn"),
    "mean-loss": FaultKind(
        ("public/dtensor/T04",), "a mean-type loss over uneven shards",
        ("*_loss.mean-x4-*-n[57]", "binary_cross_entropy*.mean-x4-*-n[57]",
         "kl_div.mean-x4-*-n[57]", "cross_entropy.mean-x4-*-n[57]", "mean*-n[57]"),
    ),
    "denominator": FaultKind(
        ("public/dtensor/T06",), "ignored rows make the denominator differ by shard",
        ("nll_loss.*ignored*", "nll_loss.weighted*", "cross_entropy.*ignored*",
         "cross_entropy.weighted*"),
    ),
    "norm": FaultKind(("public/dtensor/T09",), "a norm of a pending reduction",
                 ("vector_norm*-x4-p",)),
    "item": FaultKind(("public/dtensor/T10",), "one element of a pending reduction"),
    "cast": FaultKind(("public/dtensor/T12",), "a cast of a pending reduction",
                 ("astype.*-x4-p",)),
    "local": FaultKind(("public/dtensor/T15", "public/dtensor/T35"),
                  "local tensors are taken out and put back"),
    "selecting": FaultKind(
        ("public/dtensor/T16", "public/dtensor/T17"), "the gradient of an op that selects elements",
        ("topk_values*-by-*", "sort*-by-*", "take*-by-*", "max*-by-*", "index*-by-*",
         "slice*-by-*", "embedding*-by-*"),
    ),
    "regroup": FaultKind(
        ("public/dtensor/T19", "public/dtensor/C09", "public/jax/J32"),
        "reshaping a dim that is split", ("reshape*", "flatten*"),
    ),
    "slicing": FaultKind(
        ("public/dtensor/T20", "public/jax/J03", "public/jax/J06", "public/jax/J44"),
        "slicing the dim that is split",
        ("slice*-x4-s*", "index*-x4-s*", "split-x4-s*", "chunk-x4-s*", "roll*-x4-s*", "flip-x4-s*"),
    ),
    "size-1": FaultKind(("public/dtensor/T23",),
                        "a split dim of one element is stretched or dropped"),
    "convolution": FaultKind(
        ("public/dtensor/T24", "public/jax/J22"), "a convolution of split operands",
        ("conv1d*", "conv2d*"),
    ),
    "arg": FaultKind(
        ("public/dtensor/T25", "public/jax/J10", "public/jax/J11"),
        "indices along the dim that is split",
        ("argmax*-x4-*", "argmin*-x4-*", "max_with_index*-x4-*", "argsort*-x4-*",
         "topk_*-x4-*"),
    ),
    "writing": FaultKind(
        ("public/dtensor/T27", "public/jax/J07", "public/jax/J08", "public/jax/J36",
         "public/jax/E8"),
        "writing at indices into a split tensor",
        ("index_put*", "scatter*", "set_slice*", "assign_slice*", "masked_fill*"),
    ),
    "empty": FaultKind(("public/dtensor/T31",), "an op meets an empty shard", ("*-n5",)),
    "uneven": FaultKind(
        ("public/dtensor/T32", "public/dtensor/M07", "public/dtensor/M08"),
        "uneven shards are redistributed", ("x4-*-5x3", "x4-*-3x*"),
    ),
    "irregular": FaultKind(("public/dtensor/T33",), "shards that break the chunk rule"),
    "mapped": FaultKind(("public/dtensor/T34",), "a function is mapped over uneven shards"),
    "order": FaultKind(
        ("public/dtensor/T38", "public/dtensor/T39"),
        "axes split a dim in an order that is not the mesh's",
        ("a2.b2-s0f2*", "a2.b2-s1f2*"),
    ),
    "devices": FaultKind(
        ("public/dtensor/T41", "public/jax/M1", "public/jax/M3"),
        "a mesh whose devices are not in order",
        ("x4-d*",),
    ),
    "relabel": FaultKind(("public/dtensor/T43",), "a pending reduction is replaced by another"),
    "random": FaultKind(("public/dtensor/T44",), "random numbers under a placement"),
    "two-pending": FaultKind(
        ("public/dtensor/C01", "public/jax/J13", "public/jax/J13c"), "a sum pending on two axes",
        ("a2.b2-p.p-to-*",),
    ),
    "exchange": FaultKind(
        ("public/dtensor/C03", "public/jax/E2"), "two axes exchange their dims",
        ("a2.b2-s0.s1-to-s1.s0", "a2.b2-s1.s0-to-s0.s1"),
    ),
    "dynamic": FaultKind(
        ("public/jax/J04c", "public/jax/J05", "public/jax/J05b"),
        "a slice whose start is data, in and out of range", ("dynamic_*",),
    ),
    "joining": FaultKind(("public/jax/J01",), "arrays are joined along the dim that is split",
                    ("concat*", "stack*")),
    "ramp": FaultKind(("public/jax/J20",), "a ramp is made in shards"),
    "partial-asked": FaultKind(
        ("public/jax/J15", "public/jax/J17"), "a contraction is asked for a pending sum"),
    "batch": FaultKind(("public/jax/J37",), "linear algebra with a split batch",
                  ("inv-*", "cholesky-*", "solve-*", "det-*")),
    "along": FaultKind(
        ("public/jax/J34", "public/jax/J35", "public/jax/E4", "public/jax/E6"),
        "work along a dim that is not split",
        ("cumulative_*-x4-s0", "fft-x4-s0", "softmax-x4-s0", "take_along_axis-x4-s0-s0"),
    ),
    "lookup": FaultKind(("public/jax/E7b", "public/jax/E11"),
                   "rows are looked up in a split table",
                   ("take-*", "embedding*")),
    "two-meshes": FaultKind(("public/jax/J45",), "arrays of two meshes of the same devices"),
    "axis-of-1": FaultKind(("public/dtensor/C06",), "an axis of one device", ("a1.b4-*",)),
    "negative": FaultKind(("public/dtensor/C07",), "a dim counted from the end"),
    "local-product": FaultKind(
        ("public/dtensor/C08",), "a product that needs no other shard",
        ("matmul.batched-x4-s0-s0", "matmul.batched-*"),
    ),
    "class-parallel": FaultKind(
        ("public/dtensor/C10",), "a loss with split classes",
        ("cross_entropy.*-x4-s1-*", "nll_loss.*-x4-s1-*", "log_softmax-x4-s1"),
    ),
    "hybrid": FaultKind(("public/dtensor/C12",), "a hybrid sharded step"),
    "derived": FaultKind(
        ("public/dtensor/M01", "public/dtensor/M02", "public/dtensor/M04", "public/dtensor/M06"),
        "a mesh is derived from another",
    ),
    "indivisible": FaultKind(
        ("public/jax/J31",), "a result is asked for in shards that do not divide it",
        ("x4-r-to-s0-*x*", "x4-*-to-s0-5x3"),
    ),
    "replicated": FaultKind(("public/jax/E10",), "work on replicated operands"),
    "state": FaultKind((), "a mesh is flattened before or after a tensor is made"),
}  # fmt: skip
