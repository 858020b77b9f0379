"""Where does a release of JAX have the names that the adapter needs, and how do lines call them?

The table holds the differences between releases: names that moved, new keywords, and options of the
compiler. `compat` turns names into objects. This module does not import jax, and does not know what
the names do.
"""

from __future__ import annotations

import re

from adapters.protocol import Field, Promise, Promises
from adapters.release_names import NameLocation, Names, find_location, format_missing
from adapters.unsupported import CannotAnswer

# The oldest supported release, and the newest release for which the table was checked.
OLDEST, NEWEST = "0.4.26", "0.12.0.1"

_SPEC = "jax.sharding.PartitionSpec"

# The fields that every answer has in every release. Under jit, one program has all collectives, the
# compiler chooses the layouts of results that later steps use, and stacked addends are an array
# with another layout. An unreduced array has no offsets in JAX. Under shard_map, JAX does not know
# the pending reduction, so there is no global value.
_ALWAYS_SHOWN: tuple[Field, ...] = ("dtype", "layout")
_WITH_DATA: tuple[Field, ...] = (*_ALWAYS_SHOWN, "shards", "offsets", "full")
_PLANNED = Promise(
    (*_WITH_DATA, "collectives"), (*_ALWAYS_SHOWN, "collectives"), unless_partial=("full",)
)
PROMISES: Promises = {
    "jax/jit": Promise(
        (*_WITH_DATA, "program"), (*_ALWAYS_SHOWN, "program"),
        unless_used=("layout",), unless_partial=("layout", "offsets", "full"),
    ),
    "jax/explicit": Promise(
        (*_WITH_DATA, "collectives", "full_collectives"),
        (*_ALWAYS_SHOWN, "collectives", "full_collectives"),
        unless_partial=("offsets",),
    ),
    "jax/shard_map:implied": _PLANNED,
    "jax/shard_map:cheapest": _PLANNED,
}  # fmt: skip


def _since(path: str, since: str) -> tuple[NameLocation, ...]:
    return (NameLocation(since, path),)


# Name -> its locations, newest first. "f(k=)" is the keyword k of f. Names that lines use are
# spelled as in the newest release.
NAMES: Names = {
    # Meshes and specs.
    "jax.sharding.AxisType": (NameLocation("0.5.3", "jax.sharding.AxisType"),),
    "jax.set_mesh": (
        NameLocation("0.7.1", "jax.set_mesh"),
        NameLocation("0.5.3", "jax.sharding.set_mesh", "Not for a with statement.", until="0.7.1"),
    ),
    "jax.set_mesh as a context": (
        NameLocation("0.7.1", "jax.set_mesh"),
        NameLocation("0.5.0", "jax.sharding.use_mesh", until="0.7.1"),
    ),
    "PartitionSpec.partitions": (NameLocation("0.10.1", f"{_SPEC}.partitions"),),
    "PartitionSpec.unreduced": (NameLocation("0.6.1", f"{_SPEC}.unreduced"),),
    "PartitionSpec.reduced": (NameLocation("0.6.2", f"{_SPEC}.reduced"),),
    "jax.sharding.reshard": (
        NameLocation("0.7.0", "jax.sharding.reshard"),
        NameLocation("0.5.1", "jax.experimental.shard.reshard", until="0.7.0"),
    ),
    # Functions of local shards.
    "jax.shard_map": (
        NameLocation("0.6.1", "jax.shard_map", "check_vma, which was check_rep."),
        NameLocation(OLDEST, "jax.experimental.shard_map.shard_map"),
    ),
    "jax.shard_map(axis_names=)": (NameLocation("0.6.1", "jax.shard_map"),),
    # Compiled programs.
    "Compiled.out_info": (NameLocation("0.7.0", "jax.stages.Compiled.out_info"),),
    "Compiled.memory_analysis": (
        NameLocation(
            "0.4.29", "jax.stages.Compiled.memory_analysis", "Its sizes on a CPU are not all 0."
        ),
    ),
    "hlo_module_from_text": (
        NameLocation(
            "0.10.2", "jaxlib._hlo.hlo_module_from_text", "Computations have instructions."
        ),
    ),
    # Functions that take the layout of their result.
    "jax.lax.conv_general_dilated(out_sharding=)": _since("jax.lax.conv_general_dilated", "0.7.2"),
    "jax.random.normal(out_sharding=)": _since("jax.random.normal", "0.6.0"),
    "jax.random.uniform(out_sharding=)": _since("jax.random.uniform", "0.6.0"),
    "jnp.arange(out_sharding=)": _since("jax.numpy.arange", "0.7.0"),
    "jnp.einsum(out_sharding=)": _since("jax.numpy.einsum", "0.5.0"),
    "jnp.full(out_sharding=)": _since("jax.numpy.full", "0.10.2"),
    "jnp.matmul(out_sharding=)": _since("jax.numpy.matmul", "0.7.0"),
    "jnp.repeat(out_sharding=)": _since("jax.numpy.repeat", "0.6.1"),
    "jnp.reshape(out_sharding=)": _since("jax.numpy.reshape", "0.6.1"),
    "x.at[].add(out_sharding=)": _since("jax.Array.at", "0.7.1"),
    "x.at[].set(out_sharding=)": _since("jax.Array.at", "0.7.1"),
    # New keywords and names of single ops.
    "jax.lax.dynamic_slice_in_dim(allow_negative_indices=)": _since(
        "jax.lax.dynamic_slice_in_dim", "0.5.3"
    ),
    "jax.lax.dynamic_update_slice_in_dim(allow_negative_indices=)": _since(
        "jax.lax.dynamic_update_slice_in_dim", "0.5.3"
    ),
    "jax.lax.top_k(axis=)": _since("jax.lax.top_k", "0.8.1"),
    "jnp.clip(min=, max=)": _since("jax.numpy.clip", "0.4.27"),
    "jnp.cumulative_prod": (
        NameLocation("0.4.36", "jax.numpy.cumulative_prod"),
        NameLocation(OLDEST, "jax.numpy.cumprod"),
    ),
    "jnp.cumulative_sum": (
        NameLocation("0.4.27", "jax.numpy.cumulative_sum"),
        NameLocation(OLDEST, "jax.numpy.cumsum"),
    ),
    "jnp.put_along_axis": (NameLocation("0.4.36", "jax.numpy.put_along_axis"),),
    "jnp.std(correction=)": _since("jax.numpy.std", "0.4.29"),
    "jnp.var(correction=)": _since("jax.numpy.var", "0.4.29"),
}

