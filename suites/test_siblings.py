"""The rest of the kind of a public report: see `cases/catalogue/siblings.py`."""

from cases.model import Case
from suites.run import Judged, pass_or_fail


def test_siblings(case: Case, judged: Judged) -> None:
    """What a public report shows of one op or size is right in its whole kind."""
    pass_or_fail(case, judged)
