"""Which dims of an op's operands and result belong together? Label rules, by kind of op.

A rule is a statement about labels, as in an einsum: every dim of an operand has one, and an axis
that splits a label splits it wherever it occurs. "" marks a dim that cannot be split. `NO_RULE`
marks a dim on whose parts devices can work in several ways, each of which moves other bytes; if
such a dim is split, nothing is implied. A dim may consist of several parts, each with a label and a
size, major to minor. Knows shapes and parameters; other modules work out what follows for layouts.
"""

from __future__ import annotations

import math

import numpy as np

from cases.ops.op import NO_RULE, Label, Labels, Params, Rule, Shape, normalize_axes, single_dim


def dim_labels(ndim: int, prefix: str = "d") -> tuple[str, ...]:
    """d0, d1, …"""
    return tuple(f"{prefix}{dim}" for dim in range(ndim))


def same_dims(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The result has the dims of the only operand."""
    own = dim_labels(len(shapes[0]))
    return (own,), own


def broadcast(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """NumPy's broadcasting: dims align from the right, a stretched dim cannot be split."""
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
    """As `reduce`, but with no rule if the dims of ``axis`` are split.

    Parts give no addends: a place, a spread or a logarithm of a sum is put together from numbers
    about each part, and each framework chooses those numbers.
    """
    (own,), result = reduce(shapes, params)
    gone = normalize_axes(params.get("axis"), len(own))
    return (tuple(NO_RULE if dim in gone else name for dim, name in enumerate(own)),), result


def along_axis(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The operand's dims, with no rule if those of ``axis`` (by default the last) are split.

    A neighbour's edge, a running total or the largest of each part may do in place of the whole. A
    dim whose size differs from the first operand's cannot be split.
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
    """One element of every ``step``, over all of the dim ``axis``; otherwise as `along_axis`.

    A device that has whole blocks of ``step`` elements has one element of the result for each.
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
    """Every element along ``axis`` is followed by its copies, on the same device."""
    own = dim_labels(len(shapes[0]))
    at = single_dim(params["axis"], len(own))
    copies = params["repeats"]
    assert isinstance(copies, int)
    parts = ((own[at], shapes[0][at]), ("", copies))
    return (own,), (*own[:at], parts, *own[at + 1 :])


def last_dims(count: int) -> Rule:
    """The first operand's last ``count`` dims: no rule if they are split.

    The result has its dims. The other operands go with those dims and cannot be split.
    """

    def rule(shapes: tuple[Shape, ...], params: Params) -> Labels:
        own = dim_labels(len(shapes[0]) - count)
        rest = tuple(("",) * len(shape) for shape in shapes[1:])
        return ((*own, *(NO_RULE,) * count), *rest), (*own, *("",) * count)

    return rule


def batch_dims(count: int) -> Rule:
    """No rule if the last ``count`` dims are split: elimination can go by blocks."""

    def rule(shapes: tuple[Shape, ...], params: Params) -> Labels | None:
        lead = {shape[:-count] for shape in shapes}
        if len(lead) > 1:
            return None
        own = dim_labels(len(shapes[0]) - count)
        return ((*own, *(NO_RULE,) * count),) * len(shapes), (*own, *("",) * count)

    return rule


def matmul(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """Batch dims broadcast; rows m, columns n, and k, over which the product is summed."""
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
    """As the subscripts say; no implicit results, ellipses or diagonals."""
    text = str(params["subscripts"]).replace(" ", "")
    inputs, arrow, out = text.partition("->")
    operands = tuple(map(tuple, inputs.split(",")))
    if not arrow or "." in text or any(len(set(own)) < len(own) for own in operands):
        return None
    return operands, tuple(out)


def permute(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """``axes`` says which dim of the operand each dim of the result is."""
    own = dim_labels(len(shapes[0]))
    return (own,), tuple(own[dim] for dim in normalize_axes(params["axes"], len(own)))


def swap_last(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The last two dims change places."""
    own = dim_labels(len(shapes[0]))
    return (own,), (*own[:-2], own[-1], own[-2])


def insert_dim(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """A new dim at ``axis`` of the result, along which several operands stand."""
    own = dim_labels(len(shapes[0]))
    at = single_dim(params["axis"], len(own) + 1)
    return (own,) * len(shapes), (*own[:at], "", *own[at:])


def remove_dims(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The dims of ``axis`` are not in the result.

    No rule if they are split: one device has what is left, and can send it alone.
    """
    gone = normalize_axes(params["axis"], len(shapes[0]))
    own = tuple(
        NO_RULE if dim in gone else name for dim, name in enumerate(dim_labels(len(shapes[0])))
    )
    return (own,), tuple(name for dim, name in enumerate(own) if dim not in gone)


def stretch(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """Broadcasting to ``shape``: dims that are new or stretched are not split."""
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
    """Reshape: dims are divided into the factors that both shapes have, major to minor.

    [8, 4] as [32] is one dim of parts 8 and 4; [2, 12] as [2, 4, 3] has 12 as parts 4 and 3. Where
    the sizes left have no common factor, nothing can be split until both sides have passed as many
    elements.
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
            # Dims of one element are paired with one another as long as both sides have one.
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
    """A single part by its name alone; a dim of one element without a name."""
    return tuple(parts) if len(parts) > 1 else parts[0][0] if parts else ""


def take(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The dim ``axis`` of the first operand gives way to the dims of the second, the indices.

    If it is split, each device takes what it has and zero for the rest: a sum is pending.
    """
    x, i = shapes
    own = dim_labels(len(x))
    at = single_dim(params["axis"], len(x))
    picked = dim_labels(len(i), "i")
    return (own, picked), (*own[:at], *picked, *own[at + 1 :])


def embedding(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """Indices first, then the columns of the table; rows as in `take`."""
    picked = dim_labels(len(shapes[0]), "i")
    return (picked, ("r", "c")), (*picked, "c")


def append_dim(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """A new last dim."""
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
    """Rows m and columns n."""
    return (("m",), ("n",)), ("m", "n")


def convolution(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """x[n, c, …] by w[o, c, …]: channels are summed over.

    Nothing is said where places are split: a window needs no more than the neighbour's edge.
    """
    places = (NO_RULE,) * (len(shapes[0]) - 2)
    return (("n", "c", *places), ("o", "c", *places)), ("n", "o", *("",) * len(places))


def attention(shapes: tuple[Shape, ...], params: Params) -> Labels | None:
    """Batch and heads; without a causal mask also the queries, and the columns of v.

    No rule if keys or the columns of q and k are split: statistics of parts may do. Nor for queries
    under a causal mask, which must know which of them a device has.
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
    """Elementwise, then summed or averaged over everything unless ``reduction`` is none."""
    if len(set(shapes)) > 1:
        return None
    own = dim_labels(len(shapes[0]))
    return (own,) * len(shapes), own if params.get("reduction") == "none" else ()


def by_class(shapes: tuple[Shape, ...], params: Params) -> Labels | None:
    """x[n, c] with targets t[n], if no mean is taken: a mean's count is another sum.

    No rule if classes are split: the device that has the target's class can send it alone.
    """
    if len(shapes) != 2 or len(shapes[0]) != 2 or params.get("reduction", "mean") == "mean":
        return None
    return (("n", NO_RULE), ("n",)), ("n",) if params.get("reduction") == "none" else ()
