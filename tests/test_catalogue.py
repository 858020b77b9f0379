"""Does the catalogue look at everything? Every op, every report, every kind of fault."""

from __future__ import annotations

from fnmatch import fnmatchcase

from cases.catalogue import catalogue, family
from cases.catalogue.fault_kinds import FAULT_KINDS
from cases.catalogue.operators import placements, tensors
from cases.catalogue.samples import SAMPLES, operand_values
from cases.model import slug
from cases.notation import to_placements
from cases.ops import OPS

IDS = [slug(case.id) for case in catalogue() if case.family != "public"]


def test_every_op_is_tried() -> None:
    """Each row of the vocabulary stands in some program."""
    assert {step.op for case in catalogue() for step in case.question.steps} == set(OPS)


def test_every_op_meets_every_placement_by_default() -> None:
    """Some operand of each sample, in each placement that one can have, on an axis of 4."""
    met: dict[str, set[str]] = {}
    for case in family("operators"):
        name, there, _ = case.id.partition("-x4-")
        if there:
            for given in case.question.inputs:
                met.setdefault(name, set()).update(to_placements(given.layout, case.question.mesh))
    for sample in (one for samples in SAMPLES.values() for one in samples):
        wanted = {place for one in tensors(sample) for place in placements(one)} - {"R"}
        assert wanted <= met[sample.name], sample.name


def test_samples_have_distinct_values_away_from_zero() -> None:
    """So that a mistake shows: of "small" and "other" operands no two elements are alike."""
    for sample in (one for samples in SAMPLES.values() for one in samples):
        small, other = (
            {
                float(x)
                for one in tensors(sample)
                if one.kind == kind
                for x in operand_values(one).flat
            }
            for kind in ("small", "other")
        )
        assert 0 not in small | other
        assert not small & other, sample.name
        for one in tensors(sample):
            if one.kind in ("small", "other", "unit", "share", "positive"):
                assert (
                    len({float(x) for x in operand_values(one).flat}) == operand_values(one).size
                ), sample.name


def test_every_public_report_is_of_a_kind() -> None:
    """And every report that a kind names is there."""
    named = [report for kind in FAULT_KINDS.values() for report in kind.reports]
    assert sorted(named) == sorted(case.id for case in family("public"))


def test_every_kind_has_siblings() -> None:
    """Cases of its own or of other families; each pattern names one."""
    tags = {tag for case in family("siblings") for tag in case.tags}
    assert tags <= set(FAULT_KINDS)
    for name, kind in FAULT_KINDS.items():
        assert name in tags or kind.patterns, name
        for pattern in kind.patterns:
            assert any(fnmatchcase(id, pattern) for id in IDS), (name, pattern)


def test_a_covering_sample_is_part_of_all_combinations() -> None:
    """What runs by default runs with ``--exhaustive`` too."""
    for name in ("operators", "gradients"):
        every = {case.id for case in family(name, exhaustive=True)}
        assert {case.id for case in family(name)} <= every
        assert len(every) > 4 * len(family(name))
