"""What is the dry run of a case? The same question without its data, for `pytest --dry-run`.

Refuses to know who answers it.
"""

from __future__ import annotations

import msgspec

from cases.model import Case, Input


def as_dry_run(case: Case) -> Case:
    """The case without data in its inputs and in its expectation.

    A ``per_device`` becomes empty. A case that is already a dry run is returned unchanged.
    """
    if case.question.mode == "dry run":
        return case
    question = msgspec.structs.replace(
        case.question, mode="dry run", inputs=tuple(map(_without_data, case.question.inputs))
    )
    expectation = msgspec.structs.replace(case.expectation, right={}, shards={}, offsets={})
    return msgspec.structs.replace(case, question=question, expectation=expectation)


def _without_data(given: Input) -> Input:
    per_device = None if given.per_device is None else ()
    return msgspec.structs.replace(given, value=None, per_device=per_device)
