"""The default catalogue: which families of cases are there, and where does each come from?

A family is a TOML file beside this module or a generator module with ``cases(exhaustive)``.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from cases.catalogue import contraction, local_shards, redistribute
from cases.load import load
from cases.model import Case

FILES = {"lesson": Path(__file__).with_name("lesson.toml")}
GENERATORS = {
    local_shards.FAMILY: local_shards.cases,
    redistribute.FAMILY: redistribute.cases,
    contraction.FAMILY: contraction.cases,
}
FAMILIES = (*FILES, *GENERATORS)


@lru_cache(maxsize=8)
def family(name: str, exhaustive: bool = False) -> tuple[Case, ...]:
    """The cases of one family; each id once, though two sweeps of a family may meet."""
    if name in FILES:
        return load(FILES[name])
    found: dict[str, Case] = {}
    for case in GENERATORS[name](exhaustive):
        found.setdefault(case.id, case)
    return tuple(found.values())


def catalogue(exhaustive: bool = False) -> tuple[Case, ...]:
    """Every case of every family."""
    return tuple(case for name in FAMILIES for case in family(name, exhaustive))
