"""How does the adapter call any release of JAX like the newest one?

Only this module distinguishes releases, with the table in `names`. Other modules import from here
the names that have moved. If a release lacks a name, the answer is `Unsupported`.
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

# Every program runs once, so optimizing machine code takes longer than it saves. These options do
# not affect the partitioner, which runs before.
_QUICK: dict[str, str | bool] = {
    "xla_backend_optimization_level": "0",
    "xla_cpu_use_fusion_emitters": False,
}
FAST_COMPILE_OPTIONS = {
    key: value for key, value in _QUICK.items() if find_location(OPTIONS, key, RELEASE) is not None
}


def has(wanted: str) -> bool:
    """Whether this release has what the table calls ``wanted``."""
    return names.has_name(wanted, RELEASE)


def require(wanted: str, step: str = "") -> Any:
    """The object that the table calls ``wanted``.

    Raises:
        CannotAnswer: this release lacks it. The error names ``step``.
    """
    return import_path(names.require(wanted, RELEASE, step).path)


def mesh(devices: Any, axes: tuple[str, ...], kind: Kind) -> jax.sharding.Mesh:
    """A mesh over an array of devices. Every axis has the type ``kind``.

    Raises:
        CannotAnswer: this release has only Auto axes.
    """
    if kind == "Auto" and not has("jax.sharding.AxisType"):
        return jax.sharding.Mesh(devices, axes)
    kinds = (getattr(require("jax.sharding.AxisType"), kind),) * len(axes)
    return jax.sharding.Mesh(devices, axes, axis_types=kinds)


def mesh_context(there: jax.sharding.Mesh, step: str = "") -> AbstractContextManager[Any]:
    """A context in which ``there`` is the mesh of programs whose inputs do not name one.

    Raises:
        CannotAnswer: this release has no such context. The error names ``step``.
    """
    context: AbstractContextManager[Any] = require("jax.set_mesh as a context", step)(there)
    return context


def reshard(x: jax.Array, to: NamedSharding) -> jax.Array:
    """Change the sharding of an array on an Explicit mesh.

    Raises:
        CannotAnswer: this release has no reshard.
    """
    moved: jax.Array = require("jax.sharding.reshard")(x, to)
    return moved


def shard_map(
    body: Callable[..., Any], there: jax.sharding.Mesh, into: Any, out: Any, checked: bool = True
) -> Callable[..., Any]:
    """A function of global arrays that runs ``body`` on every local shard.

    ``checked``: whether JAX checks that results are replicated where ``out`` says so.
    """
    check = "check_vma" if has("jax.shard_map(axis_names=)") else "check_rep"
    mapped: Callable[..., Any] = require("jax.shard_map")(
        body, mesh=there, in_specs=into, out_specs=out, **({} if checked else {check: False})
    )
    return mapped


def spec(dims: Iterable[Any], owed: Iterable[str] = (), step: str = "") -> PartitionSpec:
    """The PartitionSpec with an entry for each dim. ``owed``: the axes of a pending sum.

    Raises:
        CannotAnswer: this release lacks ``unreduced``. The error names ``step``.
    """
    if not (axes := frozenset(owed)):
        return PartitionSpec(*dims)
    require("PartitionSpec.unreduced", step)
    return PartitionSpec(*dims, unreduced=axes)


def spec_entries(of: PartitionSpec) -> tuple[Any, ...]:
    """The entries of a PartitionSpec, one per dim."""
    # In older releases a PartitionSpec is a tuple.
    return tuple(of.partitions if has("PartitionSpec.partitions") else of)


def unreduced_axes(of: PartitionSpec) -> frozenset[str]:
    """The axes of a pending sum."""
    return frozenset(of.unreduced) if has("PartitionSpec.unreduced") else frozenset()


def reduced_axes(of: PartitionSpec) -> frozenset[str]:
    """The axes whose gradient has a pending sum."""
    return frozenset(of.reduced) if has("PartitionSpec.reduced") else frozenset()


def compiled_outputs(compiled: Any, shapes: Callable[[], Any]) -> Any:
    """The shapes, dtypes and shardings of the results of a compiled program.

    ``shapes``: returns shapes and dtypes. It is called in releases without ``out_info``.
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
    """The partitioner of XLA that propagates shardings: "Shardy" or "GSPMD"."""
    return "Shardy" if getattr(jax.config, "jax_use_shardy_partitioner", False) else "GSPMD"


def count_opcodes(text: str) -> Counter[str] | None:
    """The count of each opcode in HLO text by XLA's own parser. None if this release lacks it."""
    if not has("hlo_module_from_text"):
        return None
    module = require("hlo_module_from_text")(text)
    return Counter(
        # HloOpcode.kAllGatherStart becomes all-gather-start.
        re.sub(r"(?<=.)(?=[A-Z])", "-", str(instruction.opcode).partition(".k")[2]).lower()
        for computation in module.computations()
        for instruction in computation.instructions()
    )
