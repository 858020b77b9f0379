"""What did a step do, judged by the shards before and after it alone?

Nothing, a move of data, or a reduction. No counter is used, so this can guard the counters. It
needs data in which all elements differ, and says so when they do not.
"""

from __future__ import annotations

import itertools
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from adapters.answer import Collective, Observed
from adapters.reference.evaluate import cut_shards, global_array
from cases.arrays import unpack
from cases.layout import axis_groups
from cases.model import Case, Layout, Mesh
from suites.aspects import Context
from suites.observation import CountersDisagree
from suites.tensors import mesh_of
from suites.verdict import Finding, agree, differs, not_comparable

Shards = list[NDArray[Any]]


class Effect(msgspec.Struct, frozen=True):
    """What happened between two sets of shards.

    "nothing": every device already had what it holds. "moved": some device has elements that others
    had; ``ways`` are the smallest sets of mesh axes along which they can have come. "reduced": some
    device has an element that none had.
    """

    kind: Literal["nothing", "moved", "reduced"]
    ways: tuple[tuple[str, ...], ...] = ()


_MOVERS = {"all-gather", "all-to-all", "collective-permute", "broadcast", "scatter", "gather"}
_REDUCERS = {"all-reduce", "reduce-scatter"}


def effect_of(mesh: Mesh, before: Shards, after: Shards) -> Effect | None:
    """The effect that led from ``before`` to ``after``, one array per mesh position.

    None where elements repeat inside a shard, so that they cannot be told apart.
    """
    had = [set(shard.ravel().tolist()) for shard in before]
    has = [set(shard.ravel().tolist()) for shard in after]
    if any(len(own) < shard.size for own, shard in zip(had, before, strict=True)):
        return None
    new = [theirs - own for theirs, own in zip(has, had, strict=True)]
    if not any(new):
        return Effect("nothing")
    everything = set().union(*had)
    if any(not theirs <= everything for theirs in new):
        return Effect("reduced")
    for count in range(1, len(mesh.axes) + 1):
        ways = [
            axes
            for axes in itertools.combinations(mesh.names, count)
            if all(
                new[p] <= set().union(*(had[m] for m in group))
                for group in axis_groups(mesh, axes)
                for p in group
            )
        ]
        if ways:
            return Effect("moved", tuple(ways))
    raise AssertionError("all axes together reach every device")


def explain_misfit(effect: Effect, counted: tuple[Collective, ...], picks: bool = False) -> str:
    """Why counted collectives cannot have had this effect; "" if they can.

    ``picks``: the pending reduction was a maximum or minimum, which moves elements. Where nothing
    happened, any collective may have been fired in vain: the aspect `collectives` judges that.
    """
    if effect.kind == "nothing":
        return ""
    if effect.kind == "reduced":
        if any(one.kind in _REDUCERS for one in counted):
            return ""
        return "elements are new to every device, and nothing that reduces was counted"
    moving = _MOVERS | _REDUCERS if picks else _MOVERS
    movers = [one for one in counted if one.kind in moving]
    if not movers:
        return "devices have elements that others had, and nothing that moves was counted"
    reach = {axis for one in movers for axis in one.axes}
    if any(not one.axes for one in movers) or any(reach.issuperset(way) for way in effect.ways):
        return ""
    wanted = " or ".join(",".join(way) for way in effect.ways)
    return f"elements came over {wanted}, counted over {','.join(sorted(reach))}"


def check_effects(context: Context) -> list[Finding]:
    """Do the counters agree, and does what was counted fit what happened to the shards?"""
    case, answer, found = context.case, context.answer, []
    if answer.complaints:
        said = CountersDisagree("; ".join(answer.complaints))
        found.append(differs(None, "effects", said))
    if context.is_dry_run or case.question.recipe is not None:
        return found
    seen = {observed.name: observed for observed in context.tensors}
    for step in case.question.steps:
        result = seen.get(step.result)
        if result is None or step.op not in ("redistribute", "identity"):
            continue
        counted = result.collectives if result.collectives is not None else answer.program
        before, after = _shards_before(case, seen, str(step.args[0])), _complete_shards(result)
        before = _reorder_to_mesh(
            mesh_of(case, str(step.args[0])), mesh_of(case, step.result), before
        )
        if isinstance(result.layout, Layout) and result.layout.partial:
            why = "any way to share out a pending sum is right"
            found.append(not_comparable(step.result, "effects", why))
            continue
        if counted is None or before is None or after is None:
            found.append(not_comparable(step.result, "effects", "no shards or no count"))
            continue
        if result.collectives is None and len(case.question.steps) > 1:
            why = "collectives are counted for the whole program only"
            found.append(not_comparable(step.result, "effects", why))
            continue
        effect = effect_of(mesh_of(case, step.result), before, after)
        if effect is None:
            why = "elements repeat in a shard, so that they cannot be told apart"
            found.append(not_comparable(step.result, "effects", why))
        elif why := explain_misfit(effect, counted, _has_max_or_min(case, seen, str(step.args[0]))):
            observed = CountersDisagree(why, counted)
            found.append(differs(step.result, "effects", observed, why=why))
        else:
            found.append(agree(step.result, "effects"))
    return found


def _has_max_or_min(case: Case, seen: dict[str, Observed], name: str) -> bool:
    given = next((one.layout for one in case.question.inputs if one.name == name), None)
    reported = seen[name].layout if name in seen else None
    layout = reported or given
    return isinstance(layout, Layout) and any(op in ("max", "min") for _, op in layout.partial)


def _shards_before(case: Case, seen: dict[str, Observed], name: str) -> Shards | None:
    """The shards before a step: as observed, or as the question places an input."""
    given = next((one for one in case.question.inputs if one.name == name), None)
    if name in seen or given is None:
        return _complete_shards(seen.get(name))
    if given.per_device is not None:
        return [unpack(array) for array in given.per_device]
    mesh = mesh_of(case, name)
    return cut_shards(mesh, given.layout, global_array(given, mesh))


def _reorder_to_mesh(source: Mesh, target: Mesh, shards: Shards | None) -> Shards | None:
    """Shards in the order of another mesh on the same devices; None if the devices differ."""
    if shards is None or source == target:
        return shards
    of_device = dict(zip(source.devices, shards, strict=True))
    if of_device.keys() != set(target.devices):
        return None
    return [of_device[device] for device in target.devices]


def _complete_shards(observed: Observed | None) -> Shards | None:
    if observed is None or observed.shards is None:
        return None
    shards = [unpack(shard) for shard in observed.shards if shard is not None]
    if len(shards) < len(observed.shards):
        return None
    if any(shard.dtype.kind not in "biuc" and not np.isfinite(shard.astype(np.float64)).all()
           for shard in shards):  # fmt: skip
        return None
    return shards
