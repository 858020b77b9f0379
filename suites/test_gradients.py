"""Gradients through every op: see `cases/catalogue/gradients.py`."""

from cases.model import Case
from suites.run import Judged, pass_or_fail


def test_gradients(case: Case, judged: Judged) -> None:
    """A gradient through an op on sharded operands is the right one."""
    pass_or_fail(case, judged)
