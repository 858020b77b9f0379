"""Which frameworks are there, and what does each supply? One row for each framework.

A row names modules as text, so that reading the registry imports no framework. Refuses to know
what the modules do.
"""

from __future__ import annotations

import importlib
from typing import Any, Literal

import msgspec

from cases.errors import Where
from cases.model import COLLECTIVES, CollectiveKind

_FILE = "adapters/registry.py"

# The modules that a framework may supply, and what each must have.
Part = Literal["interface", "script"]
MEMBERS: dict[Part, tuple[str, ...]] = {
    # An `adapters.interface.Source`.
    "interface": ("MODULES", "ROOTS", "NAMES", "CALLS", "DEFAULTS", "PRINTED", "start", "world"),
    # `script(case, fault, release)` gives a program's text that shows a `reports.faults.Fault`.
    "script": ("script",),
}


class Lowering(msgspec.Struct, frozen=True):
    """A way to do what is implied with other collectives, which a backend has for a reason."""

    name: str
    why: str
    link: str = ""


# Each with the kind that is implied, and the kind that a framework fires instead.
Lowerings = tuple[tuple[Lowering, CollectiveKind, CollectiveKind], ...]


GATHER_FOR_ALL_TO_ALL = Lowering(
    "gathers for all-to-all",
    "on a CPU mesh DTensor moves a shard to another dim by all-gather and chunk, since gloo has no"
    " all-to-all",
    "https://github.com/pytorch/pytorch/pull/124872",
)
ALL_REDUCE_FOR_REDUCE_SCATTER = Lowering(
    "reduces then slices for reduce-scatter",
    "on CPU the partitioner leaves an all-reduce and a slice where a reduce-scatter is implied",
    "https://github.com/tenstorrent/tt-xla/issues/3071",
)


class Framework(msgspec.Struct, frozen=True):
    """All that a framework supplies.

    ``adapter``: the module whose ``connect(devices)`` gives an `adapters.protocol.Adapter`. The
    modules ``interface`` and ``script`` have what `MEMBERS` lists. Without ``interface`` its public
    names are not listed; without ``script`` it has no scripts.
    ``subjects``: its routes, each as the framework's name or as "name/route". ``executed``: those
    that execute a redistribution plan of the reference, and choose nothing themselves.
    ``processes``: how many processes share the questions, where one would leave a core idle.
    ``lowerings``: how it does what is implied with collectives of another kind.
    """

    adapter: str
    subjects: tuple[str, ...]
    executed: tuple[str, ...] = ()
    processes: int = 1
    lowerings: Lowerings = ()
    interface: str = ""
    script: str = ""

    @property
    def choosing(self) -> tuple[str, ...]:
        """The subjects that are the framework's own ways to run a program."""
        return tuple(one for one in self.subjects if one not in self.executed)


FRAMEWORKS = {
    "torch": Framework(
        adapter="adapters.torch_dtensor.adapter",
        subjects=("torch",),
        lowerings=((GATHER_FOR_ALL_TO_ALL, "all-to-all", "all-gather"),),
        interface="adapters.torch_dtensor.interface",
        script="reports.script_torch",
    ),
    "jax": Framework(
        adapter="adapters.jax_xla.adapter",
        subjects=("jax/jit", "jax/explicit", "jax/shard_map:implied", "jax/shard_map:cheapest"),
        executed=("jax/shard_map:implied", "jax/shard_map:cheapest"),
        # XLA compiles on one core, and compiling is nearly all that its routes do.
        processes=2,
        lowerings=((ALL_REDUCE_FOR_REDUCE_SCATTER, "reduce-scatter", "all-reduce"),),
        interface="adapters.jax_xla.interface",
        script="reports.script_jax",
    ),
}


def subjects() -> tuple[str, ...]:
    """Every subject of every framework, in registry order."""
    return tuple(subject for row in FRAMEWORKS.values() for subject in row.subjects)


def choosing_subjects() -> tuple[str, ...]:
    """The subjects of all frameworks that choose for themselves how to run a program."""
    return tuple(subject for row in FRAMEWORKS.values() for subject in row.choosing)


def framework_of(subject: str) -> str:
    """The framework that answers as ``subject``; KeyError if there is none."""
    for name, row in FRAMEWORKS.items():
        if subject in row.subjects:
            return name
    raise KeyError(subject)


def lowerings_of(subject: str) -> Lowerings:
    """The lowering rules of the framework that answers as ``subject``; KeyError without one."""
    return FRAMEWORKS[framework_of(subject)].lowerings


def only_executes_plans(subject: str) -> bool:
    """Whether a subject executes a plan of the reference, and chooses nothing itself."""
    return any(subject in row.executed for row in FRAMEWORKS.values())


def check_registry() -> None:
    """Refuse rows that do not fit together. Imports nothing.

    Raises:
        BadInput: which framework and key, what was found and what is wanted.
    """
    for name, row in FRAMEWORKS.items():
        where = Where(_FILE, name, noun="framework")
        if not (name.isidentifier() and name.islower()):
            raise where.error(f"the name {name}", "lower-case letters, digits and _")
        if not row.subjects:
            raise where.at("subjects").error("none", f"one at least, such as {name}")
        for subject in row.subjects:
            if subject != name and not subject.startswith(f"{name}/"):
                raise where.at("subjects").error(subject, f"{name}, or {name}/route")
        for subject in row.executed:
            if subject not in row.subjects:
                raise where.at("executed").error(subject, "one of: " + ", ".join(row.subjects))
        if row.executed and not row.choosing:
            raise where.at("executed").error("every subject", "one at least that chooses itself")
        if row.processes < 1:
            raise where.at("processes").error(f"{row.processes}", "1 at least")
        for _, *kinds in row.lowerings:
            for kind in kinds:
                if kind not in COLLECTIVES:
                    raise where.at("lowerings").error(kind, "one of: " + ", ".join(COLLECTIVES))


def load_part(framework: str, part: Part) -> Any:
    """The module in which a framework supplies ``part``.

    Raises:
        BadInput: the registry has no such framework, or the framework no such part, or there is no
            such module, or it lacks what `MEMBERS` lists.
    """
    where = Where(_FILE, framework, (part,), "framework")
    row = FRAMEWORKS.get(framework)
    if row is None:
        raise where.error(f"no framework {framework}", "one of: " + ", ".join(FRAMEWORKS))
    path = getattr(row, part)
    wanted = "a module with " + ", ".join(MEMBERS[part])
    if not path:
        raise where.error("none", wanted)
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        # A module that is there may lack what it imports, which is another fault.
        if error.name is None or not f"{path}.".startswith(f"{error.name}."):
            raise
        raise where.error(f"no module {path}", wanted) from None
    lacking = [one for one in MEMBERS[part] if not hasattr(module, one)]
    if lacking:
        raise where.error(f"{path} without " + ", ".join(lacking), wanted)
    return module
