"""Random numbers under sharding: see `cases/catalogue/randomness.py`."""

from cases.model import Case
from suites.run import Judged, pass_or_fail


def test_random(case: Case, judged: Judged) -> None:
    """A draw depends on its seed alone, and no two devices that hold different parts share one."""
    pass_or_fail(case, judged)
