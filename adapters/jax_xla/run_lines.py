"""How do lines of Python become a function that JAX can trace?

The function runs exactly the lines that a stand-alone script prints for this release. The lines
come from `source_lines` and `op_table`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from adapters.jax_xla.compat import RELEASE
from adapters.jax_xla.mesh_lines import joined_function
from adapters.jax_xla.names import format_imports
from adapters.jax_xla.source_lines import variable_name

FILENAME = "<question>"

_SCOPE: dict[str, Any] = {}
exec("\n".join(format_imports(RELEASE)), _SCOPE)
exec(joined_function(RELEASE), _SCOPE)


def function(
    arguments: Sequence[str],
    lines: Sequence[str],
    results: Sequence[str],
    meshes: Mapping[str, Any],
) -> Callable[..., Any]:
    """A function of ``arguments`` that runs ``lines`` and returns a tuple of ``results``.

    ``meshes``: the meshes and views that the lines use.

    Line i of ``lines`` is line i + 2 of `FILENAME` in a traceback.
    """
    head = f"def program({', '.join(map(variable_name, arguments))}):"
    tail = f"return ({''.join(variable_name(result) + ', ' for result in results)})"
    source = "\n    ".join([head, *lines, tail])
    scope: dict[str, Any] = {**_SCOPE, **meshes}
    exec(compile(source, FILENAME, "exec"), scope)
    made: Callable[..., Any] = scope["program"]
    return made


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """The value of an expression. ``names``: the meshes and views that it uses."""
    return eval(text, {**_SCOPE, **names})
