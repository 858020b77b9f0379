"""Which families of cases does the default catalogue have? Refuses to know how they are judged.

A family is a TOML file beside this module, or a generator module with ``cases(exhaustive)``.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import msgspec

from cases.catalogue import (
    contraction,
    gradients,
    local_shards,
    operators,
    parallel_dims,
    randomness,
    redistribute,
    siblings,
    training,
)
from cases.load import load
from cases.model import Case

HERE = Path(__file__).parent
FILES = {
    "lesson": HERE / "lesson.toml",
    "ties": HERE / "ties.toml",
    "public": HERE / "public",
    "meshes": HERE / "meshes.toml",
    "llama": HERE / "llama.toml",
    "dry_runs": HERE / "dry_runs.toml",
}
GENERATORS = {
    local_shards.FAMILY: local_shards.cases,
    redistribute.FAMILY: redistribute.cases,
    contraction.FAMILY: contraction.cases,
    operators.FAMILY: operators.cases,
    gradients.FAMILY: gradients.cases,
    siblings.FAMILY: siblings.cases,
    randomness.FAMILY: randomness.cases,
    training.FAMILY: training.cases,
    parallel_dims.FAMILY: parallel_dims.cases,
}
FAMILIES = (*FILES, *GENERATORS)


@lru_cache(maxsize=32)
def family(name: str, exhaustive: bool = False) -> tuple[Case, ...]:
    """The cases of one family, each id once. Two sweeps of a family may give the same id."""
    if name in FILES:
        # All files of a folder belong to one family.
        return tuple(msgspec.structs.replace(case, family=name) for case in load(FILES[name]))
    found: dict[str, Case] = {}
    for case in GENERATORS[name](exhaustive):
        found.setdefault(case.id, case)
    return tuple(found.values())


def catalogue(exhaustive: bool = False) -> tuple[Case, ...]:
    """The cases of all families."""
    return tuple(case for name in FAMILIES for case in family(name, exhaustive))
