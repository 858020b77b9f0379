"""How long do a framework's own calls take, with nothing of ours around them?

``python -m benchmarks.bare MODULE:FUNCTION JOBS``, where FUNCTION makes of a list of jobs
what runs jobs i to j of them. Everything that is not a framework call comes before: reading
the jobs, the lines, shardings and plans. Says "imported" and "ready" on standard output, then
for each line "i j" of standard input the seconds taken. Knows no framework.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import time
from pathlib import Path

import msgspec

from cases.model import Question


class Job(msgspec.Struct, frozen=True):
    """A question, and the subjects whose calls for it are to be made."""

    question: Question
    subjects: tuple[str, ...]


def main(function: str, path: str) -> None:
    """Serve until standard input ends."""
    # Frameworks print on descriptor 1 too.
    said = open(os.dup(1), "w", buffering=1)  # noqa: SIM115
    os.dup2(2, 1)
    module, _, name = function.partition(":")
    prepare = getattr(importlib.import_module(module), name)
    print("imported", file=said)
    run = prepare(msgspec.json.decode(Path(path).read_bytes(), type=list[Job]))
    # All this is to cost the loop nothing.
    gc.collect()
    gc.freeze()
    print("ready", file=said)
    for line in sys.stdin:
        first, last = map(int, line.split())
        started = time.perf_counter()
        run(first, last)
        print(time.perf_counter() - started, file=said)


if __name__ == "__main__":
    main(*sys.argv[1:])
