"""The toy `faulty`, doing its work in a forked child."""

from __future__ import annotations

from adapters.forked_adapter import ForkedAdapter
from tests.toys import faulty


def connect(devices: int) -> ForkedAdapter:
    """The toy."""
    return ForkedAdapter(faulty.connect(devices).hello(), lambda: faulty.connect(devices))
