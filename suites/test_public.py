"""Public bug reports as cases: see `cases/catalogue/public/`."""

from cases.model import Case
from suites.run import Judged, pass_or_fail


def test_public(case: Case, judged: Judged) -> None:
    """A public report's program gives the right result, in both frameworks."""
    pass_or_fail(case, judged)
