"""Which line of torch does an op become if that depends on shapes, dtypes or values?

Each function chooses a line for a call. The lines have slots as in `op_table`. Some functions work
around what torch lacks. This module does not import torch: lines are text here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from adapters.op_lines import Filter, format_literal, named_arguments
from adapters.unsupported import CannotAnswer
from cases.model import Mesh, Step
from cases.program import TensorType


class Call(msgspec.Struct, frozen=True):
    """A step with everything that its line may depend on.

    ``texts``: the text of each argument and parameter. ``mesh``: the mesh of the result. ``known``:
    returns shape and dtype of every name. Few functions call it, because it is slow.
    """

    step: Step
    texts: Mapping[str, str]
    mesh: Mesh
    known: Callable[[], Mapping[str, TensorType]]

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the step. `cases.program` has checked their types."""
        return self.step.params

    def is_number(self, name: str) -> bool:
        """Whether the argument ``name`` is a number, not a tensor."""
        return not isinstance(named_arguments(self.step)[name], str)

    def type_of(self, name: str) -> TensorType:
        """Global shape and dtype of the argument ``name``."""
        return self.known()[str(named_arguments(self.step)[name])]

    def shape(self, name: str) -> tuple[int, ...]:
        """The global shape of the argument ``name``."""
        return self.type_of(name).shape


# Filters: each returns the text of a slot for an argument or parameter.


def _tensor(call: Call, name: str) -> str:
    """A tensor, for functions that do not take numbers."""
    text = call.texts[name]
    return f"torch.tensor({text})" if call.is_number(name) else text


def _long(call: Call, name: str) -> str:
    """A 64-bit index, for functions that take no other dtype."""
    return call.texts[name] + ("" if call.type_of(name).dtype == "int64" else ".long()")


def _index(call: Call, name: str) -> str:
    """An index between brackets. There torch takes a uint8 tensor as a mask."""
    whole = call.type_of(name).dtype in ("int32", "int64")
    return call.texts[name] + ("" if whole else ".long()")


def _dims(call: Call, name: str) -> str:
    """The given dims as a tuple. All dims if none are given."""
    axis = call.params.get(name)
    dims = range(len(call.shape("x"))) if axis is None else axis
    return f"({dims},)" if isinstance(dims, int) else format_literal([*dims])


def _order(call: Call, name: str) -> str:
    order = call.params.get(name, 2)
    return format_literal(float("inf") if order == "inf" else order)


FILTERS: dict[str, Filter[Call]] = {
    "tensor": _tensor,
    "long": _long,
    "index": _index,
    "dims": _dims,
    "order": _order,
    "last_size": lambda call, name: str(call.shape(name)[-1]),
}

# Functions that choose a line.


def power(call: Call) -> str:
    """In Python, ``-2 ** x`` is ``-(2 ** x)``."""
    return "({x}) ** {y}" if call.texts["x"].startswith("-") else "{x} ** {y}"


def limit(name: str, bound: str) -> Callable[[Call], str]:
    """torch.maximum and torch.minimum take only tensors. With a number, the line is a clamp."""

    def choose(call: Call) -> str:
        match call.is_number("x"), call.is_number("y"):
            case False, False:
                return f"{name}({{x}}, {{y}})"
            case False, True:
                return f"torch.clamp({{x}}, {bound}={{y}})"
            case True, False:
                return f"torch.clamp({{y}}, {bound}={{x}})"
        raise CannotAnswer(f"{name} of two numbers")

    return choose


def product(call: Call) -> str:
    """torch.prod multiplies along one dim or over everything."""
    axis = call.params.get("axis")
    if axis is None:
        if call.params.get("keepdims"):
            raise CannotAnswer("torch.prod over all dims keeps none")
        return "torch.prod({x})"
    dims = axis if isinstance(axis, list) else [axis]
    if len(dims) > 1:
        raise CannotAnswer("torch.prod is over one dim or all")
    return f"torch.prod({{x}}, dim={dims[0]}{{, keepdim=keepdims}})"


def split(call: Call) -> str:
    """torch.split takes the size of a section, not the number of sections."""
    size = call.shape("x")[call.params["axis"]] // call.params["sections"]
    return f"torch.split({{x}}, {size}, dim={{axis}})[{{part}}]"


def pad(call: Call) -> str:
    """F.pad counts from the last dim."""
    rank = len(call.shape("x"))
    later = rank - 1 - call.params["axis"] % rank
    widths = (*(0, 0) * later, call.params["before"], call.params["after"])
    return f"F.pad({{x}}, {widths}{{, value=value}})"


def tile(call: Call) -> str:
    """torch.tile takes a number for each dim."""
    times = [1] * len(call.shape("x"))
    times[call.params["axis"]] = call.params["repeats"]
    return f"torch.tile({{x}}, {tuple(times)})"


