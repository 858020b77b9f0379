"""Do two frameworks hold the same shards, in the same layouts, of the same tensor?

Each is judged by itself elsewhere. Here one is compared with the other, device by device. Nothing
is compared with a result that is wrong by itself.
"""

from __future__ import annotations

from adapters.answer import Observed
from adapters.registry import only_executes_plans
from cases.layout import are_equivalent, index_ranges
from cases.model import Layout, Mesh
from suites import observation as seen_as
from suites.array_difference import EXACT, difference, tolerance_of_shard
from suites.aspects import Context, compare_values, double_tolerance, has_shards
from suites.tensors import UNSHARDED, mesh_of, result_name, value_aspect
from suites.verdict import Finding, agree, differs, not_comparable


def suspect_steps(found: list[Finding]) -> frozenset[str]:
    """The inputs and results of an answer that are wrong by themselves."""
    aspects = ("soundness", "global", "gradients")
    return frozenset(
        result_name(one.step) for one in found if one.aspect in aspects and one.severity == "wrong"
    )


def compare_answers(ours: Context, theirs: Context, doubt: frozenset[str]) -> list[Finding]:
    """The findings of an answer, compared with that of another framework.

    ``doubt``: the results of the other that are wrong by themselves, so that nothing is compared
    with them.
    """
    found, against = [], theirs.answer.subject
    for seen in ours.tensors:
        other = theirs.find(seen.name)
        if other is None:
            continue
        for look in (same_shards, same_layout, same_unsharded):
            finding = look(ours, seen, theirs, other)
            if finding is None:
                continue
            if finding.bad and seen.name in doubt:
                finding = not_comparable(
                    seen.name, finding.aspect, f"{against} is itself wrong here", against
                )
            found.append(finding)
    return found


def same_shards(ours: Context, seen: Observed, theirs: Context, other: Observed) -> Finding | None:
    """Do two subjects hold the same shards, device by device, where their layouts are equal?"""
    if seen.name.startswith(UNSHARDED):
        return None
    mesh, against = mesh_of(ours.case, seen.name), theirs.answer.subject
    if seen.name in ours.right.own:
        why = "random numbers are each framework's own"
        return not_comparable(seen.name, "shards", why, against)
    if seen.name in ours.right.apart:
        return not_comparable(seen.name, "shards", ours.right.apart[seen.name], against)
    if not (has_shards(seen) and has_shards(other)):
        return not_comparable(seen.name, "shards", "no shards", against)
    if seen.layout is None or other.layout is None:
        return not_comparable(seen.name, "shards", "no layout reported", against)
    if not _same_layout(mesh, seen, other):
        return not_comparable(seen.name, "shards", "the layouts differ", against)
    if isinstance(seen.layout, Layout) and seen.layout.partial:
        why = "partial shards are not compared device by device: any split of the sum is right"
        return not_comparable(seen.name, "shards", why, against)
    if seen.local is not None and other.local is not None:
        if seen.local == other.local:
            return agree(seen.name, "shards", against)
        observed = seen_as.WrongShard(0, other.local, seen.local)
        return differs(seen.name, "shards", observed, against)
    # Each has the dtype that its own framework defines. Values are judged by themselves.
    if seen.dtype != other.dtype:
        return not_comparable(seen.name, "shards", "the dtypes differ", against)
    # Two right results of one op may round differently. Soundness compares each with its own value.
    assert isinstance(seen.layout, Layout)
    allowed = double_tolerance(ours.right.allowed.get(seen.name, EXACT))
    held = index_ranges(mesh, seen.layout, seen.shape)
    for position, (got, wanted) in enumerate(zip(seen.shards or (), other.shards or ())):
        if got is None or wanted is None:
            continue
        if difference(wanted, got, tolerance_of_shard(allowed, held[position])) is not None:
            observed = seen_as.WrongShard(position, wanted, got)
            return differs(seen.name, "shards", observed, against)
    return agree(seen.name, "shards", against)


def _same_layout(mesh: Mesh, one: Observed, other: Observed) -> bool:
    return (
        isinstance(one.layout, Layout)
        and isinstance(other.layout, Layout)
        and one.shape == other.shape
        and one.layout.ndim == other.layout.ndim == len(one.shape)
        and are_equivalent(mesh, one.layout, other.layout, one.shape)
    )


def same_layout(ours: Context, seen: Observed, theirs: Context, other: Observed) -> Finding | None:
    """Do two subjects report the same layout? Another layout is free where nobody asked for one."""
    if seen.name.startswith(UNSHARDED) or only_executes_plans(ours.answer.subject):
        return None
    mesh, against = mesh_of(ours.case, seen.name), theirs.answer.subject
    if seen.layout is None or other.layout is None:
        return not_comparable(seen.name, "layout", "no layout reported", against)
    if _same_layout(mesh, seen, other):
        return agree(seen.name, "layout", against)
    return differs(seen.name, "layout", seen_as.OtherLayout(other.layout, seen.layout), against)


def same_unsharded(
    ours: Context, seen: Observed, theirs: Context, other: Observed
) -> Finding | None:
    """Do the unsharded steps of a recipe agree in two frameworks?"""
    if not seen.name.startswith(UNSHARDED) or not seen.full or not other.full:
        return None
    aspect, against = value_aspect(ours.case, seen.name), theirs.answer.subject
    allowed = double_tolerance(ours.right.allowed.get(seen.name, EXACT))
    off = compare_values(other.full[0], seen.full[0], allowed)
    if off is None:
        return agree(seen.name, aspect, against)
    return differs(seen.name, aspect, off, against, why="the unsharded steps differ")
