"""Which part of the public interface of JAX is recorded? Shardings, meshes, shard_map, collectives.

See `adapters.interface.Source`. `names` knows which names the adapter uses. This module does not.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from adapters.inspection import deprecation_of_call
from adapters.interface import Module
from adapters.jax_xla.names import NAMES
from adapters.release_names import import_path

__all__ = ["CALLS", "DEFAULTS", "MODULES", "NAMES", "PRINTED", "ROOTS", "start", "world"]

_DEVICES = 4

MODULES = (
    # Functions on arrays or trees, and transformations that do not shard, are left out.
    Module(
        "jax",
        names=(
            "Array.addressable_data",
            "Array.addressable_shards",
            "Array.committed",
            "Array.global_shards",
            "Array.is_fully_addressable",
            "Array.is_fully_replicated",
            "Array.sharding",
            "NamedSharding",
            "P",
            "Shard",
            "ShapeDtypeStruct",
            "checkpoint",
            "device_put",
            "device_put_replicated",
            "device_put_sharded",
            "eval_shape",
            "get_abstract_mesh",
            "get_mesh",
            "jit",
            "make_array_from_callback",
            "make_array_from_process_local_data",
            "make_array_from_single_device_arrays",
            "make_mesh",
            "no_collectives",
            "pmap",
            "reshard",
            "set_mesh",
            "shard_map",
            "sharding",
            "smap",
            "threefry_partitionable",
            "typeof",
            "use_abstract_mesh",
            "use_mesh",
        ),
    ),
    Module("jax.sharding", homes=("jax", "jaxlib")),
    Module("jax.experimental.shard_map", names=("shard_map",)),
    Module("jax.experimental.shard", homes=("jax",)),
    Module("jax.experimental.mesh_utils", homes=("jax",)),
    Module("jax.experimental.pjit", names=("pjit", "with_sharding_constraint", "AUTO")),
    Module(
        "jax.experimental.multihost_utils",
        names=(
            "assert_equal",
            "broadcast_one_to_all",
            "global_array_to_host_local_array",
            "host_local_array_to_global_array",
            "live_devices",
            "process_allgather",
            "reached_preemption_sync_point",
            "sync_global_devices",
        ),
    ),
    Module(
        "jax.experimental.custom_partitioning",
        names=(
            "ArrayMapping",
            "CompoundFactor",
            "SdyShardingRule",
            "custom_partitioning",
            "custom_partitioning.def_partition",
        ),
    ),
    # Users looked up the mesh of a `with mesh:` here.
    Module("jax.interpreters.pxla", names=("thread_resources",)),
    Module(
        "jax.lax",
        names=(
            "all_gather",
            "all_gather_invariant",
            "all_to_all",
            "axis_index",
            "axis_size",
            "pbroadcast",
            "pcast",
            "pmax",
            "pmean",
            "pmin",
            "ppermute",
            "preduced",
            "pshuffle",
            "psum",
            "psum_scatter",
            "pswapaxes",
            "pvary",
            "ragged_all_to_all",
            "with_sharding_constraint",
        ),
    ),
    Module(
        "jax.random",
        names=(
            "PRNGKey",
            "bernoulli",
            "fold_in",
            "key",
            "key_data",
            "key_impl",
            "normal",
            "split",
            "uniform",
            "wrap_key_data",
        ),
    ),
)

ROOTS = ("jax", "jaxlib")

# The flags that change what a program on a mesh does, or whether it runs.
_FLAGS = (
    "jax_auto_pcast",
    "jax_cpu_collectives_implementation",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_disallow_mesh_context_manager",
    "jax_enable_custom_prng",
    "jax_enable_memories",
    "jax_enable_x64",
    "jax_legacy_prng_key",
    "jax_no_collectives",
    "jax_numpy_rank_promotion",
    "jax_pmap_no_rank_reduction",
    "jax_pmap_shmap_merge",
    "jax_remove_size_one_mesh_axis_from_type",
    "jax_sharding_in_types",
    "jax_spmd_mode",
    "jax_threefry_partitionable",
    "jax_use_shardy_partitioner",
    "jax_varying_axes_in_types",
)


def start() -> str:
    """Import jax on CPU devices with the default of every flag, and return its release."""
    for name in [name for name in os.environ if name.startswith(("JAX_", "XLA_"))]:
        del os.environ[name]
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={_DEVICES}"
    import jax

    return jax.__version__


@contextlib.contextmanager
def world() -> Iterator[None]:
    """Do nothing, because the devices exist from the start."""
    yield


def _spec(*partitions: object, **more: object) -> Any:
    return import_path("jax.sharding.PartitionSpec")(*partitions, **more)


def _owing(*partitions: object, **more: object) -> Any:
    for name in more:
        getattr(_spec(), name)
    return _spec(*partitions, **more)


def _mesh(**more: object) -> Any:
    """A mesh with two axes of size 2."""
    devices = np.array(import_path("jax.devices")()).reshape(2, 2)
    return import_path("jax.sharding.Mesh")(devices, ("x", "y"), **more)


def _explicit() -> Any:
    return _mesh(axis_types=(import_path("jax.sharding.AxisType").Explicit,) * 2)


def _made() -> Any:
    return import_path("jax.make_mesh")((2, 2), ("x", "y"))


def _named(mesh: Any, *partitions: object) -> Any:
    return import_path("jax.sharding.NamedSharding")(mesh, _spec(*partitions))


def _array(mesh: Any, *partitions: object) -> Any:
    return import_path("jax.device_put")(np.zeros((4, 4), np.float32), _named(mesh, *partitions))


def _parameter(path: str, name: str) -> Callable[[], object]:
    """A function that returns the default of a parameter, or raises AttributeError without it."""

    def look() -> object:
        found = inspect.signature(import_path(path)).parameters.get(name)
        if found is None:
            raise AttributeError(name)
        return found.default

    return look


def _flag(name: str) -> Callable[[], object]:
    return lambda: getattr(import_path("jax.config"), name)


def _partitioner() -> str:
    """The partitioner, Shardy or GSPMD, whose annotations a lowered program has."""
    sharding = _named(_mesh(), "x")
    lowered = import_path("jax.jit")(lambda x: x + 1, in_shardings=sharding, out_shardings=sharding)
    text = lowered.lower(np.zeros((4, 4), np.float32)).as_text()
    return "Shardy" if "sdy." in text else "GSPMD"


def _doubled(mesh: Any) -> str:
    """The PartitionSpec of a result of `jax.jit` without ``out_shardings``."""
    return repr(import_path("jax.jit")(lambda x: x + x)(_array(mesh, "x")).sharding.spec)


def _entered() -> str:
    def enter() -> None:
        with _mesh():
            pass

    return deprecation_of_call(enter) or "none"


def _uniform() -> object:
    return np.asarray(
        import_path("jax.random.uniform")(import_path("jax.random.key")(0), (2,))
    ).tolist()


DEFAULTS: Mapping[str, Callable[[], object]] = {
    **{name: _flag(name) for name in _FLAGS},
    "axis types of jax.make_mesh": lambda: _made().axis_types,
    "axis types of jax.sharding.Mesh": lambda: _mesh().axis_types,
    "check_rep of jax.experimental.shard_map.shard_map": _parameter(
        "jax.experimental.shard_map.shard_map", "check_rep"
    ),
    "check_vma of jax.shard_map": _parameter("jax.shard_map", "check_vma"),
    "partitioner of jax.jit": _partitioner,
    "PartitionSpec of jax.jit's x + x, x under P('x') on a Mesh": lambda: _doubled(_mesh()),
    "PartitionSpec of jax.jit's x + x, x under P('x') on a make_mesh": lambda: _doubled(_made()),
    "PartitionSpec is a tuple": lambda: isinstance(_spec(), tuple),
    "P('x', None) equals P('x')": lambda: _spec("x", None) == _spec("x"),
    "P(('x',)) equals P('x')": lambda: _spec(("x",)) == _spec("x"),
    "memory kind of a NamedSharding": lambda: _named(_mesh(), "x").memory_kind,
    "memory kind of an array on CPU devices": lambda: _array(_mesh(), "x").sharding.memory_kind,
    "random generator of jax.random.key": lambda: str(
        import_path("jax.random.key_impl")(import_path("jax.random.key")(0))
    ),
    "jax.random.uniform(jax.random.key(0), (2,))": _uniform,
    "warning of `with mesh:`": _entered,
}

PRINTED: Mapping[str, Callable[[], object]] = {
    "P()": _spec,
    "P('x')": lambda: _spec("x"),
    "P('x', None)": lambda: _spec("x", None),
    "P(None, 'x')": lambda: _spec(None, "x"),
    "P(('x', 'y'))": lambda: _spec(("x", "y")),
    "P(unreduced={'x'})": lambda: _owing(unreduced={"x"}),
    "P('x', unreduced={'y'})": lambda: _owing("x", unreduced={"y"}),
    "P(reduced={'x'})": lambda: _owing(reduced={"x"}),
    "AxisType.Auto": lambda: import_path("jax.sharding.AxisType").Auto,
    "Mesh of 2x2": _mesh,
    "jax.make_mesh((2, 2), ('x', 'y'))": _made,
    "Mesh of 2x2, Explicit": _explicit,
    "SingleDeviceSharding of a CPU device": lambda: import_path(
        "jax.sharding.SingleDeviceSharding"
    )(import_path("jax.devices")()[0]),
    "AbstractMesh of a Mesh": lambda: _mesh().abstract_mesh,
    "NamedSharding by P('x')": lambda: _named(_mesh(), "x"),
    "jax.typeof of a 4x4 array under P('x')": lambda: import_path("jax.typeof")(
        _array(_mesh(), "x")
    ),
    "jax.typeof of a 4x4 array under P('x') on an Explicit mesh": lambda: import_path("jax.typeof")(
        _array(_explicit(), "x")
    ),
    "jax.random.key(0)": lambda: import_path("jax.random.key")(0),
}

# Calls whose deprecation warnings are recorded.
CALLS: Mapping[str, Callable[[], object]] = {"jax.make_mesh": _made}
