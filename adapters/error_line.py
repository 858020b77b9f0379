"""What does an exception say in one line?

Knows no framework, nor what a line means; `scrub` removes words that are chance.
"""

from __future__ import annotations

import traceback


def error_line(error: BaseException) -> str:
    """The first line of its text that is not empty; for a bare assertion, where it failed."""
    lines = filter(None, map(str.strip, str(error).splitlines()))
    if line := next(lines, ""):
        return line
    frames = traceback.extract_tb(error.__traceback__)
    return f"(no text; raised in {frames[-1].name})" if frames else "(no text)"
