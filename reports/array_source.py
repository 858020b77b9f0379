"""How is an array written in a script? As Python that makes the same bits.

Short forms where there is one, else nested lists, else packed bytes. Knows neither framework:
their names are text here.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cases.arrays import Array, numpy_dtype, pack, unpack

# The longest list literal, in characters. Longer ones are packed bytes.
_LONGEST = 360
# A text of this length needs no shorter form.
_SHORT = 72
WIDTH = 100


def array_expression(array: Array, module: str) -> str:
    """The expression that makes an array. ``module``: "torch" or "np"."""
    values = unpack(array)
    dtype = _dtype(array.dtype, module)
    make, cast = ("torch.tensor", f"dtype={dtype}") if module == "torch" else ("np.array", dtype)
    if values.size == 0:
        return f"{module}.zeros({array.shape}, dtype={dtype})"
    if (short := _arange_arguments(values)) is not None:
        whole = f"{module}.arange({short}"
        # np.arange has no dtypes of ml_dtypes.
        made = f"{whole}).astype({dtype})" if "jnp" in dtype else f"{whole}, dtype={dtype})"
        return made + (f".reshape{array.shape}" if values.ndim > 1 else "")
    if values.size > 2 and values.dtype.kind != "c" and (values == values.flat[0]).all():
        return f"{module}.full({array.shape}, {_scalar(values.flat[0], module)}, dtype={dtype})"
    text = _nested_list(values, module)
    if len(text) > _SHORT and (grid := _sum_of_aranges(values, module)) is not None:
        return f"({grid}).{'to' if module == 'torch' else 'astype'}({dtype})"
    if len(text) <= _LONGEST:
        return f"{make}({text}, {cast})"
    packed = base64.b85encode(zlib.compress(array.data, 9)).decode()
    data = f"bytearray(zlib.decompress(base64.b85decode({packed!r})))"
    return f"{module}.frombuffer({data}, dtype={dtype}).reshape({array.shape})"


def indexed_expression(arrays: Sequence[Array], module: str, index: str) -> str:
    """The expression that makes one of several arrays. ``index``: the text of its index."""
    if all(one == arrays[0] for one in arrays):
        return array_expression(arrays[0], module)
    if (moved := first_and_shifts(arrays, module)) is not None:
        return f"{moved[0]} + {moved[1]}[{index}]"
    each = f"[{', '.join(array_expression(one, module) for one in arrays)}][{index}]"
    if any(one.shape != arrays[0].shape for one in arrays):
        return each
    together = f"{array_expression(stack_arrays(arrays), module)}[{index}]"
    return min(together, each, key=len)


def first_and_shifts(arrays: Sequence[Array], module: str) -> tuple[str, list[int]] | None:
    """The first of several arrays, and the whole number that each adds to it; None if none does."""
    known = [one for array in arrays if (one := _as_whole_numbers(unpack(array))) is not None]
    alike = {one.shape for one in known}
    if len(known) < len(arrays) or len(alike) > 1 or not arrays[0].size:
        return None
    # A narrow dtype may not hold the sum.
    if numpy_dtype(arrays[0].dtype).itemsize < 4:
        return None
    shifts = [one - known[0] for one in known]
    if not all((one == one.flat[0]).all() for one in shifts):
        return None
    return array_expression(arrays[0], module), [int(one.flat[0]) for one in shifts]


def replace_by_ones(arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Ones instead of floats, where only shapes matter; unchanged if the text is short enough."""
    dtype = arrays[0].dtype
    short = (
        all(one == arrays[0] for one in arrays) and len(array_expression(arrays[0], "np")) <= _SHORT
    )
    if short or numpy_dtype(dtype).kind in "biu":
        return tuple(arrays)
    return tuple(pack(np.ones(one.shape, numpy_dtype(dtype))) for one in arrays)


def stack_arrays(arrays: Sequence[Array]) -> Array:
    """Arrays of one shape on a new leading dim."""
    return pack(np.stack([unpack(one) for one in arrays]))


