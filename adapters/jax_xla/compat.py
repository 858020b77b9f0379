"""How does the adapter call a JAX of any release as it would the newest? Names, as objects.

The only module that tells releases apart, by the table in `names`. All others take from here what
has moved. If a release lacks something, the answer is *unsupported*, with its name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from adapters.jax_xla import names
from adapters.jax_xla.names import OPTIONS
from adapters.jax_xla.source_lines import Kind
from adapters.release_names import find_location, import_path

RELEASE = str(jax.__version__)

# Every program runs once, so it takes longer to make good machine code than the code saves. The
# partitioner runs before that and does the same.
_QUICK: dict[str, str | bool] = {
    "xla_backend_optimization_level": "0",
    "xla_cpu_use_fusion_emitters": False,
}
FAST_COMPILE_OPTIONS = {
    name: told for name, told in _QUICK.items() if find_location(OPTIONS, name, RELEASE) is not None
}


def has(wanted: str) -> bool:
    """Whether this release has what the table calls ``wanted``."""
    return names.has_name(wanted, RELEASE)


def require(wanted: str, step: str = "") -> Any:
    """What the table calls ``wanted``.

    Raises:
        CannotAnswer: at ``step``, by name, if this release lacks it.
    """
    return import_path(names.require(wanted, RELEASE, step).path)


def mesh(devices: Any, axes: tuple[str, ...], kind: Kind) -> jax.sharding.Mesh:
    """A mesh over an array of devices, every axis of ``kind``.

    Raises:
        CannotAnswer: this release knows Auto axes only.
    """
    if kind == "Auto" and not has("jax.sharding.AxisType"):
        return jax.sharding.Mesh(devices, axes)
    kinds = (getattr(require("jax.sharding.AxisType"), kind),) * len(axes)
    return jax.sharding.Mesh(devices, axes, axis_types=kinds)


def mesh_context(there: jax.sharding.Mesh, step: str = "") -> AbstractContextManager[Any]:
    """A context whose mesh ``there`` is used by programs whose inputs do not name one.

    Raises:
        CannotAnswer: at ``step``, if this release has no such thing.
    """
    context: AbstractContextManager[Any] = require("jax.set_mesh as a context", step)(there)
    return context


def reshard(x: jax.Array, to: NamedSharding) -> jax.Array:
    """The same array in another layout, on an Explicit mesh.

    Raises:
        CannotAnswer: this release has no such thing.
    """
    moved: jax.Array = require("jax.sharding.reshard")(x, to)
    return moved


def shard_map(
    body: Callable[..., Any], there: jax.sharding.Mesh, into: Any, out: Any, checked: bool = True
) -> Callable[..., Any]:
    """A function of whole arrays that runs ``body`` on every shard.

    ``checked``: JAX checks that what ``out`` calls equal on all devices is equal.
    """
    check = "check_vma" if has("jax.shard_map(axis_names=)") else "check_rep"
    mapped: Callable[..., Any] = require("jax.shard_map")(
        body, mesh=there, in_specs=into, out_specs=out, **({} if checked else {check: False})
    )
    return mapped


def spec(dims: Iterable[Any], owed: Iterable[str] = (), step: str = "") -> PartitionSpec:
    """The entry of each dim, and the axes over which a sum is pending.

    Raises:
        CannotAnswer: at ``step``, if this release has no pending sums.
    """
    if not (axes := frozenset(owed)):
        return PartitionSpec(*dims)
    require("PartitionSpec.unreduced", step)
    return PartitionSpec(*dims, unreduced=axes)


def spec_entries(of: PartitionSpec) -> tuple[Any, ...]:
    """The entry of each dim that the spec has."""
    # It was a tuple in older releases, and still is one where no axis is set apart.
    return tuple(of.partitions if has("PartitionSpec.partitions") else of)


def unreduced_axes(of: PartitionSpec) -> frozenset[str]:
    """The axes over which a sum is pending."""
    return frozenset(of.unreduced) if has("PartitionSpec.unreduced") else frozenset()


def reduced_axes(of: PartitionSpec) -> frozenset[str]:
    """The axes over which the transpose has a pending sum."""
    return frozenset(of.reduced) if has("PartitionSpec.reduced") else frozenset()


def compiled_outputs(compiled: Any, shapes: Callable[[], Any]) -> Any:
    """What a compiled program returns: shapes, dtypes and shardings, without data.

    ``shapes``: gives the same without shardings, for releases whose programs do not report them.
    """
    if has("Compiled.out_info"):
        return jax.tree.map(
            lambda out: jax.ShapeDtypeStruct(out.shape, out.dtype, sharding=out.sharding),
            compiled.out_info,
        )
    return jax.tree.map(
        lambda out, sharding: jax.ShapeDtypeStruct(out.shape, out.dtype, sharding=sharding),
        shapes(),
        compiled.output_shardings,
    )


def partitioner() -> str:
    """Which of XLA's partitioners propagates shardings: "Shardy" or "GSPMD"."""
    return "Shardy" if getattr(jax.config, "jax_use_shardy_partitioner", False) else "GSPMD"


def count_opcodes(text: str) -> Counter[str] | None:
    """How often each opcode occurs in HLO text, by XLA's own parser; None if it does not tell."""
    if not has("hlo_module_from_text"):
        return None
    module = require("hlo_module_from_text")(text)
    return Counter(
        # HloOpcode.kAllGatherStart is all-gather-start.
        re.sub(r"(?<=.)(?=[A-Z])", "-", str(instruction.opcode).partition(".k")[2]).lower()
        for computation in module.computations()
        for instruction in computation.instructions()
    )
