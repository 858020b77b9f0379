"""An error is told in one line, by its text or else by the function that it failed in."""

from __future__ import annotations

import pytest

from adapters.error_line import error_line


def _fails_bare() -> None:
    raise AssertionError


def test_the_first_line_that_holds_text_is_told() -> None:
    assert error_line(ValueError("\n\n  sizes differ: 3, 4 \nand more")) == "sizes differ: 3, 4"


def test_a_bare_assertion_is_told_by_the_function_that_it_failed_in() -> None:
    with pytest.raises(AssertionError) as caught:
        _fails_bare()
    assert error_line(caught.value) == "(no text; raised in _fails_bare)"


def test_an_error_that_was_never_raised_has_no_place() -> None:
    assert error_line(KeyboardInterrupt()) == "(no text)"
