"""A pytest plugin (``-p tests.toys.stand_in``) that puts the toy `wrong` in torch's place."""

from adapters.registry import FRAMEWORKS, Framework

FRAMEWORKS["torch"] = Framework("tests.toys.wrong", ("torch",))
