"""Which dims of an op's operands and result belong together? Label rules, by kind of op.

As in an einsum, every dim has a label. A mesh axis that splits a label splits it wherever it
occurs. "" marks a dim that cannot be split. `NO_RULE` marks a dim that devices can compute in
several ways with different bytes. If such a dim is split, nothing is implied.
A dim may consist of several parts, each with a label and a size, major to minor.
Knows shapes and parameters. Refuses to know layouts.
"""

from __future__ import annotations

import math

import numpy as np

from cases.ops.op import NO_RULE, Label, Labels, Params, Rule, Shape, normalize_axes, single_dim


def dim_labels(ndim: int, prefix: str = "d") -> tuple[str, ...]:
    """d0, d1, …"""
    return tuple(f"{prefix}{dim}" for dim in range(ndim))


def same_dims(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The result has the dims of the operand."""
    own = dim_labels(len(shapes[0]))
    return (own,), own


def broadcast(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """NumPy's broadcasting: dims align at the right, and a stretched dim cannot be split."""
    out = np.broadcast_shapes(*shapes)
    full = dim_labels(len(out))
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
    """The dims of ``axis`` vanish and leave a pending reduction."""
    own = dim_labels(len(shapes[0]))
    gone = normalize_axes(params.get("axis"), len(own))
    if params.get("keepdims"):
        return (own,), tuple("" if dim in gone else name for dim, name in enumerate(own))
    return (own,), tuple(name for dim, name in enumerate(own) if dim not in gone)


def reduce_unsplit(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """Like `reduce`, but with `NO_RULE` for the dims of ``axis``.

    The results of parts are no addends. A framework chooses the numbers from which it combines
    an index, a variance or the logarithm of a sum.
    """
    (own,), result = reduce(shapes, params)
    gone = normalize_axes(params.get("axis"), len(own))
    return (tuple(NO_RULE if dim in gone else name for dim, name in enumerate(own)),), result


def along_axis(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The operand's dims, with `NO_RULE` for those of ``axis``, by default the last.

    An edge of the neighbour, a running total or the maximum of each part may be enough. A dim
    whose size is not that of the first operand cannot be split.
    """
    ndim = len(shapes[0])
    gone = normalize_axes(params.get("axis", -1), ndim)
    own = tuple(NO_RULE if dim in gone else name for dim, name in enumerate(dim_labels(ndim)))
    operands = tuple(
        tuple(
            name if name == NO_RULE or size == whole else ""
            for name, whole, size in zip(own, shapes[0], shape, strict=True)
        )
        for shape in shapes
    )
    return operands, tuple("" if name == NO_RULE else name for name in own)


def strided_slice(start: int | None, stop: int | None, step: int | None) -> Rule:
    """One element of each block of ``step``, along the whole dim; other slices use `along_axis`.

    A device with whole blocks has one element of the result for each of them.
    """

    def rule(shapes: tuple[Shape, ...], params: Params) -> Labels:
        (own,), result = along_axis(shapes, params)
        at = single_dim(params["axis"], len(own))
        size, block = shapes[0][at], step or 1
        kept = len(range(size)[start:stop:step])
        if size % block or (start or 0) >= block or kept < size // block:
            return (own,), result
        parts = (("all", kept), (NO_RULE, block)) if block > 1 else "all"
        return ((*own[:at], parts, *own[at + 1 :]),), (*result[:at], "all", *result[at + 1 :])

    return rule


def repeat(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The copies of each element of ``axis`` follow it on the same device."""
    own = dim_labels(len(shapes[0]))
    at = single_dim(params["axis"], len(own))
    copies = params["repeats"]
    assert isinstance(copies, int)
    parts = ((own[at], shapes[0][at]), ("", copies))
    return (own,), (*own[:at], parts, *own[at + 1 :])


def last_dims(count: int) -> Rule:
    """The first operand's dims, with `NO_RULE` for the last ``count``.

    The other operands belong to those last dims and cannot be split.
    """

    def rule(shapes: tuple[Shape, ...], params: Params) -> Labels:
        own = dim_labels(len(shapes[0]) - count)
        rest = tuple(("",) * len(shape) for shape in shapes[1:])
        return ((*own, *(NO_RULE,) * count), *rest), (*own, *("",) * count)

    return rule


def batch_dims(count: int) -> Rule:
    """`NO_RULE` for the last ``count`` dims, because elimination can go by blocks."""

    def rule(shapes: tuple[Shape, ...], params: Params) -> Labels | None:
        lead = {shape[:-count] for shape in shapes}
        if len(lead) > 1:
            return None
        own = dim_labels(len(shapes[0]) - count)
        return ((*own, *(NO_RULE,) * count),) * len(shapes), (*own, *("",) * count)

    return rule


def matmul(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """Batch dims broadcast. Rows are m, columns are n, and k is summed over."""
    x, w = shapes
    batch = np.broadcast_shapes(x[:-2], w[:-2])
    lead = dim_labels(len(batch), "b")

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
    """The subscripts are the labels. Implicit results, ellipses and diagonals have no rule."""
    text = str(params["subscripts"]).replace(" ", "")
    inputs, arrow, out = text.partition("->")
    operands = tuple(map(tuple, inputs.split(",")))
    if not arrow or "." in text or any(len(set(own)) < len(own) for own in operands):
        return None
    return operands, tuple(out)


def permute(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """``axes`` names the operand's dim for each dim of the result."""
    own = dim_labels(len(shapes[0]))
    return (own,), tuple(own[dim] for dim in normalize_axes(params["axes"], len(own)))


def swap_last(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The last two dims are swapped."""
    own = dim_labels(len(shapes[0]))
    return (own,), (*own[:-2], own[-1], own[-2])


def insert_dim(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The result has a new dim at ``axis``, along which several operands are stacked."""
    own = dim_labels(len(shapes[0]))
    at = single_dim(params["axis"], len(own) + 1)
    return (own,) * len(shapes), (*own[:at], "", *own[at:])


def remove_dims(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The result lacks the dims of ``axis``, which have `NO_RULE`.

    If such a dim is split, a single device has the rest, and can send it alone.
    """
    gone = normalize_axes(params["axis"], len(shapes[0]))
    own = tuple(
        NO_RULE if dim in gone else name for dim, name in enumerate(dim_labels(len(shapes[0])))
    )
    return (own,), tuple(name for dim, name in enumerate(own) if dim not in gone)


def stretch(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """Broadcasting to ``shape``. New and stretched dims are not split."""
    shape, target = shapes[0], params["shape"]
    assert isinstance(target, list)
    full = dim_labels(len(target))
    start = len(full) - len(shape)
    own = tuple(
        name if size == whole else ""
        for name, whole, size in zip(full[start:], target[start:], shape, strict=True)
    )
    return (own,), ("",) * start + own


def regroup(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """Reshape: dims are divided into the factors that both shapes share, major to minor.

    [8, 4] to [32] makes one dim of the parts 8 and 4. [2, 12] to [2, 4, 3] divides 12 into 4 and
    3. If the remaining sizes share no factor, dims cannot be split up to the next common boundary.
    """
    shape = shapes[0]
    target = params["shape"]
    assert isinstance(target, list)
    made = tuple(np.empty(shape, np.bool_).reshape([int(size) for size in target]).shape)
    if not math.prod(shape):
        return (("",) * len(shape),), ("",) * len(made)
    sides = shape, made
    found: tuple[list[list[tuple[str, int]]], ...] = [[] for _ in shape], [[] for _ in made]
    at, left = [-1, -1], [1, 1]

    def forward(side: int) -> bool:
        """Go to the next dim of a side, if there is one."""
        if at[side] + 1 == len(sides[side]):
            return False
        at[side] += 1
        left[side] = sides[side][at[side]]
        return True

    while True:
        while left == [1, 1] and all(one[n + 1 : n + 2] == (1,) for one, n in zip(sides, at)):
            # Dims of one element match each other, if they come in pairs.
            for side in (0, 1):
                forward(side)
                found[side][at[side]].append((f"f{sum(map(len, found[0])) - side}", 1))
        for side in (0, 1):
            while left[side] == 1 and forward(side):
                pass
        if left == [1, 1]:
            break
        common = math.gcd(*left)
        if common > 1:
            name = f"f{sum(map(len, found[0]))}"
            for side in (0, 1):
                found[side][at[side]].append((name, common))
                left[side] //= common
            continue
        gone = [1, 1]
        while gone[0] != gone[1] or gone == [1, 1]:
            side = 0 if gone[0] <= gone[1] else 1
            if left[side] == 1:
                forward(side)
            found[side][at[side]].append(("", left[side]))
            gone[side] *= left[side]
            left[side] = 1
    own, out = (tuple(_label(parts) for parts in one) for one in found)
    return (own,), out


def _label(parts: list[tuple[str, int]]) -> Label:
    """A dim with one part has its name. A dim of one element has no name."""
    return tuple(parts) if len(parts) > 1 else parts[0][0] if parts else ""


def take(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The dims of the second operand, the indices, replace the dim ``axis`` of the first.

    If that dim is split, each device takes its own elements and 0 for the rest: a pending sum.
    """
    x, i = shapes
    own = dim_labels(len(x))
    at = single_dim(params["axis"], len(x))
    picked = dim_labels(len(i), "i")
    return (own, picked), (*own[:at], *picked, *own[at + 1 :])


def embedding(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The dims of the indices, then the columns of the table. Rows are as in `take`."""
    picked = dim_labels(len(shapes[0]), "i")
    return (picked, ("r", "c")), (*picked, "c")


def append_dim(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The result has a new last dim."""
    own = dim_labels(len(shapes[0]))
    return (own,), (*own, "")


def linear(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """x[…, k] by w[n, k], with or without a bias[n]."""
    lead = dim_labels(len(shapes[0]) - 1)
    bias = (("n",),) if len(shapes) == 3 else ()
    return ((*lead, "k"), ("n", "k"), *bias), (*lead, "n")


def addmm(shapes: tuple[Shape, ...], params: Params) -> Labels | None:
    """c[m, n] + x[m, k] w[k, n]."""
    if shapes[0] != (shapes[1][0], shapes[2][1]):
        return None
    return (("m", "n"), ("m", "k"), ("k", "n")), ("m", "n")


def outer(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The result has rows m and columns n."""
    return (("m",), ("n",)), ("m", "n")


def convolution(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """x[n, c, …] by w[o, c, …], summed over channels.

    Dims after the channels have `NO_RULE`, because a window needs only an edge of the neighbour.
    """
    places = (NO_RULE,) * (len(shapes[0]) - 2)
    return (("n", "c", *places), ("o", "c", *places)), ("n", "o", *("",) * len(places))


def attention(shapes: tuple[Shape, ...], params: Params) -> Labels | None:
    """Batch, heads and the columns of v. Queries have a label without a causal mask.

    Keys and the columns of q and k have `NO_RULE`, because statistics of parts may be enough.
    So have queries under a causal mask, because the mask depends on which of them a device has.
    """
    lead = {shape[:-2] for shape in shapes}
    if len(lead) > 1:
        return None
    batch = dim_labels(len(shapes[0]) - 2)
    causal = bool(params.get("causal"))
    return (
        (
            (*batch, NO_RULE if causal else "q", NO_RULE),
            (*batch, NO_RULE, NO_RULE),
            (*batch, NO_RULE, "e"),
        ),
        (*batch, "" if causal else "q", "e"),
    )


def loss(shapes: tuple[Shape, ...], params: Params) -> Labels | None:
    """Elementwise, then a sum or a mean over all elements unless ``reduction`` is none."""
    if len(set(shapes)) > 1:
        return None
    own = dim_labels(len(shapes[0]))
    return (own,) * len(shapes), own if params.get("reduction") == "none" else ()


def by_class(shapes: tuple[Shape, ...], params: Params) -> Labels | None:
    """x[n, c] with targets t[n]. A mean has no rule, because its denominator is another sum.

    Classes have `NO_RULE`, because the device with the target's class can send it alone.
    """
    if len(shapes) != 2 or len(shapes[0]) != 2 or params.get("reduction", "mean") == "mean":
        return None
    return (("n", NO_RULE), ("n",)), ("n",) if params.get("reduction") == "none" else ()
