"""Did each device work on its own shard alone, as the program asked it to?

Between `to_local` and `from_local` every step runs on the shards of each device. If that gives
another result than the same steps on the whole array, the framework still did what it was asked.
"""

from __future__ import annotations

from adapters.answer import Answer, Observed
from adapters.reference.evaluate import UndefinedValue, Value, cut_shards, meaning
from cases.arrays import pack, unpack
from cases.model import Case, Tolerance
from cases.ops import OPS
from cases.ops.op import tolerance
from suites.array_difference import difference
from suites.tensors import mesh_of, upstream

# These end the steps on shards.
_JOIN = "from_local"
_SPLIT = "to_local"


def ran_on_shards(case: Case, answer: Answer, seen: Observed) -> str:
    """A sentence, if every shard is what the steps make of that device's own shard.

    "" if no step ran on shards, if an operand of such steps is not shown, or if a shard is anything
    else.
    """
    question = case.question
    steps = {step.result: step for step in question.steps}
    joined = [
        name for name in upstream(case, seen.name) if name in steps and steps[name].op == _JOIN
    ]
    if seen.name not in joined or seen.shards is None:
        return ""
    local = [step for step in question.steps if step.result in upstream(case, seen.name)]
    starts = [step for step in local if step.op == _SPLIT]
    inside = [step for step in local if step.op not in (_SPLIT, _JOIN)]
    if not starts or not inside:
        return ""
    mesh = mesh_of(case, seen.name)
    for position in range(mesh.size):
        values: dict[str, Value] = {}
        for step in local:
            if step.op == _SPLIT:
                shard = _shard_of_operand(case, answer, str(step.args[0]), position)
                if shard is None:
                    return ""
                values[step.result] = shard
            elif step.op == _JOIN:
                values[step.result] = values[str(step.args[0])]
            else:
                try:
                    values[step.result] = meaning(step, values)
                except (UndefinedValue, KeyError):
                    return ""
        got = seen.shards[position]
        allowed = [tolerance(OPS[step.op], seen.dtype) for step in inside]
        room = Tolerance(sum(one.rtol for one in allowed), sum(one.atol for one in allowed))
        if got is None or difference(pack(values[seen.name]), got, room) is not None:
            return ""
    names = ", ".join(step.result for step in inside)
    return (
        f"the steps {names} ran on the shard of each device by itself, between {_SPLIT} and"
        f" {_JOIN}, as the program says; every shard is what they make of it, so the framework did"
        " what it was asked, and the whole is another thing"
    )


def _shard_of_operand(case: Case, answer: Answer, name: str, position: int) -> Value | None:
    """The shard of an operand as the answer shows it, else as the question places it."""
    for one in answer.seen:
        if one.name == name and one.shards is not None:
            shard = one.shards[position]
            return None if shard is None else unpack(shard)
    given = next((one for one in case.question.inputs if one.name == name), None)
    if given is None:
        return None
    if given.per_device is not None:
        return unpack(given.per_device[position])
    if given.value is None or given.layout.partial:
        return None
    return cut_shards(mesh_of(case, name), given.layout, unpack(given.value))[position]
