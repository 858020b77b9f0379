"""A pytest plugin (``-p tests.toys.stand_in``) that puts the toy `wrong` in torch's place."""

import msgspec

from adapters.registry import FRAMEWORKS

FRAMEWORKS["torch"] = msgspec.structs.replace(FRAMEWORKS["torch"], adapter="tests.toys.wrong")
