"""How long do a framework's own calls take, with nothing of ours around them?

``python -m benchmarks.bare MODULE:FUNCTION JOBS``: FUNCTION takes a list of jobs, and returns a
function that runs jobs i to j. Everything that is no call of the framework is done before: reading
the jobs, and making lines, shardings and redistribution plans. The process prints "imported" and
"ready", then the seconds for each line "i j" of standard input. Knows no framework.
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
    """A question, and the subjects whose calls for it are measured."""

    question: Question
    subjects: tuple[str, ...]


def main(function: str, path: str) -> None:
    """Serve until standard input ends."""
    # Frameworks may print on standard output too.
    output = open(os.dup(1), "w", buffering=1)  # noqa: SIM115
    os.dup2(2, 1)
    module, _, name = function.partition(":")
    prepare = getattr(importlib.import_module(module), name)
    print("imported", file=output)
    run = prepare(msgspec.json.decode(Path(path).read_bytes(), type=list[Job]))
    # The loop must not pay for collecting any of this.
    gc.collect()
    gc.freeze()
    print("ready", file=output)
    for line in sys.stdin:
        first, last = map(int, line.split())
        started = time.perf_counter()
        run(first, last)
        print(time.perf_counter() - started, file=output)


if __name__ == "__main__":
    main(*sys.argv[1:])
