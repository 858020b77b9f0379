"""Meshes larger than the machine, with real models' shapes: `cases/catalogue/dry_runs.toml`."""

from cases.model import Case
from suites.run import Judged, pass_or_fail


def test_dry_runs(case: Case, judged: Judged) -> None:
    """Both frameworks plan what the case says, with no data."""
    pass_or_fail(case, judged)
