"""How does a framework answer in its own process? Reads questions and writes answers, no more.

``python -m adapters.worker MODULE DEVICES READ_FD WRITE_FD``. It has one thread on purpose: the
torch adapter forks its ranks from this process, and a process with threads must not be forked.
Knows no framework by name.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import signal
import sys


def serve(module: str, devices: int, reading: int, writing: int) -> None:
    """Answer until the run closes its end of the pipe.

    Whatever ``module`` raises ends the process; the run reads it from what the process printed.
    """
    # SIGUSR1 shows where this process is, on its stderr, even inside a C++ call.
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    # Only the run decides when its workers end, even if they share its terminal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Programs that the adapter starts do not get the pipes. Processes that it forks still have
    # them.
    for fd in (reading, writing):
        os.set_inheritable(fd, False)
    # NumPy's BLAS starts its threads when it is imported, and must start none before a fork.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    # Imported here, so that an interpreter that is too old gets as far as saying so.
    from adapters import protocol

    # Left open to the end: the pipe closes when this process has written its last words.
    asks, answers = open(reading, "rb"), open(writing, "wb")  # noqa: SIM115
    found = importlib.import_module(module)
    if not hasattr(found, "connect"):
        sys.exit(f"found {module} without connect, wanted a function connect(devices)")
    adapter = found.connect(devices)
    if lacking := [one for one in ("hello", "observe", "close") if not hasattr(adapter, one)]:
        sys.exit(f"found an adapter without {', '.join(lacking)}, wanted adapters.protocol.Adapter")
    try:
        protocol.write(answers, adapter.hello())
        while (ask := protocol.read_ask(asks)) is not None:
            for subject in ask.subjects:
                protocol.write(answers, adapter.observe(ask.question, subject, ask.seconds))
    except BrokenPipeError:
        pass  # The run is gone.
    finally:
        adapter.close()


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036
        sys.exit(f"found Python {sys.version.split()[0]}, wanted 3.11 or later")
    serve(sys.argv[1], *map(int, sys.argv[2:5]))
