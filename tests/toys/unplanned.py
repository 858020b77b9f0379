"""A pytest plugin, and the torch adapter with plans that are wrong in the way that TOY_WRONG names.

The release is the real one's, so that its record is what the plans are held against.
"""

from __future__ import annotations

import os

import msgspec

from adapters.registry import FRAMEWORKS

FRAMEWORKS["torch"] = msgspec.structs.replace(FRAMEWORKS["torch"], adapter=__name__)


def connect(devices: int) -> object:
    """The adapter with the mistake, which its child has from the fork on."""
    from adapters.torch_dtensor import adapter, fake_world

    match os.environ["TOY_WRONG"]:
        case "nothing counted":
            fake_world.FakeRecorder._note = lambda self, name, args: None  # type: ignore[method-assign]
        case "bytes doubled":
            single = fake_world.nbytes
            fake_world.nbytes = lambda operand: 2 * single(operand)
    return adapter.connect(devices)
