"""Which dims of an op's operands and result belong together? Label rules, by kind of op.

A rule is a statement about labels, as in an einsum: every dim of an operand carries one, and
an axis that splits a label splits it wherever it occurs. "" marks a dim that cannot be split.
`NO_RULE` marks a dim on whose parts devices can work in several ways, each of which moves other
bytes; where such a dim is split, nothing is implied.
A dim may be several in one, each with a label and a size, major to minor.
Knows shapes and parameters; what follows for layouts is worked out elsewhere.
"""

from __future__ import annotations

import math

import numpy as np

from cases.ops.op import NO_RULE, Label, Labels, Params, Rule, Shape, normalize_axes, single_dim


def dim_labels(ndim: int, prefix: str = "d") -> tuple[str, ...]:
    """d0, d1, …"""
    return tuple(f"{prefix}{dim}" for dim in range(ndim))


def same_dims(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The result has the dims of the one operand."""
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
    """The dims of ``axis`` vanish and leave a reduction owed."""
    own = dim_labels(len(shapes[0]))
    gone = normalize_axes(params.get("axis"), len(own))
    if params.get("keepdims"):
        return (own,), tuple("" if dim in gone else name for dim, name in enumerate(own))
    return (own,), tuple(name for dim, name in enumerate(own) if dim not in gone)


def reduce_unsplit(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """As `reduce`, but nothing is said where the dims of ``axis`` are split.

    Parts are no addends: a place, a spread or a logarithm of a sum is put together from numbers
    about each part, and which those are is the framework's to say.
    """
    (own,), result = reduce(shapes, params)
    gone = normalize_axes(params.get("axis"), len(own))
    return (tuple(NO_RULE if dim in gone else name for dim, name in enumerate(own)),), result


def along_axis(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The operand's dims; nothing is said where those of ``axis`` are split: without it, the last.

    A neighbour's edge, a running total or what is largest of each part may do in place of the
    whole. What is of another size than in the first operand cannot be split.
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
    """One element of every ``step``, all along the dim of ``axis``; else as `along_axis`.

    Whoever has whole blocks of ``step`` elements has one of the result in each.
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
    """Every element of ``axis`` is followed by its copies, where it is."""
    own = dim_labels(len(shapes[0]))
    at = single_dim(params["axis"], len(own))
    copies = params["repeats"]
    assert isinstance(copies, int)
    parts = ((own[at], shapes[0][at]), ("", copies))
    return (own,), (*own[:at], parts, *own[at + 1 :])


def last_dims(count: int) -> Rule:
    """The first operand's last ``count`` dims: nothing is said where they are split.

    The result has its dims; the other operands, which go with those dims, cannot be split.
    """

    def rule(shapes: tuple[Shape, ...], params: Params) -> Labels:
        own = dim_labels(len(shapes[0]) - count)
        rest = tuple(("",) * len(shape) for shape in shapes[1:])
        return ((*own, *(NO_RULE,) * count), *rest), (*own, *("",) * count)

    return rule


def batch_dims(count: int) -> Rule:
    """Nothing is said where the last ``count`` dims are split: elimination can go by blocks."""

    def rule(shapes: tuple[Shape, ...], params: Params) -> Labels | None:
        lead = {shape[:-count] for shape in shapes}
        if len(lead) > 1:
            return None
        own = dim_labels(len(shapes[0]) - count)
        return ((*own, *(NO_RULE,) * count),) * len(shapes), (*own, *("",) * count)

    return rule


def matmul(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """Batch dims broadcast; rows m, columns n, and k that is summed over."""
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
    """The subscripts say it; not implicit results, ellipses and diagonals."""
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
    """A new dim at ``axis`` of the result; several operands stand along it."""
    own = dim_labels(len(shapes[0]))
    at = single_dim(params["axis"], len(own) + 1)
    return (own,) * len(shapes), (*own[:at], "", *own[at:])


def remove_dims(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The dims of ``axis`` are not in the result.

    Nothing is said where they are split: one device has what is left, and can send it alone.
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
    """Reshape: dims are told apart by the factors that both shapes have, major to minor.

    [8, 4] as [32] is 8 and 4 in one; [2, 12] as [2, 4, 3] has 12 as 4 and 3. Where the sizes that
    are left have no common factor, nothing can be split until as many elements have gone by.
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
        """To the next dim of a side, if there is one."""
        if at[side] + 1 == len(sides[side]):
            return False
        at[side] += 1
        left[side] = sides[side][at[side]]
        return True

    while True:
        while left == [1, 1] and all(one[n + 1 : n + 2] == (1,) for one, n in zip(sides, at)):
            # Dims of one element go with one another, as long as they come in pairs.
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
    """One part by its name alone, a dim of one element by none."""
    return tuple(parts) if len(parts) > 1 else parts[0][0] if parts else ""


def take(shapes: tuple[Shape, ...], params: Params) -> Labels:
    """The dim ``axis`` of the first gives way to the dims of the second, the indices.

    Where it is split, each device takes what it has and zero for the rest: a sum is owed.
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
    """Batch and heads; with no causal mask the queries too, and the columns of v.

    Nothing is said where keys or the columns of q and k are split: statistics of parts may do.
    Nor of queries under a causal mask, which has to know which of them a device has.
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
    """x[n, c] with targets t[n], where no mean is taken: of how many is another sum.

    Nothing is said where classes are split: whoever has the target's can send it alone.
    """
    if len(shapes) != 2 or len(shapes[0]) != 2 or params.get("reduction", "mean") == "mean":
        return None
    return (("n", NO_RULE), ("n",)), ("n",) if params.get("reduction") == "none" else ()
