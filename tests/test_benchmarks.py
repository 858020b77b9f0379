"""Does every part of the benchmarks still run? A small sample of each, whose times say nothing."""

from __future__ import annotations

import pytest

from benchmarks import processor
from benchmarks.run import PARTS, Extent

SAMPLE = Extent(cases=1, repeats=1, suite="suites/test_lesson.py", families=("lesson",))


@pytest.mark.parametrize("part", PARTS)
def test_every_part_measures_something(part: str) -> None:
    """Each row has a figure for the suite, and one for the bare calls where there are such."""
    rows = list(PARTS[part](SAMPLE))
    assert rows
    for row in rows:
        assert row.ours[0].isdigit(), row
        assert row.goal, row
        if row.ratio:
            assert row.bare[0].isdigit(), row


def test_the_processor_time_of_a_family_is_told() -> None:
    """Of each framework and of judging, with a line for all families."""
    found = processor.measure("lesson")
    assert all(seconds > 0 for seconds in (*found.frameworks.values(), found.judging))
    head, _, row, whole = processor.format_table([found])
    assert head == "| family | cases | torch | jax | judging |"
    assert row.startswith("| lesson | ")
    assert whole == row.replace("lesson", "all")
