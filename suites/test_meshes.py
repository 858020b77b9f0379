"""Derived meshes, tensors on them and moves between them: see `cases/catalogue/meshes.toml`."""

from cases.model import Case
from suites.run import Judged, settle


def test_meshes(case: Case, judged: Judged) -> None:
    """Every device sees the same of a derived mesh in both frameworks; a wrong step is refused."""
    settle(case, judged)
