"""What did all ranks observe? Their reports are merged into one observation per name.

Shards are in mesh order. Differences become sentences. This module does not import torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from adapters.answer import Collective, Observed
from adapters.torch_dtensor.rank_messages import Raised, RankObservation, Report, digest
from cases.arrays import Array
from cases.model import Foreign, Layout, Mesh
from cases.notation import to_placements


def find_differing_full_tensors(reports: Mapping[int, Report]) -> tuple[str, ...]:
    """The names whose full tensors differ between ranks."""
    fulls: dict[str, set[bytes]] = {}
    for report in reports.values():
        for seen in report.seen:
            if seen.full is not None:
                fulls.setdefault(seen.name, set()).add(_digest(seen.full))
    return tuple(name for name, found in fulls.items() if len(found) > 1)


def merge_observations(
    mesh: Mesh,
    reports: Mapping[int, Report],
    fulls: Mapping[int, Mapping[str, Array]],
    homes: Mapping[str, Mesh],
) -> tuple[Observed, ...]:
    """One observation per name. The order is that of the rank with the most names.

    ``fulls``: full tensors by rank and name, for the names of `find_differing_full_tensors`.
    ``homes``: the derived meshes of tensors, each with all its devices.
    """
    by_rank = {rank: {seen.name: seen for seen in report.seen} for rank, report in reports.items()}
    names = max(by_rank.values(), key=len, default={})
    every = dict.fromkeys([*names, *(name for seen in by_rank.values() for name in seen)])
    return tuple(
        _merge(
            name,
            mesh,
            {rank: seen[name] for rank, seen in by_rank.items() if name in seen},
            fulls,
            homes.get(name),
        )
        for name in every
    )


def _merge(
    name: str,
    mesh: Mesh,
    seen: Mapping[int, RankObservation],
    fulls: Mapping[int, Mapping[str, Array]],
    home: Mesh | None,
) -> Observed:
    # A tensor on another mesh has the positions of that mesh.
    other_meshes = {
        one.mesh for rank, one in seen.items() if one.mesh is not None and rank in one.mesh.devices
    }
    on_other_mesh = len(other_meshes) == 1 and not any(one.mesh is None for one in seen.values())
    lies_on = home or (next(iter(other_meshes)) if on_other_mesh else mesh)
    positions = lies_on.devices
    parts = [(rank, seen[rank]) for rank in positions if rank in seen]
    first = parts[0][1]
    full: tuple[Array, ...] = ()
    if any(name in arrays for arrays in fulls.values()):
        full = tuple(fulls[rank][name] for rank, _ in parts if name in fulls.get(rank, {}))
    else:
        full = tuple(one.full for _, one in parts if isinstance(one.full, Array))[:1]
    offsets = tuple(seen[rank].offset if rank in seen else None for rank in positions)
    shards = tuple(seen[rank].shard if rank in seen else None for rank in positions)
    layout = first.layout
    if home is not None and layout is not None:
        foreign = (
            find_layout_on_other_mesh(one.layout, one.mesh or mesh, home, rank)
            for rank, one in parts
        )
        layout = next(filter(None, foreign), layout)
    return Observed(
        name,
        first.dtype,
        first.shape,
        layout,
        shards if any(shard is not None for shard in shards) else None,
        offsets if any(where is not None for where in offsets) else None,
        full,
        _largest([one.collectives for _, one in parts]),
        _largest([one.full_collectives for _, one in parts]),
        tuple(_differences(parts)),
        first.note,
        mesh=first.mesh if home is None else None if home == mesh else home,
    )  # fmt: skip


def find_layout_on_other_mesh(
    layout: Layout | Foreign | None, found: Mesh, home: Mesh, rank: int
) -> Foreign | None:
    """The layout of a rank on the mesh ``found``. None if that is the rank's part of ``home``."""
    axes = tuple((name, home[name]) for name in home.layout_axes)
    size = math.prod(length for _, length in axes)
    first = home.devices.index(rank) // size * size
    if found == Mesh(axes, home.devices[first : first + size]):
        return None
    sizes = ", ".join(f"{name}={length}" for name, length in found.axes)
    text = _to_json(layout)
    if isinstance(layout, Layout):
        text = f"[{', '.join(to_placements(layout, found))}]"
    return Foreign(f"{text} on the mesh {sizes} of devices {list(found.devices)}")


def _digest(full: Array | bytes) -> bytes:
    return digest(full) if isinstance(full, Array) else full


def _differences(parts: Sequence[tuple[int, RankObservation]]) -> Iterable[str]:
    rank, first = parts[0]
    fields = (
        ("layout", lambda one: one.layout),
        ("global shape", lambda one: one.shape),
        ("dtype", lambda one: one.dtype),
        ("collectives", lambda one: _kinds(one.collectives)),
        ("collectives of the full tensor", lambda one: _kinds(one.full_collectives)),
    )
    for other, seen in parts[1:]:
        for what, look in fields:
            if look(seen) != look(first):
                yield (
                    f"{what}: rank {other} reports {_to_json(look(seen))},"
                    f" rank {rank} {_to_json(look(first))}"
                )


def _kinds(fired: tuple[Collective, ...] | None) -> object:
    """The collectives without bytes, which differ between ranks with uneven shards."""
    if fired is None:
        return None
    return tuple((one.kind, one.axes, one.group, one.pass_) for one in fired)


def _to_json(what: object) -> str:
    return msgspec.json.encode(what).decode()


def _largest(fired: Sequence[tuple[Collective, ...] | None]) -> tuple[Collective, ...] | None:
    """The collectives of the first rank, each with the largest bytes of any rank."""
    first = fired[0]
    if first is None or all(one == first for one in fired):
        return first
    equal = [one for one in fired if one is not None and _kinds(one) == _kinds(first)]
    return tuple(max(same, key=lambda one: one.bytes) for same in zip(*equal))


def merge_program_collectives(reports: Mapping[int, Report]) -> tuple[Collective, ...] | None:
    """The collectives of the passes of a recipe, each with the largest bytes of any rank."""
    fired = [report.program for report in reports.values() if report.seen]
    return _largest(fired) if fired else None


def format_program_differences(reports: Mapping[int, Report]) -> tuple[str, ...]:
    """A sentence for each rank whose collectives in a recipe differ from the lowest rank's."""
    of = {rank: _kinds(report.program) for rank, report in sorted(reports.items()) if report.seen}
    first = min(of, default=0)
    return tuple(
        f"rank {rank} fired {_to_json(kinds)}, rank {first} {_to_json(of[first])}"
        for rank, kinds in of.items()
        if kinds != of[first]
    )


def raised_in_step(raised: Sequence[Raised]) -> bool:
    """Whether all ranks raised at one place after the same collectives. Then none is waiting."""
    first = raised[0]
    return all(
        one.place == first.place and _kinds(one.fired) == _kinds(first.fired) for one in raised
    )


def format_error_differences(raised: Mapping[int, Raised]) -> tuple[str, ...]:
    """A sentence for each rank whose error differs from the lowest rank's."""
    lowest = raised[min(raised)]
    return tuple(
        f"rank {rank} raised {one.error} at {one.place}: {one.line}"
        for rank, one in sorted(raised.items())
        if (one.error, one.line, one.place) != (lowest.error, lowest.line, lowest.place)
    )
