"""Which recipes run by default, and on which meshes? Each runs on 2, 4 and 8 devices.

`cases/recipes` defines recipes. Refuses to know which collectives they need.
"""

from __future__ import annotations

from collections.abc import Iterator

from cases.catalogue.build import mesh_name
from cases.model import Case, Question, Recipe, mesh
from cases.recipes import RECIPES, RecipeKind
from cases.recipes.contracts import CONTRACTS
from cases.recipes.layouts import observed_names, unsharded_names

FAMILY = "recipes"

# Sizes of each axis, and sizes that replace the model's so that everything splits evenly.
_ONE = ((2,), (4,), (8,))
_TWO = ((2, 2), (2, 4), (4, 2))
_MORE: dict[tuple[int, ...], dict[str, dict[str, int]]] = {
    (8,): {
        "attention": {"batch": 8, "kv": 8},
        "full-attention": {"batch": 8, "kv": 8},
        "block": {"batch": 8, "kv": 8},
        "moe": {"batch": 8, "experts": 8},
    },
    (2, 4): {"block": {"batch": 8}},
    (4, 2): {"block": {"batch": 8}},
}

# The start of ids that do not start with the recipe's name. Records are looked up by id, and
# `attention-ring-cp2` was once a question about causal attention.
_STEMS = {"attention-ring": "attention-ring-full"}


def cases(exhaustive: bool = False) -> Iterator[Case]:
    """A case for each recipe and mesh. ``exhaustive`` adds none."""
    for row in RECIPES.values():
        for sizes in _ONE if len(row.axes) == 1 else _TWO:
            yield case(row, sizes, _MORE.get(sizes, {}).get(row.model, {}))


def case(row: RecipeKind, axes: tuple[int, ...], sizes: dict[str, int]) -> Case:
    """A recipe on a mesh with these axis sizes. ``sizes`` replaces sizes of the model."""
    on = mesh(dict(zip(row.axes, axes, strict=True)))
    question = Question(
        f"{_STEMS.get(row.name, row.name)}-{mesh_name(on)}",
        on,
        check=(*observed_names(row), *unsharded_names(row)),
        recipe=Recipe(row.name, sizes),
    )
    return Case(question, family=FAMILY, source=CONTRACTS[row.name].source, notes=row.how)
