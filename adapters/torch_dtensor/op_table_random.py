"""How does torch spell what is random? A seed, then the draw; one line of Python each.

A generator has a state, so that a later draw from one seed is just the next line. Knows no
torch: lines are text here.
"""

from __future__ import annotations

from adapters.torch_dtensor.python_text import Call, OpFormatter, Unsayable, format_literal


def _seed(call: Call) -> str:
    """The seed of this rank: where axes are distinct, moved on by its place along them."""
    text = str(call.params["seed"])
    distinct = call.params.get("distinct")
    if not isinstance(distinct, list):
        return text
    for place, axis in enumerate(map(str, distinct)):
        factor = 1
        for inner in distinct[place + 1 :]:
            factor *= call.mesh[str(inner)]
        text += f" + {call.home}.get_local_rank({axis!r})" + (f" * {factor}" if factor > 1 else "")
    return text


def _seeded(call: Call, made: str) -> str:
    """``made`` with the generator of the process seeded first, unless it is a later draw."""
    if call.params.get("draw"):
        return made
    if call.params.get("seeding") == "mesh":
        seeded = f"manual_seed({_seed(call)}, {call.home})"
    else:
        seeded = f"torch.manual_seed({_seed(call)})"
    return f"({seeded}, {made})[1]"


def _array(name: str) -> OpFormatter:
    """A factory of DTensors; or a plain tensor on every rank, of which rank 0's is dealt out."""

    def row(call: Call) -> str:
        if "impl" in call.params:
            raise Unsayable("torch has one generator on a CPU")
        if call.params.get("seeding") == "generator":
            raise Unsayable("DTensor's factories take no generator")
        shape = format_literal(call.params["shape"])
        if call.params.get("whole"):
            made = f"distribute_tensor(torch.{name}({shape}), {call.home}{call.placements})"
        else:
            where = f"device_mesh={call.home}{call.placements}"
            made = f"dtensor.{name}({shape}, {where})"
        return _seeded(call, made)

    return row


def _initial(name: str) -> OpFormatter:
    """What modules do to their parameters, on a clone."""

    def row(call: Call) -> str:
        copy = f"{call.args[0]}.clone()"
        if call.params.get("seeding") != "generator":
            return _seeded(call, f"torch.nn.init.{name}({copy})")
        if call.params.get("draw"):
            raise Unsayable("a generator made for one draw has no later one")
        own = f"generator=torch.Generator().manual_seed({_seed(call)})"
        return f"torch.nn.init.{name}({copy}, {own})"

    return row


def _dropout(call: Call) -> str:
    if call.params.get("seeding") == "generator":
        raise Unsayable("dropout takes no generator")
    return _seeded(call, f"F.dropout({call.args[0]}, p={format_literal(call.params['p'])})")


RANDOM_OPS: dict[str, OpFormatter] = {
    "random_uniform": _array("rand"),
    "random_normal": _array("randn"),
    "inplace_uniform": _initial("uniform_"),
    "inplace_normal": _initial("normal_"),
    "dropout": _dropout,
}
