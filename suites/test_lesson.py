"""The DTensor lesson, number by number: see `cases/catalogue/lesson.toml`."""

from cases.model import Case
from suites.run import Judged, settle


def test_lesson(case: Case, judged: Judged) -> None:
    """Both frameworks reproduce what the lesson prints."""
    settle(case, judged)
