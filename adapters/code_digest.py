"""Which code gives a framework's answers? A digest of it, so that a change can be noticed.

The digest covers what an adapter imports of this project, found by reading and not by importing:
the part of its own package that answers, and the part of `cases` with which it computes. The
modules that ask it (`worker_client`, `worker`) and that clean its texts (`scrub`) count too. A
change to the catalogue, the ledger, another framework's package or the form of records changes no
digest.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent

# These count beside the adapter's own module, which `worker` imports by a name that it is given.
_ALWAYS = ("adapters.worker", "adapters.worker_client", "adapters.scrub")


@cache
def digest_code(module: str, root: Path = _ROOT) -> str:
    """Sixteen hex digits of all code that answers for an adapter, given the name of its module."""
    found = hashlib.sha256()
    for path in sorted({*find_source_files(module, root)}):
        found.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def find_source_files(module: str, root: Path = _ROOT) -> Iterator[Path]:
    """The files under ``root`` of a module and of everything that it imports, directly or not."""
    seen: set[str] = set()
    todo = [module, *_ALWAYS]
    while todo:
        name = todo.pop()
        path = None if name in seen else _find_file(name, root)
        seen.add(name)
        if path is not None:
            yield path
            todo += _find_imports(name, path)


def _find_file(name: str, root: Path) -> Path | None:
    """The path of a module of the project; None for any other module, and for a function."""
    place = root.joinpath(*name.split("."))
    files = (place.with_suffix(".py"), place / "__init__.py")
    return next((path for path in files if path.is_file()), None)


def _find_imports(name: str, path: Path) -> Iterator[str]:
    """Names that may be modules: the packages around a module, and every name that it imports."""
    parts = name.split(".")
    yield from (".".join(parts[:end]) for end in range(1, len(parts)))
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
