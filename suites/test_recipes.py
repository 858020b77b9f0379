"""Training steps of small models under parallel plans: see `cases/recipes`."""

from cases.model import Case
from suites.run import Judged, pass_or_fail


def test_recipes(case: Case, judged: Judged) -> None:
    """A sharded step is the unsharded one, laid out and paid for as its plan has it."""
    pass_or_fail(case, judged)
