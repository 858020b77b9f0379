"""What does a case itself state to be right? Values, shards, meshes, counts and tolerance.

Reads the keys of a case that never reach a framework. Files list values in the order of device
numbers, and an `Expectation` has them by mesh position. Refuses to know the reference.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from cases import typed_fields
from cases.array_literals import parse_array
from cases.arrays import Array, pack
from cases.errors import Where, format_value
from cases.inputs import DeclaredTensor, read_layout, read_locals
from cases.mesh_derivation import DerivedMesh
from cases.meshes import listing_order
from cases.model import COLLECTIVES, Expectation, Layout, Mesh, Tolerance

KEYS = (
    "right", "shards", "offsets", "meshes", "refused", "layouts", "counts", "sufficient",
    "tolerance",
)  # fmt: skip


def read_expectation(
    raw: dict[str, Any],
    tensors: dict[str, DeclaredTensor],
    counted: Collection[str],
    views: dict[str, DerivedMesh],
    mesh: Mesh,
    mode: str,
    where: Where,
) -> Expectation:
    """The expectation of a case on ``mesh`` with these inputs, results and derived meshes.

    ``counted``: the names for which collectives can be stated.

    Raises:
        BadInput: an unknown name, or a value that does not fit its tensor.
    """
    if mode == "dry run":
        for key in ("right", "shards"):
            if key in raw:
                raise where.error(f"{key} in a dry run", "none: a dry run has no data")
    right: dict[str, Array] = {}
    for name, value, tensor, place in _named(raw, "right", tensors, where):
        right[name] = pack(parse_array(value, tensor.typed.dtype, tensor.typed.shape, place))
    shards: dict[str, tuple[Array, ...]] = {}
    for name, value, tensor, place in _named(raw, "shards", tensors, where):
        shards[name] = _shards(value, tensor, place)
    offsets: dict[str, tuple[tuple[int, ...], ...]] = {}
    for name, value, tensor, place in _named(raw, "offsets", tensors, where):
        listed = _per_device(value, tensor.mesh.size, place)
        ndim = len(tensor.typed.shape)
        starts = [typed_fields.shape(one, place.at(i), ndim) for i, one in enumerate(listed)]
        offsets[name] = tuple(starts[i] for i in listing_order(tensor.mesh.devices))
    layouts: dict[str, Layout] = {}
    for name, value, tensor, place in _named(raw, "layouts", tensors, where):
        layouts[name] = read_layout(value, tensor.mesh, len(tensor.typed.shape), place)
    return Expectation(
        right,
        shards,
        offsets,
        _meshes(raw, views, mesh, where),
        layouts,
        _counts(raw, counted, where),
        _sufficient(raw, where),
        _tolerance(raw, where),
        typed_fields.text(raw.get("refused", ""), where.at("refused")),
    )


def names_in_expectation(expectation: Expectation) -> set[str]:
    """The inputs, results and derived meshes that an expectation names."""
    counted = {name.removesuffix("/full") for name in expectation.counts}
    return counted.union(
        expectation.right, expectation.shards, expectation.offsets, expectation.meshes,
        expectation.layouts,
    )  # fmt: skip


def _named(
    raw: dict[str, Any], key: str, tensors: dict[str, DeclaredTensor], where: Where
) -> list[tuple[str, Any, DeclaredTensor, Where]]:
    found = []
    for name, value in typed_fields.table(raw.get(key, {}), where.at(key)).items():
        if name not in tensors:
            raise where.at(key).error(
                f"name {format_value(name)}", "an input or a result: " + _all(tensors)
            )
        found.append((name, value, tensors[name], where.at(key, name)))
    return found


def _all(names: Collection[str]) -> str:
    return ", ".join(names) or "there is none"


def _per_device(value: Any, count: int, where: Where) -> list[Any]:
    listed = typed_fields.items(value, where, "a list with one entry for each device")
    if len(listed) != count:
        raise where.error(f"a list of {len(listed)}", f"{count}, one for each device")
    return listed


def _shards(value: Any, tensor: DeclaredTensor, where: Where) -> tuple[Array, ...]:
    listed = _per_device(value, tensor.mesh.size, where)
    return read_locals(listed, tensor, tuple(sorted(tensor.mesh.devices)), where)


def _meshes(
    raw: dict[str, Any], views: dict[str, DerivedMesh], mesh: Mesh, where: Where
) -> dict[str, tuple[Array, ...]]:
    found = {}
    for name, value in typed_fields.table(raw.get("meshes", {}), where.at("meshes")).items():
        if name not in views:
            wanted = "the result of a mesh step: " + _all(views)
            raise where.at("meshes").error(f"name {format_value(name)}", wanted)
        place, shape = where.at("meshes", name), views[name].mesh.shape
        listed = _per_device(value, mesh.size, place)
        seen = [pack(parse_array(one, "int64", shape, place.at(i))) for i, one in enumerate(listed)]
        found[name] = tuple(seen[i] for i in listing_order(mesh.devices))
    return found


def _counts(raw: dict[str, Any], known: Collection[str], where: Where) -> dict[str, dict[str, int]]:
    found = {}
    for name, value in typed_fields.table(raw.get("counts", {}), where.at("counts")).items():
        if name.removesuffix("/full") not in known:
            wanted = "a step y, or y/full: " + _all(known)
            raise where.at("counts").error(f"name {format_value(name)}", wanted)
        found[name] = _by_kind(value, where.at("counts", name))
    return found


def _sufficient(raw: dict[str, Any], where: Where) -> dict[str, int] | None:
    return _by_kind(raw["sufficient"], where.at("sufficient")) if "sufficient" in raw else None


def _by_kind(value: Any, where: Where) -> dict[str, int]:
    found = {}
    for kind, count in typed_fields.table(value, where, COLLECTIVES).items():
        found[kind] = typed_fields.integer(count, where.at(kind), 0, "a count of at least 0")
    return found


def _tolerance(raw: dict[str, Any], where: Where) -> Tolerance | None:
    if "tolerance" not in raw:
        return None
    value, place = raw["tolerance"], where.at("tolerance")
    if not isinstance(value, dict):
        both = _slack(value, place)
        return Tolerance(both, both, "stated by the case")
    table = typed_fields.table(value, place, ("rtol", "atol", "why"))
    if not table.keys() & {"rtol", "atol"}:
        raise place.error("neither rtol nor atol", "at least one of them")
    return Tolerance(
        _slack(table.get("rtol", 0), place.at("rtol")),
        _slack(table.get("atol", 0), place.at("atol")),
        typed_fields.text(table.get("why", ""), place.at("why")),
    )


def _slack(value: Any, where: Where) -> float:
    wanted = "a finite number of at least 0"
    if typed_fields.number(value, where, wanted) < 0:
        raise where.error(format_value(value), wanted)
    return float(value)
