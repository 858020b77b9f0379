"""Which recipes run by default, and on which meshes? Each on three, of 2, 4 and 8 devices.

`cases/recipes` says what a recipe is. Nothing here knows what one must cost.
"""

from __future__ import annotations

from collections.abc import Iterator

from cases.catalogue.build import mesh_name
from cases.model import Case, Question, Recipe, mesh
from cases.recipes import RECIPES, RecipeKind
from cases.recipes.contracts import CONTRACTS
from cases.recipes.layouts import observed_names, unsharded_names

FAMILY = "recipes"

# The sizes of each axis, and those of the model that differ from its own, so that all splits
# evenly.
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

# What the ids of a recipe's cases begin with, where that is not the recipe's name. Records are
# looked up by id, and in records `attention-ring-cp2` is a question about causal attention.
_STEMS = {"attention-ring": "attention-ring-full"}


def cases(exhaustive: bool = False) -> Iterator[Case]:
    """A case for each recipe and mesh; there are no more of them where all are asked for."""
    for row in RECIPES.values():
        for sizes in _ONE if len(row.axes) == 1 else _TWO:
            yield case(row, sizes, _MORE.get(sizes, {}).get(row.model, {}))


def case(row: RecipeKind, axes: tuple[int, ...], sizes: dict[str, int]) -> Case:
    """A recipe on a mesh with axes of these sizes."""
    on = mesh(dict(zip(row.axes, axes, strict=True)))
    question = Question(
        f"{_STEMS.get(row.name, row.name)}-{mesh_name(on)}",
        on,
        check=(*observed_names(row), *unsharded_names(row)),
        recipe=Recipe(row.name, sizes),
    )
    return Case(question, family=FAMILY, source=CONTRACTS[row.name].source, notes=row.how)
