"""Which steps must a compiler keep? Of equal steps one, and only steps that a result needs.

Works on the question alone.
"""

from __future__ import annotations

import msgspec

from cases.model import Question, Step


def needed_steps(question: Question) -> tuple[Step, ...]:
    """The steps that the checked results need, in program order, with equal steps merged.

    Two steps are equal if they have the same op, parameters, layout asked for, and equal arguments.
    The later takes the name of the earlier.
    """
    renamed: dict[str, str] = {}
    first: dict[bytes, str] = {}
    kept: list[Step] = []
    for step in question.steps:
        args = tuple(renamed.get(arg, arg) if isinstance(arg, str) else arg for arg in step.args)
        merged = msgspec.structs.replace(step, args=args)
        key = msgspec.json.encode((step.op, args, step.params, step.to), order="deterministic")
        if key in first:
            renamed[step.result] = first[key]
        else:
            first[key] = step.result
            kept.append(merged)
    needed = {renamed.get(name, name) for name in question.check}
    for step in reversed(kept):
        if step.result in needed:
            needed |= {*step.operands}
    return tuple(step for step in kept if step.result in needed)
