"""Which question is a case's plan? The same without its data, for `pytest --plan`.

Knows nothing of what answers it.
"""

from __future__ import annotations

import msgspec

from cases.model import Case, Input


def as_dry_run(case: Case) -> Case:
    """The case in mode plan: the same question with no data, and of what is right what needs none.

    An input that was given device by device has an empty ``per_device``. A case that is a plan
    already is given back.
    """
    if case.question.mode == "plan":
        return case
    question = msgspec.structs.replace(
        case.question, mode="plan", inputs=tuple(map(_without_data, case.question.inputs))
    )
    expectation = msgspec.structs.replace(case.expectation, right={}, shards={}, offsets={})
    return msgspec.structs.replace(case, question=question, expectation=expectation)


def _without_data(given: Input) -> Input:
    given_by_device = None if given.per_device is None else ()
    return msgspec.structs.replace(given, value=None, per_device=given_by_device)
