"""A third framework, whole: an adapter, a listing of its interface, and stand-alone scripts.

A pytest plugin (``-p tests.toys.third``) that adds its row to the registry.
"""

from adapters.registry import FRAMEWORKS, Framework

FRAMEWORKS["toy"] = Framework(
    adapter="tests.toys.third.adapter",
    subjects=("toy",),
    interface="tests.toys.third.interface",
    script="tests.toys.third.script",
)