def scatter(call: Call) -> str:
    """torch.scatter writes only where it has an index. NumPy broadcasts indices of size 1."""
    axis, x, i = call.params["axis"], call.shape("x"), call.shape("i")
    if any(a != b for dim, (a, b) in enumerate(zip(x, i)) if dim != axis % len(x)):
        raise CannotAnswer("torch.scatter does not repeat its indices")
    return "torch.scatter({x}, {axis}, {i|long}, {v})"


def _start(call: Call, length: int) -> str:
    """The start in ``i``, clamped so that ``length`` elements are inside ``x``."""
    last = call.shape("x")[call.params["axis"]] - length
    return f"min(max(int({{i}}), 0), {last})"


def dynamic_slice(call: Call) -> str:
    """torch.narrow refuses a start that is too large."""
    return f"torch.narrow({{x}}, {{axis}}, {_start(call, call.params['size'])}, {{size}})"


def dynamic_update_slice(call: Call) -> str:
    """torch.slice_scatter clips its end, so the line clamps the start."""
    length = call.shape("v")[call.params["axis"]]
    start = _start(call, length)
    span = f"dim={{axis}}, start={start}, end={start} + {length}"
    return f"torch.slice_scatter({{x}}, {{v}}, {span})"


def assign_slice(call: Call) -> str:
    """Call what ``y[2:4] = v`` calls, on a copy, because the line must be an expression."""
    axis = call.params["axis"]
    before = axis if axis >= 0 else len(call.shape("x")) + axis
    index = "slice(None), " * before + "slice({start:None}, {stop:None}, {step:None}),"
    new = "{v}" if "v" in call.texts else "{value}"
    assigned = f"(_copy.__setitem__(({index}), _new), _copy)[1]"
    return f"(lambda _copy, _new: {assigned})({{x}}.clone(), {new})"


def set_slice(call: Call) -> str:
    """torch.slice_scatter is an expression, unlike an assignment. It needs the exact shape."""
    if "v" not in call.texts:
        new = "torch.full_like({x}[{pre}{start:}:{stop:}{:step}{post}], {value})"
    else:
        new, shape, axis = "{v}", list(call.shape("x")), call.params["axis"]
        span = slice(*(call.params.get(name) for name in ("start", "stop", "step")))
        shape[axis] = len(range(shape[axis])[span])
        if call.shape("v") != tuple(shape):
            new = f"torch.broadcast_to({{v}}, {tuple(shape)})"
    return (
        f"torch.slice_scatter({{x}}, {new}, dim={{axis}}"
        "{, start=start}{, end=stop}{, step=step})"
    )


# Random ops seed a generator and then draw. The generator has a state, so a later draw from the
# same seed does not seed again.


def _seed(call: Call) -> str:
    """The seed of this rank. Its position along the ``distinct`` axes is added."""
    text = "{seed}"
    axes = call.params.get("distinct", [])
    for position, axis in enumerate(axes):
        factor = math.prod(call.mesh[inner] for inner in axes[position + 1 :])
        text += f" + {{mesh}}.get_local_rank({axis!r})" + (f" * {factor}" if factor > 1 else "")
    return text


def _seeded(call: Call, drawn: str) -> str:
    """Seed the generator of the process and then evaluate ``drawn``. A later draw does not seed."""
    if call.params.get("draw"):
        return drawn
    if call.params.get("seeding") == "mesh":
        return f"(manual_seed({_seed(call)}, {{mesh}}), {drawn})[1]"
    return f"(torch.manual_seed({_seed(call)}), {drawn})[1]"


def random_array(name: str) -> Callable[[Call], str]:
    """A DTensor factory, or with ``whole`` a plain tensor that rank 0 distributes."""

    def choose(call: Call) -> str:
        if "impl" in call.params:
            raise CannotAnswer("torch has one generator on a CPU")
        if call.params.get("seeding") == "generator":
            raise CannotAnswer("DTensor's factories take no generator")
        placed = "{mesh}{, placements=placements}"
        if call.params.get("whole"):
            return _seeded(call, f"distribute_tensor(torch.{name}({{shape}}), {placed})")
        return _seeded(call, f"dtensor.{name}({{shape}}, device_mesh={placed})")

    return choose


def random_in_place(name: str) -> Callable[[Call], str]:
    """Initialize a clone in place, as modules initialize their parameters."""

    def choose(call: Call) -> str:
        if call.params.get("seeding") != "generator":
            return _seeded(call, f"torch.nn.init.{name}({{x}}.clone())")
        if call.params.get("draw"):
            raise CannotAnswer("a generator made for one draw has no later one")
        generator = f"torch.Generator().manual_seed({_seed(call)})"
        return f"torch.nn.init.{name}({{x}}.clone(), generator={generator})"

    return choose


def dropout(call: Call) -> str:
    """Dropout draws from the generator of the process."""
    if call.params.get("seeding") == "generator":
        raise CannotAnswer("dropout takes no generator")
    return _seeded(call, "F.dropout({x}, p={p})")
