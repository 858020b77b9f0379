"""How does a framework answer in its own process? Reads questions, writes answers, no more.

``python -m adapters.worker MODULE DEVICES READ_FD WRITE_FD``. Single-threaded on purpose:
the torch adapter forks its ranks from this process, and a process with threads must not be
forked. Knows no framework by name.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import signal
import sys

from adapters import protocol


def serve(module: str, devices: int, reading: int, writing: int) -> None:
    """Answer until the run closes its end of the pipe."""
    # SIGUSR1 shows where this process is, on its stderr, even inside a C++ call.
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    # Ctrl-C goes to the whole process group; the run decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for fd in (reading, writing):
        os.set_inheritable(fd, False)
    adapter = importlib.import_module(module).connect(devices)
    try:
        with open(reading, "rb") as asks, open(writing, "wb") as answers:
            protocol.write(answers, adapter.hello())
            while (ask := protocol.read_from_run(asks)) is not None:
                for subject in ask.subjects:
                    protocol.write(answers, adapter.observe(ask.question, subject, ask.seconds))
    except BrokenPipeError:
        pass
    finally:
        adapter.close()


if __name__ == "__main__":
    serve(sys.argv[1], *map(int, sys.argv[2:5]))
