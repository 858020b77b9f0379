"""Contractions of sharded operands: see `cases/catalogue/contraction.py`."""

from cases.model import Case
from suites.run import Judged, pass_or_fail


def test_contraction(case: Case, judged: Judged) -> None:
    """A contraction gives the right product, and fires what its layouts imply."""
    pass_or_fail(case, judged)
