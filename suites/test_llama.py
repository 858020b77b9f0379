"""Layers of Llama 3 on published meshes, planned: see `cases/catalogue/llama.toml`."""

from cases.model import Case
from suites.run import Judged, pass_or_fail


def test_llama(case: Case, judged: Judged) -> None:
    """A planned step lies and pays as its recipe has it, on as many devices as it takes."""
    pass_or_fail(case, judged)
