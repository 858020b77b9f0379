"""Is what JAX raises told from what this suite cannot ask?"""

from __future__ import annotations

import pytest

from adapters.jax_xla.attempt import RefusedByJax, attempt
from adapters.unsupported import CannotAnswer


def test_what_is_raised_in_a_call_is_a_refusal() -> None:
    """With its type, its text and the step."""

    def call() -> None:
        raise ValueError("no such axis")

    with pytest.raises(RefusedByJax) as caught:
        attempt("y", call)
    end = caught.value.end
    assert (end.error, end.line, end.step) == ("ValueError", "no such axis", "y")


def test_what_a_release_lacks_is_no_refusal() -> None:
    """A name of a later release may be missed in the middle of a call into JAX."""

    def call() -> None:
        raise CannotAnswer("jax 0.4.26 has no jax.sharding.reshard", "y")

    with pytest.raises(CannotAnswer):
        attempt("y", call)
