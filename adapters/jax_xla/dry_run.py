"""Which process answers a dry run? The live one, or one whose XLA client has more devices.

A dry run compiles the routes of mode real for shapes and shardings, and runs nothing. A client with
thousands of devices is started when a question needs it, and is kept for later questions.
"""

from __future__ import annotations

from collections.abc import Callable

from adapters.answer import Answer, Unsupported
from adapters.forked_adapter import ForkedAdapter
from adapters.protocol import Adapter, Hello
from cases.model import Question

# A CPU client may have more devices, but it does not compile a program for 2,049: "Multiprocess
# computations aren't implemented on the CPU backend".
MOST_DEVICES = 2048


class ClientsBySize:
    """Answers in a child process with ``devices`` devices, or in a larger one for larger dry runs.

    ``make``: called in a child with the number of its devices, before it has an XLA client.
    """

    def __init__(self, hello: Hello, devices: int, make: Callable[[int], Adapter]):
        self._hello = hello
        self._make = make
        self._devices = devices
        self._live = ForkedAdapter(hello, lambda: make(devices))
        self._large: tuple[int, ForkedAdapter] | None = None

    def hello(self) -> Hello:
        """The release of JAX and its facts."""
        return self._hello

    def observe(self, question: Question, subject: str, seconds: float) -> Answer:
        """The answer of a child process that has enough devices."""
        wanted = question.devices
        if question.mode == "real" or wanted <= self._devices:
            return self._live.observe(question, subject, seconds)
        if wanted > MOST_DEVICES:
            why = f"{wanted:,} devices asked for, JAX's CPU client has at most {MOST_DEVICES:,}"
            return Answer(question.id, subject, Unsupported(why))
        return self._large_child(wanted).observe(question, subject, seconds)

    def _large_child(self, wanted: int) -> ForkedAdapter:
        """A child with at least ``wanted`` devices. A power of two, so that few are started."""
        if self._large is None or self._large[0] < wanted:
            if self._large is not None:
                self._large[1].close()
            count = 1 << (wanted - 1).bit_length()
            self._large = count, ForkedAdapter(self._hello, lambda: self._make(count))
        return self._large[1]

    def close(self) -> None:
        """End every child."""
        self._live.close()
        if self._large is not None:
            self._large[1].close()
