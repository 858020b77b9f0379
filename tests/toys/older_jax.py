"""This JAX, which is taken for 0.4.38: the adapter keeps to what the table says that had.

What JAX itself says is that of the release that runs.
"""

from __future__ import annotations

import importlib

from adapters.jax_xla import adapter
from adapters.protocol import Adapter

TAKEN_FOR = "0.4.38"


def connect(devices: int) -> Adapter:
    """A live JAX of ``devices`` CPU devices."""
    import jax

    jax.__version__ = TAKEN_FOR
    importlib.import_module("adapters.jax_xla.compat")
    return adapter.connect(devices)
