"""Did one call into JAX return a value, or does its exception end the answer?

Only calls into JAX go through `attempt`. An exception in this suite is never reported as an error
of JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from adapters.answer import Refused
from adapters.error_line import error_line
from adapters.unsupported import CannotAnswer

T = TypeVar("T")


class RefusedByJax(Exception):
    """JAX raised. ``end`` says how the answer ends."""

    def __init__(self, end: Refused):
        super().__init__(end)
        self.end = end


def attempt(step: str, call: Callable[[], T]) -> T:
    """The result of ``call``.

    Raises:
        RefusedByJax: JAX raised. The end is `Refused` at ``step``. The exception is its cause.
    """
    try:
        return call()
    except CannotAnswer:  # raised by a name that this release of JAX lacks
        raise
    except Exception as error:  # any exception of JAX is its answer
        raise RefusedByJax(Refused(type(error).__name__, error_line(error), step)) from error
