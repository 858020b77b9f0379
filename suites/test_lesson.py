"""The DTensor lesson, number by number: see `cases/catalogue/lesson.toml`."""

from cases.model import Case
from suites.run import Judged, pass_or_fail


def test_lesson(case: Case, judged: Judged) -> None:
    """Both frameworks reproduce what the lesson prints."""
    pass_or_fail(case, judged)
