"""Which dims of an op's operands and result belong together? Label rules, by kind of op.

A rule is a statement about labels, as in an einsum: every dim of an operand carries one, and
an axis that splits a label splits it wherever it occurs. "" marks a dim that cannot be split.
Knows shapes and parameters; what follows for layouts is worked out elsewhere.
"""

from __future__ import annotations

import numpy as np

from cases.ops.row import Labels, Params, Rule, Shape, dims, one_dim


def names(ndim: int, prefix: str = "d") -> tuple[str, ...]:
    """d0, d1, …"""
    return tuple(f"{prefix}{dim}" for dim in range(ndim))


def same(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The result has the dims of the one operand."""
    own = names(len(shapes[0]))
    return (own,), own


def broadcast(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """NumPy's broadcasting: dims align from the right, a stretched dim cannot be split."""
    out = np.broadcast_shapes(*shapes)
    full = names(len(out))
    operands = []
    for shape in shapes:
        start = len(out) - len(shape)
        operands.append(
            tuple(
                name if size == whole else ""
                for name, whole, size in zip(full[start:], out[start:], shape, strict=True)
            )
        )
    return tuple(operands), full


def reduce(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The dims of ``axis`` vanish and leave a reduction owed."""
    own = names(len(shapes[0]))
    gone = dims(params.get("axis"), len(own))
    if params.get("keepdims"):
        return (own,), tuple("" if dim in gone else name for dim, name in enumerate(own))
    return (own,), tuple(name for dim, name in enumerate(own) if dim not in gone)


def reduce_whole(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """As `reduce`, but the dims of ``axis`` cannot be split: parts cannot be combined."""
    (own,), result = reduce(shapes, params)
    gone = dims(params.get("axis"), len(own))
    return (tuple("" if dim in gone else name for dim, name in enumerate(own)),), result


def along(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The result has the operand's dims; the dims of ``axis`` cannot be split.

    Without ``axis`` it is the last.
    """
    ndim = len(shapes[0])
    gone = dims(params.get("axis", -1), ndim)
    own = tuple("" if dim in gone else name for dim, name in enumerate(names(ndim)))
    return (own,) * len(shapes), own


def last(count: int) -> Rule:
    """The first operand's last ``count`` dims cannot be split; the result has its dims."""

    def rule(shapes: tuple[Shape, ...], params: Params) -> Labels:
        own = names(len(shapes[0]) - count) + ("",) * count
        return (own, *(("",) * len(shape) for shape in shapes[1:])), own

    return rule


def batched(count: int) -> Rule:
    """The last ``count`` dims of every operand and of the result cannot be split."""

    def rule(shapes: tuple[Shape, ...], params: Params) -> Labels | None:
        lead = {shape[:-count] for shape in shapes}
        if len(lead) > 1:
            return None
        own = names(len(shapes[0]) - count) + ("",) * count
        return (own,) * len(shapes), own

    return rule


def matmul(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """Batch dims broadcast; rows m, columns n, and k that is summed over."""
    x, w = shapes
    batch = np.broadcast_shapes(x[:-2], w[:-2])
    lead = names(len(batch), "b")

    def aligned(own: Shape) -> tuple[str, ...]:
        start = len(batch) - len(own)
        return tuple(
            name if size == whole else ""
            for name, whole, size in zip(lead[start:], batch[start:], own, strict=True)
        )

    rows = ("m",) if len(x) > 1 else ()
    columns = ("n",) if len(w) > 1 else ()
    return (
        ((*aligned(x[:-2]), *rows, "k"), (*aligned(w[:-2]), "k", *columns)),
        lead + rows + columns,
    )


def einsum(shapes: tuple[Shape, ...], params: Params) -> Labels | None:
    """The subscripts say it; not implicit results, ellipses and diagonals."""
    text = str(params["subscripts"]).replace(" ", "")
    inputs, arrow, out = text.partition("->")
    operands = tuple(map(tuple, inputs.split(",")))
    if not arrow or "." in text or any(len(set(own)) < len(own) for own in operands):
        return None
    return operands, tuple(out)


def permute(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """``axes`` says which dim of the operand each dim of the result is."""
    own = names(len(shapes[0]))
    return (own,), tuple(own[dim] for dim in dims(params["axes"], len(own)))


def swap_last(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The last two dims change places."""
    own = names(len(shapes[0]))
    return (own,), (*own[:-2], own[-1], own[-2])


def insert(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """A new dim at ``axis`` of the result; several operands stand along it."""
    own = names(len(shapes[0]))
    at = one_dim(params["axis"], len(own) + 1)
    return (own,) * len(shapes), (*own[:at], "", *own[at:])


def remove(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The dims of ``axis`` are not in the result, and cannot be split."""
    gone = dims(params["axis"], len(shapes[0]))
    own = tuple("" if dim in gone else name for dim, name in enumerate(names(len(shapes[0]))))
    return (own,), tuple(name for dim, name in enumerate(own) if dim not in gone)


def stretch(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """Broadcasting to ``shape``: dims that are new or stretched are not split."""
    shape, target = shapes[0], params["shape"]
    assert isinstance(target, list)
    full = names(len(target))
    start = len(full) - len(shape)
    own = tuple(
        name if size == whole else ""
        for name, whole, size in zip(full[start:], target[start:], shape, strict=True)
    )
    return (own,), ("",) * start + own


def regroup(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """Reshape: leading and trailing dims of equal size stay; what is between is not split."""
    shape = shapes[0]
    target = params["shape"]
    assert isinstance(target, list)
    made = tuple(np.empty(shape, np.bool_).reshape([int(size) for size in target]).shape)
    own = [""] * len(shape)
    out = [""] * len(made)
    head = 0
    while head < min(len(shape), len(made)) and shape[head] == made[head]:
        own[head] = out[head] = f"d{head}"
        head += 1
    tail = 1
    while tail <= min(len(shape), len(made)) - head and shape[-tail] == made[-tail]:
        own[-tail] = out[-tail] = f"e{tail}"
        tail += 1
    return (tuple(own),), tuple(out)


def take(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The dim ``axis`` of the first gives way to the dims of the second, the indices."""
    x, i = shapes
    own = list(names(len(x)))
    at = one_dim(params["axis"], len(x))
    own[at] = ""
    picked = names(len(i), "i")
    return (tuple(own), picked), (*own[:at], *picked, *own[at + 1 :])


def embedding(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """Indices first, then the columns of the table, whose rows cannot be split."""
    picked = names(len(shapes[0]), "i")
    return (picked, ("", "c")), (*picked, "c")


def append(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """A new last dim."""
    own = names(len(shapes[0]))
    return (own,), (*own, "")


def linear(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """x[…, k] by w[n, k]; with a bias, which is added once, k cannot be split."""
    lead = names(len(shapes[0]) - 1)
    k = "k" if len(shapes) == 2 else ""
    bias = (("n",),) if len(shapes) == 3 else ()
    return ((*lead, k), ("n", k), *bias), (*lead, "n")


def addmm(shapes: tuple[Shape, ...], params: Params) -> Labels | None:
    """c[m, n] + x[m, k] w[k, n]; c is added once, so k cannot be split."""
    if shapes[0] != (shapes[1][0], shapes[2][1]):
        return None
    return (("m", "n"), ("m", ""), ("", "n")), ("m", "n")


def outer(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """Rows m and columns n."""
    return (("m",), ("n",)), ("m", "n")


def convolution(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """x[n, c, …] by w[o, c, …]: channels are summed over, places cannot be split."""
    places = ("",) * (len(shapes[0]) - 2)
    return (("n", "c", *places), ("o", "c", *places)), ("n", "o", *places)


def attention(shapes: tuple[Shape, ...], params: Params) -> Labels | None:
    """Batch and heads; with no causal mask the queries too, and the columns of v."""
    lead = {shape[:-2] for shape in shapes}
    if len(lead) > 1:
        return None
    batch = names(len(shapes[0]) - 2)
    queries = "" if params.get("causal") else "q"
    return (
        ((*batch, queries, ""), (*batch, "", ""), (*batch, "", "e")),
        (*batch, queries, "e"),
    )


def loss(shapes: tuple[Shape, ...], params: Params) -> Labels | None:
    """Elementwise, then summed or averaged over everything unless ``reduction`` is none."""
    if len(set(shapes)) > 1:
        return None
    own = names(len(shapes[0]))
    return (own,) * len(shapes), own if params.get("reduction") == "none" else ()


def by_class(shapes: tuple[Shape, ...], params: Params) -> Labels | None:
    """x[n, c] with targets t[n]: classes cannot be split, rows only where none is left out."""
    if len(shapes) != 2 or len(shapes[0]) != 2 or params.get("reduction", "mean") == "mean":
        return None
    return (("n", ""), ("n",)), ("n",) if params.get("reduction") == "none" else ()
