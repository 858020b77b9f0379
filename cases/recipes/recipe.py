"""What is a recipe made of? A model's tensors, and which mesh axes split which of their dims.

Data alone. `meaning` says what a model computes, `layouts` how its tensors lie on a mesh, and
`contracts` what its parallel plan must cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import msgspec

# What a tensor dim is: rows of the batch, positions in the sequence, what tensor parallelism splits
# (heads, hidden units, vocabulary), experts, or a dim that is never split.
Role = Literal["batch", "sequence", "tensor", "expert", ""]


class ModelTensor(msgspec.Struct, frozen=True):
    """A parameter, an input or the result of a model.

    ``shape``: per dim, the size, a name or a product such as ``heads*head``. ``roles``: per dim.
    ``gathered``: whether FSDP shards it. ``values``: "real" numbers, or indices below a size by
    name.
    """

    name: str
    shape: tuple[str, ...]
    roles: tuple[Role, ...]
    gathered: bool = False
    values: str = "real"

    def sizes(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape, for the sizes of a model; KeyError for a size that is not there."""
        return tuple(math.prod(sizes[name] for name in one.split("*")) for one in self.shape)


class Model(msgspec.Struct, frozen=True):
    """A small model: its tensors, and its sizes where a question names none.

    Parameters have the names that a ``torch.nn.Module`` of it has. ``loss`` is the mean of
    (out - target)², or of the cross entropy of out against labels.
    """

    name: str
    sizes: dict[str, int]
    parameters: tuple[ModelTensor, ...]
    inputs: tuple[ModelTensor, ...]
    out: ModelTensor
    loss: Literal["squares", "cross entropy"] = "squares"


class RecipeKind(msgspec.Struct, frozen=True):
    """A recipe: a model and the parallel plan that it runs under.

    ``axes``: the mesh axes that it wants, all of them, outermost first. The others say what
    each is for: ``batch`` and ``sequence`` axes split these dims of inputs and result, major to
    minor; ``tensor`` splits heads, hidden units and vocabulary; ``expert`` the experts;
    ``shard`` axes split parameters that are gathered for use, and whose gradients are reduced
    and scattered (FSDP); along any other axis parameters are whole, and their gradients summed.
    ``how``: the plan in a sentence.
    """

    name: str
    model: str
    axes: tuple[str, ...]
    how: str
    batch: tuple[str, ...] = ()
    sequence: tuple[str, ...] = ()
    tensor: str = ""
    expert: str = ""
    shard: tuple[str, ...] = ()
