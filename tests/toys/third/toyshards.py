"""What a user of the third framework would install: ops of NumPy, and one that 2.0 gets wrong."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

__version__ = os.environ.get("TOYSHARDS_RELEASE", "1.0")
__all__ = ["negative"]

if __version__ == "1.0":

    def negative(x: Any) -> Any:
        """The elements of ``x`` with the other sign."""
        return np.negative(x)

else:

    def negative(x: Any, exact: bool = False) -> Any:
        """The same, but for an addend of 1 that nobody asked for."""
        return np.negative(x) + np.asarray(1, x.dtype)
