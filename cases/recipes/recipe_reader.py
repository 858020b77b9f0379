"""How is a recipe read from a file? Its name, sizes and dtype, and whether it fits the mesh.

Refuses invalid recipes with `BadInput`, its only error. Refuses to know frameworks.
"""

from __future__ import annotations

from typing import Any

from cases import typed_fields
from cases.errors import Where
from cases.inputs import DeclaredTensor
from cases.model import Layout, Mesh, Recipe
from cases.program import TensorType, check_size
from cases.recipes import MODELS, RECIPES, find_misfits
from cases.recipes.layouts import global_shapes, tensor_layouts

# With data, results are compared almost bit for bit. In a dry run the dtype only affects bytes.
DTYPES = {"real": ("float64",), "dry run": ("float64", "float32", "bfloat16")}

# Frameworks count bytes in 64 bits. No tensor of a real model has this many elements.
MAX_DRY_RUN_ELEMENTS = 2**44

# Keys that a case with a recipe must not have.
_OTHERS = ("program", "inputs", "to", "check", "context", "mesh_steps", "sufficient")


def read_recipe(
    table: dict[str, Any], mesh: Mesh, mode: str, where: Where
) -> tuple[Recipe, dict[str, DeclaredTensor]]:
    """The recipe of a case, and all tensors that an answer shows of it.

    Raises:
        BadInput: an unknown recipe, other axes than its own, or sizes that do not split evenly.
    """
    for other in _OTHERS:
        typed_fields.exclusive(table, "recipe", other, where)
    place = where.at("recipe")
    raw = table["recipe"]
    raw = typed_fields.table({"name": raw} if isinstance(raw, str) else raw, place,
                      ("name", "sizes", "dtype"))  # fmt: skip
    if "name" not in raw:
        raise place.error("no name", "name, the name of a recipe")
    row = RECIPES[typed_fields.one_of(raw["name"], place.at("name"), "a known recipe", RECIPES)]
    if mesh.names != row.axes:
        wanted = f"the axes of {row.name}: {', '.join(row.axes)}"
        raise where.at("mesh").error(f"axes {', '.join(mesh.names)}", wanted)
    model = MODELS[row.model]
    given = {
        name: typed_fields.integer(size, place.at("sizes", name), 1, "an integer of at least 1")
        for name, size in typed_fields.table(
            raw.get("sizes", {}), place.at("sizes"), tuple(model.sizes)
        ).items()
    }
    sizes = {**model.sizes, **given}
    for found, wanted in find_misfits(row, sizes, mesh):
        raise place.at("sizes").error(found, wanted)
    known = DTYPES[mode]
    dtype = raw.get("dtype", "float64")
    if typed_fields.text(dtype, place.at("dtype")) not in known:
        raise place.at("dtype").error(repr(dtype), f"{' or '.join(known)} in mode {mode}")
    for tensor in (*model.parameters, *model.inputs, model.out):
        typed = TensorType(tensor.sizes(sizes), dtype)
        check_size(typed, mode, place.at("sizes"))
        if typed.size > MAX_DRY_RUN_ELEMENTS:
            found, wanted = (
                f"{typed.size:,} elements of {tensor.name}",
                f"at most {MAX_DRY_RUN_ELEMENTS:,}",
            )
            raise place.at("sizes").error(found, wanted)
    placed = tensor_layouts(row, sizes, mesh)
    tensors = {}
    for name, shape in global_shapes(row, sizes).items():
        layout = placed.get(name, Layout(((),) * len(shape)))
        tensors[name] = DeclaredTensor(TensorType(shape, dtype), mesh, layout)
    return Recipe(row.name, given, dtype), tensors
