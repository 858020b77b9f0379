"""Where are dry runs made? In the live child, or in one whose XLA client has enough devices.

The routes are those of a run with data: they compile for shapes and shardings, and run nothing. A
client of thousands of devices starts for the first question that needs it, and is kept.
"""

from __future__ import annotations

from collections.abc import Callable

from adapters.answer import Answer, Unsupported
from adapters.forked_adapter import ForkedAdapter
from adapters.protocol import Adapter, Hello
from cases.model import Question

# A CPU client may have more devices, but a program for 2,049 is not compiled: "Multiprocess
# computations aren't implemented on the CPU backend".
MOST_DEVICES = 2048


class ClientsBySize:
    """Answers in a child of ``devices`` devices, and larger dry runs in another. See `Adapter`.

    ``make`` is called in a child with its number of devices, before it has an XLA client.
    """

    def __init__(self, hello: Hello, devices: int, make: Callable[[int], Adapter]):
        self._hello = hello
        self._make = make
        self._devices = devices
        self._live = ForkedAdapter(hello, lambda: make(devices))
        self._large: tuple[int, ForkedAdapter] | None = None

    def hello(self) -> Hello:
        """Which JAX this is."""
        return self._hello

    def observe(self, question: Question, subject: str, seconds: float) -> Answer:
        """The answer of a child that has the devices."""
        wanted = question.devices
        if question.mode == "real" or wanted <= self._devices:
            return self._live.observe(question, subject, seconds)
        if wanted > MOST_DEVICES:
            why = f"{wanted:,} devices asked for, JAX's CPU client has at most {MOST_DEVICES:,}"
            return Answer(question.id, subject, Unsupported(why))
        return self._of(wanted).observe(question, subject, seconds)

    def _of(self, wanted: int) -> ForkedAdapter:
        """A child with at least so many devices: a power of two, so that few clients are made."""
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
