"""Every op under every placement of its operands: see `cases/catalogue/operators.py`."""

from cases.model import Case
from suites.run import Judged, pass_or_fail


def test_operators(case: Case, judged: Judged) -> None:
    """An op on sharded operands gives the right result, and fires what its layouts imply."""
    pass_or_fail(case, judged)
