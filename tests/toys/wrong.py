"""A framework that is wrong on purpose, in the one way that TOY_WRONG names.

It stands in for torch: its answers are those of a framework that does exactly what is implied,
with one mistake in the result y, or in a derived mesh.
"""

from __future__ import annotations

import os
import platform
import sys
import time

import msgspec
import numpy as np

from adapters.answer import Answer, Collective, Done, Observed
from adapters.protocol import VERSION, Hello, Promise
from adapters.reference.evaluate import Value, cut_shards
from cases.arrays import pack, unpack
from cases.mesh_derivation import derive_all
from cases.model import Case, Expectation, Layout, Question
from suites.truth import truth
from tests.mistakes import right_answer

PROMISES = {"torch": Promise(("dtype", "layout", "shards", "offsets", "full"))}
WRONG = os.environ.get("TOY_WRONG", "")


class Wrong:
    """The toy."""

    def hello(self) -> Hello:
        """Claims to be torch, of a release before any that the ledger or a record knows."""
        version = VERSION + (WRONG == "protocol version")
        python, pid = platform.python_version(), os.getpid()
        return Hello(version, "torch", "1.0", python, pid=pid, promises=PROMISES)

    def observe(self, question: Question, subject: str, seconds: float) -> Answer:
        """The right answer with the mistake."""
        made = derive_all(question.mesh, question.mesh_steps)
        refused = [
            step.result
            for step in question.mesh_steps
            if step.op != "mesh_equal" and step.result not in made
        ]
        case = Case(question, Expectation(refused="".join(refused[:1])))
        answer = right_answer(case, truth(case), subject)
        if WRONG == "crash" and question.id == "reduce":
            os.abort()
        if WRONG == "hang" and question.id == "reduce":
            time.sleep(600)
        if WRONG == "chatter":
            print("x" * 200_000)
            print('{"type": "Answer"}', file=sys.stderr, flush=True)
        seen = tuple(
            spoilt(question, one, answer) if one.name == "y" else one for one in answer.seen
        )
        answer = msgspec.structs.replace(answer, seen=seen)
        return spoilt_mesh(answer) if question.mesh_steps else answer

    def close(self) -> None:
        """Nothing to end."""


def spoilt(question: Question, y: Observed, answer: Answer) -> Observed:
    """The result with the mistake, where the mistake can be made in it."""
    replace = msgspec.structs.replace
    mesh, full = question.mesh, unpack(y.full[0])
    shards = [unpack(shard) for shard in y.shards or () if shard is not None]
    x = answer.seen[0]
    old = [unpack(shard) for shard in x.shards or () if shard is not None]
    assert isinstance(y.layout, Layout)
    assert y.collectives is not None
    match WRONG:
        case "axes swapped" if question.id == "exchange":
            other = Layout(tuple(reversed(y.layout.dims)))
            return replace(y, shards=_packed(cut_shards(mesh, other, full)))
        case "reduction dropped" if question.id == "reduce":
            return replace(y, shards=_packed(old[:1] * 4), full=(pack(old[0]),))
        case "reduction doubled" if question.id == "reduce":
            twice = [shard * 2 for shard in shards]
            return replace(y, shards=_packed(twice), full=(pack(full * 2),))
        case "ranks permuted" if question.id == "exchange":
            return replace(y, shards=_packed(shards[1:] + shards[:1]))
        case "wrong device order" if question.id == "reversed":
            # Device 0 holds the first rows, wherever it is in the mesh.
            return replace(y, shards=_packed([shards[device] for device in mesh.devices]))
        case "stale shard" if question.id == "swap":
            return replace(y, shards=_packed([shards[0], old[1]]))
        case "one collective too many" if question.id == "gather":
            more = Collective("all-reduce", ("x",), 4, 8)
            return replace(y, collectives=(*y.collectives, more))
        case "one collective too few" if question.id == "gather":
            return replace(y, collectives=())
        case "wrong layout" if question.id == "gather":
            return replace(y, layout=Layout((("x",), ())))
        case "one rank apart" if question.id == "gather":
            return replace(y, full=(*y.full * 3, pack(np.flip(full, 0))))
    return y


def spoilt_mesh(answer: Answer) -> Answer:
    """What is said of derived meshes with the mistake, where it can be made in it."""
    replace = msgspec.structs.replace
    if WRONG == "no refusal" and answer.question == "refusal":
        made = Observed("m", "int64", (3,), shards=(pack(np.arange(3)),) * 4)
        return replace(answer, end=Done(), seen=(made,))
    changes = {
        "wrong grid": ("n", lambda one: _turned(one)),
        "wrong group": ("m/a", lambda one: _turned(one)),
        "wrong coordinate": ("m", lambda one: replace(one, offsets=one.offsets[::-1])),
        "wrong comparison": ("same", lambda one: replace(one, shards=(pack(np.array(True)),) * 4)),
    }
    name, change = changes.get(WRONG, ("", None))
    if change is None:
        return answer
    return replace(
        answer, seen=tuple(change(one) if one.name == name else one for one in answer.seen)
    )


def _turned(one: Observed) -> Observed:
    """What the last device sees, turned round."""
    shards = [unpack(shard) for shard in one.shards or () if shard is not None]
    return msgspec.structs.replace(one, shards=_packed([*shards[:-1], shards[-1][::-1]]))


def _packed(shards: list[Value]) -> tuple[object, ...]:
    return tuple(map(pack, shards))


def connect(devices: int) -> Wrong:
    """The toy."""
    return Wrong()
