"""Gradients through every op: see `cases/catalogue/gradients.py`."""

from cases.model import Case
from suites.run import Judged, settle


def test_gradients(case: Case, judged: Judged) -> None:
    """A gradient through an op on sharded operands is the right one."""
    settle(case, judged)
