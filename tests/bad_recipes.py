"""Recipes that are malformed in one way each, and the line with which each is refused.

Of the form of `bad_cases`.
"""

from __future__ import annotations

# ruff: noqa: E501
# fmt: off

RECIPES: dict[str, tuple[dict[str, str | None], str]] = {
    "recipe and program": (
        {"recipe": '{ name = "mlp-tp" }'},
        'case "a": found both recipe and program, wanted one of them'),
    "recipe without a name": (
        {"recipe": "{}", "inputs.x": None, "program": None},
        'case "a": recipe: found no name, wanted name, the name of a recipe'),
    "unknown recipe": (
        {"recipe": '"block-tpp"', "inputs.x": None, "program": None},
        "case \"a\": recipe.name: found 'block-tpp', wanted a known recipe, the nearest being 'block-tp'"),
    "recipe on other axes": (
        {"recipe": '"mlp-tp"', "inputs.x": None, "program": None},
        'case "a": mesh: found axes x, wanted the axes of mlp-tp: tp'),
    "recipe with a size of another": (
        {"recipe": '{ name = "mlp-tp", sizes = { heads = 2 } }', "mesh": "{ tp = 2 }",
         "inputs.x": None, "program": None},
        "case \"a\": recipe.sizes: found key 'heads', wanted a known key: batch, dim, hidden"),
    "recipe that does not split": (
        {"recipe": '{ name = "mlp-tp", sizes = { hidden = 9 } }', "mesh": "{ tp = 2 }",
         "inputs.x": None, "program": None},
        'case "a": recipe.sizes: found hidden = 9, wanted a multiple of 2 to split up.weight'),
    "recipe with half heads": (
        {"recipe": '{ name = "attention-tp", sizes = { kv = 2, head = 4 } }', "mesh": "{ tp = 4 }",
         "inputs.x": None, "program": None},
        'case "a": recipe.sizes: found kv = 2, wanted a multiple of 4: heads stay whole'),
    "recipe with queries left over": (
        {"recipe": '{ name = "block-tp", sizes = { heads = 6, kv = 4 } }', "mesh": "{ tp = 2 }",
         "inputs.x": None, "program": None},
        'case "a": recipe.sizes: found heads = 6, wanted a multiple of kv = 4, the number of key heads'),
    "recipe with heads of odd size": (
        {"recipe": '{ name = "block-tp", sizes = { head = 3 } }', "mesh": "{ tp = 2 }",
         "inputs.x": None, "program": None},
        'case "a": recipe.sizes: found head = 3, wanted an even number, because halves are rotated'),
    "recipe too large for data": (
        {"recipe": '{ name = "mlp-tp", sizes = { hidden = 536870912 } }', "mesh": "{ tp = 2 }",
         "inputs.x": None, "program": None},
        'case "a": recipe.sizes: found 2,147,483,648 elements, wanted at most 16,777,216 in mode real'),
    "recipe in short numbers": (
        {"recipe": '{ name = "mlp-tp", dtype = "bfloat16" }', "mesh": "{ tp = 2 }",
         "inputs.x": None, "program": None},
        "case \"a\": recipe.dtype: found 'bfloat16', wanted float64 in mode real"),
    "recipe with a check": (
        {"recipe": '"mlp-tp"', "mesh": "{ tp = 2 }", "check": '["loss"]',
         "inputs.x": None, "program": None},
        'case "a": found both recipe and check, wanted one of them'),
    "recipe with counts of a step": (
        {"recipe": '"mlp-tp"', "mesh": "{ tp = 2 }", "counts.out": "{ all-reduce = 1 }",
         "inputs.x": None, "program": None},
        "case \"a\": counts: found name 'out', wanted a step y, or y/full:"
        " forward, backward, update"),
}
