"""Cases of a user's own, given by ``--cases``."""

from cases.model import Case
from suites.run import Judged, pass_or_fail


def test_cases(case: Case, judged: Judged) -> None:
    """Both frameworks agree on the case with one another and with the reference."""
    pass_or_fail(case, judged)
