"""Every op under every placement of its operands: see `cases/catalogue/operators.py`."""

from cases.model import Case
from suites.run import Judged, settle


def test_operators(case: Case, judged: Judged) -> None:
    """An op on sharded operands gives the right result, and fires what its layouts imply."""
    settle(case, judged)
