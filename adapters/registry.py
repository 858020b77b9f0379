"""Which frameworks can be asked, and by which routes? One line each.

Names packages as text, so that reading the registry imports no framework.
"""

from __future__ import annotations

import msgspec


class Framework(msgspec.Struct, frozen=True):
    """One framework: the module with ``connect``, and the subjects it answers as.

    ``processes``: how many share the subjects between them, where one would leave a core idle.
    ``executed``: subjects that execute a plan of the reference, and choose nothing themselves.
    """

    module: str
    subjects: tuple[str, ...]
    processes: int = 1
    executed: tuple[str, ...] = ()

    @property
    def choosing(self) -> tuple[str, ...]:
        """The subjects that are the framework's own ways to run a program."""
        return tuple(one for one in self.subjects if one not in self.executed)


FRAMEWORKS = {
    "torch": Framework("adapters.torch_dtensor.adapter", ("torch",)),
    "jax": Framework(
        "adapters.jax_xla.adapter",
        ("jax/jit", "jax/explicit", "jax/shard_map:implied", "jax/shard_map:cheapest"),
        # XLA compiles on one core, and compiling is nearly all that its routes do.
        processes=2,
        executed=("jax/shard_map:implied", "jax/shard_map:cheapest"),
    ),
}


def subjects() -> tuple[str, ...]:
    """Every subject of every framework, in registry order."""
    return tuple(subject for row in FRAMEWORKS.values() for subject in row.subjects)


def framework_of(subject: str) -> str:
    """The framework that answers as ``subject``; KeyError if there is none."""
    for name, row in FRAMEWORKS.items():
        if subject in row.subjects:
            return name
    raise KeyError(subject)


def only_executes_plans(subject: str) -> bool:
    """Whether a subject executes a plan of the reference, and chooses nothing itself."""
    return any(subject in row.executed for row in FRAMEWORKS.values())
