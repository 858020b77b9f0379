"""The JAX adapter, with a recipe's shardings wrong in the one way that TOY_WRONG names."""

from __future__ import annotations

import os
from typing import Any

from adapters.jax_xla import adapter
from adapters.protocol import Adapter
from cases.model import Layout


def connect(devices: int) -> Adapter:
    """The adapter with the mistake."""
    made = adapter.connect(devices)
    # Not above: the adapter sets JAX up before it is imported.
    from adapters.jax_xla.recipes import activation_layouts, step

    match os.environ["TOY_WRONG"]:
        case "split dims exchanged":
            right = step.parameter_layout

            def turned(*args: Any) -> Layout:
                return Layout(tuple(reversed(right(*args).dims)))

            step.parameter_layout = turned
        case "gathered in between":
            activation_layouts.ACTIVATIONS["row_hidden"] = ("batch", "")
    return made
