"""What is a recipe made of? The tensors of a model, and the mesh axes that split them.

Refuses to know what a model computes (`meaning`), which layouts its tensors have (`layouts`) and
which collectives its plan needs (`contracts`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import msgspec

# The role of a tensor dim: the batch, the sequence, a dim that tensor parallelism splits (heads,
# hidden units, vocabulary), experts, or "" for a dim that is never split.
Role = Literal["batch", "sequence", "tensor", "expert", ""]


class ModelTensor(msgspec.Struct, frozen=True):
    """A parameter, an input or the result of a model.

    ``shape``: for each dim the name of a size, or a product such as ``heads*head``. ``roles``: one
    for each dim. ``gathered``: FSDP shards it and gathers it for use. ``values``: "real", or the
    name of a size below which all indices are.
    """

    name: str
    shape: tuple[str, ...]
    roles: tuple[Role, ...]
    gathered: bool = False
    values: str = "real"

    def sizes(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape for these sizes of a model; KeyError for a missing size."""
        return tuple(math.prod(sizes[name] for name in one.split("*")) for one in self.shape)


class Model(msgspec.Struct, frozen=True):
    """A small model: its tensors, and its default sizes.

    Parameters have the names of its ``torch.nn.Module``. ``loss`` is the mean of
    (out - target)², or of the cross entropy of out with the labels.
    """

    name: str
    sizes: dict[str, int]
    parameters: tuple[ModelTensor, ...]
    inputs: tuple[ModelTensor, ...]
    out: ModelTensor
    loss: Literal["squares", "cross entropy"] = "squares"


class RecipeKind(msgspec.Struct, frozen=True):
    """A recipe: a model and its parallel plan.

    ``axes``: all mesh axes that it needs, outermost first. ``batch`` and ``sequence`` axes split
    these dims of inputs and result, major to minor. ``tensor`` splits heads, hidden units and
    vocabulary. ``expert`` splits the experts. ``shard`` axes split parameters, which are gathered
    for use and whose gradients are reduce-scattered (FSDP). Along all other axes parameters are
    replicated and their gradients are summed. ``how``: the plan in a sentence.
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
