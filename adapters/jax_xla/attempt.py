"""What did JAX say to one call: a value, or a refusal?

Only calls into JAX go through `attempt`, so that a fault of ours is never reported as a
refusal of JAX's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from adapters.answer import Refused
from adapters.error_line import error_line

T = TypeVar("T")


class RefusedByJax(Exception):
    """JAX raised; ``end`` is how the answer ends."""

    def __init__(self, end: Refused):
        super().__init__(end)
        self.end = end


def attempt(step: str, call: Callable[[], T]) -> T:
    """What ``call`` returns.

    Raises:
        RefusedByJax: JAX raised; the end is `Refused` at ``step``, with the exception as its cause.
    """
    try:
        return call()
    except Exception as error:  # whatever JAX raised is data
        raise RefusedByJax(Refused(type(error).__name__, error_line(error), step)) from error
