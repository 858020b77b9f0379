"""Which line of JAX does an op become if that depends on release, requested layout or values?

Each function chooses a line for a call. The lines have slots as in `op_table`. This module does not
import jax: lines are text here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from adapters.jax_xla.names import has_name, require
from adapters.op_lines import Filter
from cases.model import Step


class Call(msgspec.Struct, frozen=True):
    """A step, the text of each argument and parameter, and the release."""

    step: Step
    texts: Mapping[str, str]
    release: str

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the step. `cases.program` has checked their types."""
        return self.step.params


def _order(call: Call, name: str) -> str:
    return "jnp.inf" if call.params.get(name) == "inf" else call.texts.get(name, "2")


FILTERS: dict[str, Filter[Call]] = {"order": _order}

_LAYOUT_SLOT = "{, out_sharding=sharding}"


@lru_cache(maxsize=1024)
def keep_layout_slot(line: str, release: str) -> str:
    """A line, without ``{, out_sharding=sharding}`` if the release lacks that argument."""
    head, slot, tail = line.partition(_LAYOUT_SLOT)
    if not slot:
        return line
    # Remove closed parentheses. Then the last open parenthesis follows the function of the slot.
    opened = head
    while (shorter := re.sub(r"\([^()]*\)", "", opened)) != opened:
        opened = shorter
    name = re.split(r"[^\w.]", opened[: opened.rindex("(")])[-1]
    # The function is a method of x.at[...].
    name = f"x.at[]{name}" if name.startswith(".") else name
    return line if has_name(f"{name}(out_sharding=)", release) else head + tail


def since(wanted: str, newer: str, older: str) -> Callable[[Call], str]:
    """``newer`` if the release has ``wanted`` of `names.NAMES`, else ``older``."""
    return lambda call: newer if has_name(wanted, call.release) else older


def ask_layout(
    line: str | Callable[[Call], str], asking: str, wanted: str = ""
) -> Callable[[Call], str]:
    """``asking`` if the op gets a requested layout and a release has ``wanted``, else ``line``."""

    def choose(call: Call) -> str:
        if "sharding" in call.texts and (not wanted or has_name(wanted, call.release)):
            return asking
        return line if isinstance(line, str) else line(call)

    return choose


def convolution(dims: int) -> Callable[[Call], str]:
    """jax.lax.conv_general_dilated takes a stride and a padding for each dim."""

    def each(value: Any) -> list[int]:
        return value if isinstance(value, list) else [value] * dims

    def choose(call: Call) -> str:
        strides = tuple(each(call.params.get("stride", 1)))
        pads = [(edge, edge) for edge in each(call.params.get("padding", 0))]
        return (
            f"jax.lax.conv_general_dilated({{x}}, {{w}}, {strides}, {pads}"
            "{, out_sharding=sharding})"
        )

    return choose


def attention(call: Call) -> str:
    """Attention as its definition: matmul, softmax, matmul."""
    causal = "jnp.where(jnp.tri(*_s.shape[-2:], dtype=bool), _s, -jnp.inf)"
    scores = causal if call.params.get("causal") else "_s"
    return (
        f"(lambda _s, _v: jnp.matmul(jax.nn.softmax({scores}), _v))"
        "(jnp.matmul({q}, jnp.swapaxes({k}, -1, -2)) / {q}.shape[-1] ** 0.5, {v})"
    )


def top_k(part: str) -> Callable[[Call], str]:
    """jax.lax.top_k has no ``axis`` in older releases. There it takes the last axis."""

    def choose(call: Call) -> str:
        last = call.params.get("axis", -1) == -1
        if last and not has_name("jax.lax.top_k(axis=)", call.release):
            return f"jax.lax.top_k({{x}}, {{k}}){part}"
        require("jax.lax.top_k(axis=)", call.release, call.step.result)
        return f"jax.lax.top_k({{x}}, {{k}}, axis={{axis:-1}}){part}"

    return choose


def loss(each: str) -> Callable[[Call], str]:
    """A loss whose value for each element is ``each``."""
    reductions = {"mean": "jnp.mean", "sum": "jnp.sum", "none": ""}
    return lambda call: f"{reductions[call.params.get('reduction', 'mean')]}({each})"


def by_class(logs: str) -> Callable[[Call], str]:
    """A loss of log-probabilities ``logs`` for each class. ``t`` is the target class."""
    # Each row of _h has the weight of the target class in its column. Ignored rows are zeros.
    reductions = {
        "mean": "-jnp.sum(_h * _x) / jnp.sum(_h)",
        "sum": "-jnp.sum(_h * _x)",
        "none": "-jnp.sum(_h * _x, axis=1)",
    }
    hot = "jnp.where({t} == {ignore:-100}, -1, {t}), {x}.shape[1], dtype={x}.dtype"
    return lambda call: (
        f"(lambda _h, _x: {reductions[call.params.get('reduction', 'mean')]})"
        f"(jax.nn.one_hot({hot}){{ * w}}, {logs})"
    )


def random_array(name: str) -> Callable[[Call], str]:
    """Random numbers in the requested layout. With ``whole``, they are drawn and then sharded."""

    def choose(call: Call) -> str:
        asked = "" if call.params.get("whole") else "{, out_sharding=sharding}"
        return f"jax.random.{name}({{key}}, {{shape}}, jnp.float32{asked})"

    return choose


def random_in_place(name: str) -> Callable[[Call], str]:
    """JAX arrays are immutable, so the result is a new array of the same shape and dtype.

    With ``distinct`` axes, each device folds its position along them into the key. The compiler
    decides about the other axes.
    """

    def choose(call: Call) -> str:
        if not call.params.get("distinct"):
            return (
                f"jax.random.{name}({{key}}, {{x}}.shape, {{x}}.dtype{{, out_sharding=sharding}})"
            )
        axes = "axis_names={*{distinct}}"
        if not has_name("jax.shard_map(axis_names=)", call.release):
            axes = "auto=frozenset({mesh}.axis_names) - {*{distinct}}"
        key = "jax.random.fold_in({key}, jax.lax.axis_index({distinct}))"
        return (
            f"jax.shard_map(lambda _t: jax.random.{name}({key}, _t.shape, _t.dtype), "
            f"mesh={{mesh}}, in_specs=P({{distinct}}), out_specs=P({{distinct}}), {axes})({{x}})"
        )

    return choose
