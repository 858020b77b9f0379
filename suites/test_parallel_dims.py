"""The meshes of a training framework: see `cases/catalogue/parallel_dims.py`."""

from cases.model import Case
from suites.run import Judged, pass_or_fail


def test_parallel_dims(case: Case, judged: Judged) -> None:
    """Every view of one world, and weights laid out on it, are the same in both frameworks."""
    pass_or_fail(case, judged)
