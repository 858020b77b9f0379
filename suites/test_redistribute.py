"""Changes of layout: see `cases/catalogue/redistribute.py`."""

from cases.model import Case
from suites.run import Judged, pass_or_fail


def test_redistribute(case: Case, judged: Judged) -> None:
    """A change of layout gives the same shards and fires what it implies."""
    pass_or_fail(case, judged)
