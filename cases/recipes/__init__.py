"""Which recipes are there? Each is a small model with a parallel plan, found by its name.

Refuses to know what a model computes (`meaning`) and which collectives a plan needs (`contracts`).
"""

from __future__ import annotations

from cases.model import Mesh, Question
from cases.recipes.models import MODELS as MODELS
from cases.recipes.recipe import Model as Model
from cases.recipes.recipe import ModelTensor as ModelTensor
from cases.recipes.recipe import RecipeKind as RecipeKind

_ROWS = (
    RecipeKind("mlp-tp", "mlp", ("tp",), "up column-parallel, down row-parallel", tensor="tp"),
    RecipeKind(
        "attention-tp", "attention", ("tp",),
        "heads split: wq, wk, wv column-parallel, wo row-parallel",
        tensor="tp",
    ),
    RecipeKind("block-tp", "block", ("tp",), "heads and hidden units split, norms on every device",
        tensor="tp"),
    RecipeKind(
        "block-sp", "block", ("tp",),
        "as block-tp, with norms and residuals split by the sequence",
        tensor="tp", sequence=("tp",),
    ),
    RecipeKind("block-fsdp", "block", ("fsdp",), "parameters sharded, gathered for use",
        batch=("fsdp",),
        shard=("fsdp",)),
    RecipeKind(
        "block-hsdp", "block", ("dp_replicate", "fsdp"),
        "parameters sharded along fsdp, replicated along dp_replicate",
        batch=("dp_replicate", "fsdp"), shard=("fsdp",),
    ),
    RecipeKind(
        "block-fsdp-tp", "block", ("fsdp", "tp"),
        "block-sp along tp, its parameters sharded along fsdp",
        batch=("fsdp",), sequence=("tp",), tensor="tp", shard=("fsdp",),
    ),
    RecipeKind(
        "head-tp", "head", ("tp",),
        "embedding and output weights split by the vocabulary, the loss computed on split logits",
        tensor="tp",
    ),
    RecipeKind("moe-ep", "moe", ("ep",), "experts split, tokens exchanged twice", batch=("ep",),
        expert="ep"),
    RecipeKind(
        "attention-cp", "attention", ("cp",),
        "the sequence split, keys and values gathered, parameters sharded along it",
        sequence=("cp",), shard=("cp",),
    ),
    RecipeKind(
        "attention-ring", "full-attention", ("cp",),
        "non-causal attention: the sequence split, keys and values passed round a ring,"
        " parameters sharded along it",
        sequence=("cp",), shard=("cp",),
    ),
)  # fmt: skip

RECIPES = {row.name: row for row in _ROWS}


def recipe_of(question: Question) -> RecipeKind:
    """The row of a question's recipe; KeyError if there is none."""
    assert question.recipe is not None
    return RECIPES[question.recipe.name]


def sizes_of(question: Question) -> dict[str, int]:
    """The sizes of a question's model. Sizes that the question names replace the model's."""
    assert question.recipe is not None
    return {**MODELS[recipe_of(question).model].sizes, **question.recipe.sizes}


def find_misfits(row: RecipeKind, sizes: dict[str, int], mesh: Mesh) -> list[tuple[str, str]]:
    """Sizes that do not fit or do not split evenly: what was found, and what is wanted."""
    found = []
    model = MODELS[row.model]
    for tensor in (*model.parameters, *model.inputs, model.out):
        shape = tensor.sizes(sizes)
        for size, name, axes in zip(
            shape, tensor.shape, _axes(row, tensor, sizes, mesh), strict=True
        ):
            parts = 1
            for axis in axes:
                parts *= mesh[axis]
            if size % parts:
                found.append((f"{name} = {size}", f"a multiple of {parts} to split {tensor.name}"))
    if "kv" in sizes and sizes["heads"] % sizes["kv"]:
        wanted = f"a multiple of kv = {sizes['kv']}, the number of key heads"
        found.append((f"heads = {sizes['heads']}", wanted))
    if "head" in sizes and sizes["head"] % 2:
        found.append((f"head = {sizes['head']}", "an even number, because halves are rotated"))
    # A device holds whole heads.
    if row.tensor and "kv" in sizes and sizes["kv"] % mesh[row.tensor]:
        found.append((f"kv = {sizes['kv']}", f"a multiple of {mesh[row.tensor]}: heads stay whole"))
    return found


def _axes(
    row: RecipeKind, tensor: ModelTensor, sizes: dict[str, int], mesh: Mesh
) -> tuple[tuple[str, ...], ...]:
    from cases.recipes.layouts import data_layout, parameter_layout

    parameters = {one.name for one in MODELS[row.model].parameters}
    if tensor.name in parameters:
        return parameter_layout(row, tensor, sizes, mesh).dims
    return data_layout(row, tensor).dims