def wrap_line(line: str, indent: int) -> list[str]:
    """A line of Python, which is broken after commas inside brackets if it is too long."""
    breaks, depth, quote = [], 0, ""
    for at, sign in enumerate(line):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign == "#":
            break
        else:
            depth += (sign in "([{") - (sign in ")]}")
            if sign == " " and depth and line[at - 1] == ",":
                breaks.append((at, depth))
    lines, start, room = [], 0, WIDTH - indent
    while len(line) - start > room:
        # Break in the outermost brackets, at the last place that fits and fills half the line.
        fitting = [(at, deep) for at, deep in breaks if start < at <= start + room]
        far = [(at, deep) for at, deep in fitting if at > start + room // 2] or fitting
        if not far:
            break
        end = min(far, key=lambda one: (one[1], -one[0]))[0]
        lines.append(line[start:end])
        start, room = end + 1, WIDTH - indent - 4
    lines.append(line[start:])
    return [" " * indent + (" " * 4 if at else "") + text for at, text in enumerate(lines)]


def _dtype(name: str, module: str) -> str:
    if module == "torch":
        return f"torch.{name}"
    return {"bool": "bool", "bfloat16": "jnp.bfloat16"}.get(name, f"np.{name}")


def _as_whole_numbers(values: NDArray[Any]) -> NDArray[np.float64] | None:
    """The elements in float64, if they are whole numbers that every dtype holds exactly."""
    if values.dtype.kind in "bc":
        return None
    wide = values.astype(np.float64)
    if (
        not np.isfinite(wide).all()
        or np.abs(wide).max(initial=0) > 2**24
        or (wide != np.trunc(wide)).any()
    ):
        return None
    return None if np.signbit(wide[wide == 0]).any() else wide


def _arange_arguments(values: NDArray[Any]) -> str | None:
    """The arguments of ``arange``, if the elements in order are such a progression."""
    wide = _as_whole_numbers(values)
    if wide is None or wide.size < 4:
        return None
    first, step = (int(one) for one in (wide.flat[0], wide.flat[1] - wide.flat[0]))
    if not step or (wide.ravel() != first + step * np.arange(wide.size)).any():
        return None
    stop = first + step * wide.size
    if step != 1:
        return f"{first}, {stop}, {step}"
    return f"{first}, {stop}" if first else f"{stop}"


def _sum_of_aranges(values: NDArray[Any], module: str) -> str | None:
    """A sum of an ``arange`` along each dim, if the elements are such a sum."""
    wide = _as_whole_numbers(values)
    if wide is None or wide.ndim < 2:
        return None
    first = int(wide.flat[0])
    total, terms = np.zeros(wide.shape) + first, [f"{first}"] if first else []
    for dim, size in enumerate(wide.shape):
        if size == 1:
            continue
        step = int(wide[tuple(int(at == dim) for at in range(wide.ndim))] - wide.flat[0])
        total += step * np.arange(size).reshape([-1] + [1] * (wide.ndim - dim - 1))
        index = f"[:{', None' * (wide.ndim - dim - 1)}]" if dim < wide.ndim - 1 else ""
        terms.append(f"{f'{step} * ' if step != 1 else ''}{module}.arange({size}){index}")
    return " + ".join(terms) if (total == wide).all() and wide.shape[-1] > 1 else None


def _nested_list(values: NDArray[Any], module: str) -> str:
    if values.ndim == 0:
        return _scalar(values[()], module)
    return f"[{', '.join(_nested_list(one, module) for one in values)}]"


def _scalar(value: Any, module: str) -> str:
    kind = value.dtype.kind
    if kind in "biu":
        return str(int(value))
    if kind == "c":
        real, imag = _scalar(value.real, module), _scalar(value.imag, module)
        return f"complex({real}, {imag})"
    number = float(value)
    if math.isnan(number):
        return f"{module}.nan"
    if math.isinf(number):
        return f"{'-' if number < 0 else ''}{module}.inf"
    # The shortest decimal of the dtype, if it is the same when read as a double first.
    text = str(value)
    if type(value)(float(text)) != value:
        text = repr(number)
    return text if text == "-0.0" else text.removesuffix(".0")
