"""The toy `faulty`, doing its work in a forked child."""

from __future__ import annotations

from adapters.forked import Forked
from tests.toys import faulty


def connect(devices: int) -> Forked:
    """The toy."""
    return Forked(faulty.connect(devices).hello(), lambda: faulty.connect(devices))
