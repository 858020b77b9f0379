"""Does the catalogue look at everything? Every op, every report, every kind of fault."""

from __future__ import annotations

from fnmatch import fnmatchcase

from cases.catalogue import catalogue, family
from cases.catalogue.kinds import KINDS
from cases.catalogue.operators import placements, tensors
from cases.catalogue.samples import SAMPLES, values
from cases.model import slug
from cases.ops import OPS

IDS = [slug(case.id) for case in catalogue() if case.family != "public"]


def test_every_op_is_tried() -> None:
    """Each row of the vocabulary stands in some program."""
    assert {step.op for case in catalogue() for step in case.question.steps} == set(OPS)


def test_every_op_meets_every_placement_by_default() -> None:
    """Each operand of each sample, in each placement it can have, on an axis of 4."""
    met = {
        (case.id.partition("-x4-")[0], given.name, given.layout)
        for case in family("operators")
        if len(case.question.mesh.axes) == 1
        for given in case.question.inputs
    }
    for sample in (one for samples in SAMPLES.values() for one in samples):
        for place in {place for one in tensors(sample) for place in placements(one)} - {"R"}:
            assert any(name == sample.name for name, _, _ in met), sample.name
        own = {(given, layout) for name, given, layout in met if name == sample.name}
        wanted = sum(len(placements(one)) - 1 for one in tensors(sample))
        assert len({pair for pair in own if pair[1].partial or any(pair[1].dims)}) >= min(
            wanted, len(tensors(sample))
        ), sample.name


def test_samples_have_distinct_values_away_from_zero() -> None:
    """So that a mistake shows: of "small" and "other" operands no two elements are alike."""
    for sample in (one for samples in SAMPLES.values() for one in samples):
        small, other = (
            {float(x) for one in tensors(sample) if one.kind == kind for x in values(one).flat}
            for kind in ("small", "other")
        )
        assert 0 not in small | other
        assert not small & other, sample.name
        for one in tensors(sample):
            if one.kind in ("small", "other", "unit", "share", "positive"):
                assert len({float(x) for x in values(one).flat}) == values(one).size, sample.name


def test_every_public_report_is_of_a_kind() -> None:
    """And every report that a kind names is there."""
    named = [report for kind in KINDS.values() for report in kind.reports]
    assert sorted(named) == sorted(case.id for case in family("public"))


def test_every_kind_has_siblings() -> None:
    """Cases of its own or of other families; each pattern names one."""
    tags = {tag for case in family("siblings") for tag in case.tags}
    assert tags <= set(KINDS)
    for name, kind in KINDS.items():
        assert name in tags or kind.patterns, name
        for pattern in kind.patterns:
            assert any(fnmatchcase(id, pattern) for id in IDS), (name, pattern)


def test_a_covering_sample_is_part_of_all_combinations() -> None:
    """What runs by default runs with ``--exhaustive`` too."""
    for name in ("operators", "gradients"):
        every = {case.id for case in family(name, exhaustive=True)}
        assert {case.id for case in family(name)} <= every
        assert len(every) > 4 * len(family(name))
