"""Where does a process stand that does not answer? Its stack, without the frames of this suite.

Reads what `faulthandler` writes. Does not know why it stands there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

# A frame, and what stands before those of a thread.
_FRAME = re.compile(r'  File "(?P<file>.+)", line \d+ in .+')
_THREAD = re.compile(
    r"(?:Stack|(?:Current thread|Thread) 0x[0-9a-f]+.*) \(most recent call first\):"
)

# What runs in a worker of this suite. A user's own files may lie anywhere else.
_ROOT = Path(__file__).resolve().parent.parent
_OURS = tuple(f"{_ROOT / folder}/" for folder in ("adapters", "cases", "suites"))

# What is said of a stack that has no other frames.
ONLY_OWN_FRAMES = "(in the suite's own code)"


def remove_own_frames(text: str) -> str:
    """The frames of a framework or a user in a stack, in its order.

    Those below the suite's own, which started the process, are left out with them; and so is the
    address of a thread that is the only one, so that processes at one place have one text. What
    is no stack is left as it is.
    """
    if _THREAD.search(text) is None:
        return text
    before: list[str] = []
    threads: list[list[str]] = []
    for line in text.splitlines():
        if _THREAD.fullmatch(line):
            threads.append([line])
        else:
            (threads[-1] if threads else before).append(line)
    kept = [[head, *found] for head, *frames in threads if (found := _theirs(frames))]
    if not kept:
        return "\n".join([*before, ONLY_OWN_FRAMES])
    if len(kept) == 1:
        kept = [kept[0][1:]]
    return "\n".join([*before, *(line for lines in kept for line in lines)])


def _theirs(frames: Sequence[str]) -> list[str]:
    ours = [
        at
        for at, line in enumerate(frames)
        if (frame := _FRAME.fullmatch(line)) and frame["file"].startswith(_OURS)
    ]
    below = [line for line in frames[ours[-1] :] if not _FRAME.fullmatch(line)] if ours else []
    above = frames[: ours[-1]] if ours else frames
    return [line for at, line in enumerate(above) if at not in ours] + [
        line for line in below if line
    ]
