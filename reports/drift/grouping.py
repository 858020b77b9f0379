"""Which changes are similar? They become one finding, the gravest finding first.

Every change belongs to exactly one finding. Knows no record and no page.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping

from cases.model import Case
from reports.drift.model import CHANGE_KINDS, CORRECTNESS_CHANGES, Change, DriftFinding, Upgrade

# All ops of a family are dispatched in the same way, and change together.
_BY_FAMILY = ("value", "layout", "count")
# A message names its ops where they matter, a public name may stand in several places, and a
# rounding is not interesting op by op.
_BY_PATTERN = ("rounding", "memory", "refusal", "support", "name", "signature")


def group_changes(border: Upgrade, cases: Mapping[str, Case]) -> tuple[DriftFinding, ...]:
    """The findings of one upgrade. ``cases``: the catalogue, by id."""
    grouped: dict[tuple[str, ...], list[Change]] = defaultdict(list)
    for change in border.changes:
        grouped[_key(change)].append(change)
    found = []
    for key, changes in grouped.items():
        first = changes[0]
        ordered = sorted(
            changes,
            key=lambda one: (
                case_size(cases.get(one.case)),
                one.case.count("."),
                one.case,
                one.step,
            ),
        )
        text = "\n".join((border.framework, border.older, border.newer, *key))
        found.append(
            DriftFinding(
                hashlib.sha256(text.encode()).hexdigest()[:8],
                border.framework,
                border.older,
                border.newer,
                first.kind,
                first.subject,
                first.pattern,
                tuple(sorted({change.where for change in changes})),
                tuple(ordered),
            )
        )
    return tuple(sorted(found, key=severity_order))


def _key(change: Change) -> tuple[str, ...]:
    where = change.where
    if change.kind in _BY_FAMILY:
        where = change.family
    elif change.kind in _BY_PATTERN or (change.kind == "default" and change.pattern):
        where = ""
    silent = "silent" if change.silent else ""
    return change.kind, change.subject, where, change.pattern, change.turn, silent


def severity_order(finding: DriftFinding) -> tuple[object, ...]:
    """Sorts findings: by kind, silent ones first, then what breaks most, then by how many cases."""
    first = finding.smallest
    return (
        CHANGE_KINDS.index(finding.kind), not first.silent, CORRECTNESS_CHANGES.index(first.turn),
        first.weight, -len(finding.cases), finding.subject, finding.pattern, finding.id,
    )  # fmt: skip


def case_size(case: Case | None) -> tuple[int, int, int]:
    """Sorts cases by devices, steps and elements of the inputs; a public name has none."""
    if case is None:
        return 0, 0, 0
    question = case.question
    elements = sum(math.prod(given.shape) for given in question.inputs)
    return question.mesh.size, len(question.steps), elements