# Compiler option -> the releases that have it.
OPTIONS: Names = {
    "xla_backend_optimization_level": _since("xla_backend_optimization_level", OLDEST),
    "xla_cpu_use_fusion_emitters": (
        NameLocation("0.5.3", "xla_cpu_use_fusion_emitters", until="0.11.1"),
    ),
    # In older releases it is only a flag of the whole process.
    "xla_disable_hlo_passes": _since("xla_disable_hlo_passes", "0.6.0"),
}

# Short names of modules in lines.
_SHORT = {"jax.numpy": "jnp"}
# The names that lines use. The other names are keywords, or only the adapter uses them.
LINE_NAMES = {name for name in NAMES if re.fullmatch(r"(?:jax|jnp)(?:\.\w+)+", name)}
_LINE_NAME_PATTERN = re.compile(
    rf"(?<![\w.])(?:{'|'.join(map(re.escape, sorted(LINE_NAMES)))})\b(?!\.)"
)


def has_name(wanted: str, release: str) -> bool:
    """Whether a release has ``wanted``. KeyError if the table does not have that name."""
    return find_location(NAMES, wanted, release) is not None


def require(wanted: str, release: str, step: str = "") -> NameLocation:
    """The location of ``wanted`` in a release.

    Raises:
        CannotAnswer: the release lacks it. The error names the step ``step``.
    """
    found = find_location(NAMES, wanted, release)
    if found is None:
        raise CannotAnswer(format_missing(NAMES, wanted, "jax", release), step)
    return found


def format_imports(release: str) -> tuple[str, ...]:
    """The imports for the lines of a program in a release."""
    kinds = "AxisType, " if has_name("jax.sharding.AxisType", release) else ""
    found = [
        "import jax",
        "import jax.numpy as jnp",
        "import numpy as np",
        f"from jax.sharding import {kinds}NamedSharding, PartitionSpec as P",
    ]
    for name in sorted(LINE_NAMES):
        where = find_location(NAMES, name, release)
        if where is not None and not _is_imported_with_jax(where):
            module, _, last = where.path.rpartition(".")
            found.append(f"from {module} import {last}")
    return tuple(found)


def respell_line(line: str, release: str, step: str = "") -> str:
    """A line of the newest release, with the names of another release.

    Raises:
        CannotAnswer: that release lacks a name in the line of ``step``.
    """
    return _LINE_NAME_PATTERN.sub(lambda found: _spell(require(found[0], release, step)), line)


def _is_imported_with_jax(where: NameLocation) -> bool:
    # ``import jax`` does not import the modules of jax.experimental.
    return not where.path.startswith("jax.experimental.")


def _spell(where: NameLocation) -> str:
    module, _, last = where.path.rpartition(".")
    return f"{_SHORT.get(module, module)}.{last}" if _is_imported_with_jax(where) else last
