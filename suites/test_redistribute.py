"""Changes of layout: see `cases/catalogue/redistribute.py`."""

from cases.model import Case
from suites.run import Judged, settle


def test_redistribute(case: Case, judged: Judged) -> None:
    """A change of layout gives the same shards and fires what it implies."""
    settle(case, judged)
