"""Which values and which gradient elements of a recipe are right? NumPy computes them.

Finite differences for every element of every parameter would take minutes. This module samples a
few elements of each gradient. The judgement compares all elements with the framework's unsharded
step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.reference.gradient import slope_at
from cases.model import Question
from cases.recipes import MODELS, recipe_of, sizes_of
from cases.recipes.layouts import observed_names
from cases.recipes.meaning import chosen_experts, forward, loss
from cases.recipes.parameter_values import all_arrays

# The number of elements per tensor whose slope is computed.
SAMPLED_ELEMENTS = 6

Slopes = dict[str, dict[tuple[int, ...], float]]


def forward_values(question: Question) -> dict[str, NDArray[Any]]:
    """The unsharded parameters, inputs, ``out`` and ``loss`` of a question's recipe."""
    return dict(_values(*model_key(question)))


def sample_gradients(question: Question) -> Slopes:
    """The slopes of the loss by `SAMPLED_ELEMENTS` elements of each tensor with a gradient."""
    model, sizes, dtype = model_key(question)
    return {
        f"grad/{name}": _slopes(model, sizes, dtype, name)
        for one in observed_names(recipe_of(question))
        if (name := one.removeprefix("grad/")) != one
    }


def tokens_at_busiest_expert(question: Question) -> int | None:
    """The tokens of the device whose experts get the most. None without data or experts."""
    row, sizes = recipe_of(question), sizes_of(question)
    if not row.expert or question.mode == "dry run":
        return None
    groups = question.mesh[row.expert]
    chosen = chosen_experts(forward_values(question)) * groups // sizes["experts"]
    return int(np.bincount(chosen.ravel(), minlength=groups).max())


def model_key(question: Question) -> tuple[str, tuple[tuple[str, int], ...], str]:
    """The model of a question's recipe, its sizes, and its dtype: what its values depend on."""
    assert question.recipe is not None
    sizes = tuple(sizes_of(question).items())
    return recipe_of(question).model, sizes, question.recipe.dtype


@lru_cache(maxsize=32)
def _values(model: str, sizes: tuple[tuple[str, int], ...], dtype: str) -> dict[str, NDArray[Any]]:
    tensors = all_arrays(model, dict(sizes), dtype)
    out = forward(model, dict(sizes), tensors)
    return {**tensors, MODELS[model].out.name: out, "loss": loss(model, dict(sizes), tensors, out)}


@lru_cache(maxsize=256)
def _slopes(
    model: str, sizes: tuple[tuple[str, int], ...], dtype: str, name: str
) -> dict[tuple[int, ...], float]:
    moved, at = loss_by_tensor(model, dict(sizes), dtype, name)
    # The elements are spread over the tensor and include the first and the last.
    flat = sorted({round(place) for place in np.linspace(0, at.size - 1, SAMPLED_ELEMENTS)})
    indices = [tuple(int(i) for i in np.unravel_index(place, at.shape)) for place in flat]
    return {index: slope_at(moved, at, index) for index in indices}


def loss_by_tensor(
    model: str, sizes: dict[str, int], dtype: str, name: str
) -> tuple[Callable[[NDArray[Any]], NDArray[Any]], NDArray[Any]]:
    """The loss as a function of one tensor, and that tensor."""
    tensors = all_arrays(model, sizes, dtype)

    def moved(value: NDArray[Any]) -> NDArray[Any]:
        others = {**tensors, name: value}
        return loss(model, sizes, others, forward(model, sizes, others))

    return moved, tensors[name]
