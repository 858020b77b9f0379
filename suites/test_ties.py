"""Equal elements and halves: see `cases/catalogue/ties.toml`."""

from cases.model import Case
from suites.run import Judged, pass_or_fail


def test_ties(case: Case, judged: Judged) -> None:
    """Of equals the first counts, and halves go to the even neighbour."""
    pass_or_fail(case, judged)
