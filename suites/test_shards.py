"""Local shards: see `cases/catalogue/local_shards.py`."""

from cases.model import Case
from suites.run import Judged, pass_or_fail


def test_shards(case: Case, judged: Judged) -> None:
    """Every device holds the same part in both frameworks."""
    pass_or_fail(case, judged)
