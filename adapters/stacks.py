"""Where is a process that does not answer? Its stack, without the frames of this suite.

Reads what `faulthandler` writes. Does not know why the process is there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

# A frame, and the line before the frames of a thread.
_FRAME = re.compile(r'  File "(?P<file>.+)", line \d+ in .+')
_THREAD = re.compile(
    r"(?:Stack|(?:Current thread|Thread) 0x[0-9a-f]+.*) \(most recent call first\):"
)

# The folders of this suite that run in a worker. A user's own files may lie anywhere else.
_ROOT = Path(__file__).resolve().parent.parent
_OURS = tuple(f"{_ROOT / folder}/" for folder in ("adapters", "cases", "suites"))

# The text for a stack that has no other frames.
ONLY_OWN_FRAMES = "(in the suite's own code)"


def remove_own_frames(text: str) -> str:
    """The frames of a framework or a user in a stack, in its order.

    The suite's own frames are left out, with those below them, which started the process. If there
    is one thread only, its address is left out too, so that processes at the same place have the
    same text. A text that is no stack is returned as it is.
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
