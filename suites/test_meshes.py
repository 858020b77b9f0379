"""Derived meshes, tensors on them and moves between them: see `cases/catalogue/meshes.toml`."""

from cases.model import Case
from suites.run import Judged, pass_or_fail


def test_meshes(case: Case, judged: Judged) -> None:
    """Every device sees the same of a derived mesh in both frameworks; a wrong step is refused."""
    pass_or_fail(case, judged)
