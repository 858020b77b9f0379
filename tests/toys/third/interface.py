"""What of the third framework's public interface is listed? See `adapters.interface.Source`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from adapters.interface import Module
from adapters.release_names import NameLocation

_LIBRARY = "tests.toys.third.toyshards"

MODULES = (Module(_LIBRARY),)
ROOTS = (_LIBRARY,)
NAMES = {"negative": (NameLocation("1.0", f"{_LIBRARY}.negative"),)}
CALLS: Mapping[str, Callable[[], object]] = {}
DEFAULTS: Mapping[str, Callable[[], object]] = {"devices": lambda: 8}
PRINTED: Mapping[str, Callable[[], object]] = {}


def start() -> str:
    """The release that is installed."""
    from tests.toys.third import toyshards

    return toyshards.__version__


@contextlib.contextmanager
def world() -> Iterator[None]:
    """It needs none."""
    yield
