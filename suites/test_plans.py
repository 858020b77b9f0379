"""Meshes larger than the machine, with the shapes of real models: `cases/catalogue/plans.toml`."""

from cases.model import Case
from suites.run import Judged, settle


def test_plans(case: Case, judged: Judged) -> None:
    """Both frameworks plan what the case says, with no data."""
    settle(case, judged)
