"""A pytest plugin (``-p tests.toys.third``) that adds a third framework: one registry line."""

from adapters.registry import FRAMEWORKS, Framework

FRAMEWORKS["toy"] = Framework("tests.toys.plain", ("toy",))
