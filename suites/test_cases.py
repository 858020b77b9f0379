"""Cases of a user's own, given by ``--cases``."""

from cases.model import Case
from suites.run import Judged, settle


def test_cases(case: Case, judged: Judged) -> None:
    """Both frameworks agree on the case with one another and with the reference."""
    settle(case, judged)
