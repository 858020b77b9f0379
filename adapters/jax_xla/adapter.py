"""How is JAX asked? In a child of this process, with an XLA client of enough CPU devices.

Knows which module answers as which subject, and what no route here can do. The process is set up
before the first import of jax, which reads the environment once.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable

from adapters.answer import Answer, Done, End, Unsupported
from adapters.jax_xla.dry_run import ClientsBySize
from adapters.jax_xla.names import PROMISES
from adapters.protocol import VERSION, Adapter, Hello
from adapters.unsupported import CannotAnswer
from cases.model import Question


def connect(devices: int) -> Adapter:
    """A live JAX of ``devices`` CPU devices; jax must not be imported yet in this process."""
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["JAX_PLATFORMS"] = "cpu"
    # XLA reports every layout that it could not change efficiently on stderr; the counts show it.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import jax

    # NumPy and torch have 64-bit types; without this JAX would narrow them silently.
    jax.config.update("jax_enable_x64", True)
    # Unfiltered, so that a bare assertion is told by the function of JAX in which it failed.
    jax.config.update("jax_traceback_filtering", "off")
    # A program from the persistent cache is not compiled, and so has no dump to read.
    jax.config.update("jax_enable_compilation_cache", False)
    from jaxlib import version

    # What a question needs is imported before the first fork, and the client is made after it.
    from adapters.jax_xla import compat, explicit, jit, shard_map  # noqa: F401

    facts: tuple[str, ...] = (
        f"jaxlib {version.__version__}",
        f"{devices} host devices",
        compat.partitioner(),
    )
    if not compat.has("hlo_module_from_text"):
        facts += ("counts not checked against XLA's own parser of HLO text",)
    python = platform.python_version()
    pid = os.getpid()
    hello = Hello(VERSION, "jax", jax.__version__, python, facts, pid, promises=PROMISES)

    def make(count: int) -> Adapter:
        # XLA reads this when the client is made, which is in the child.
        count_flag = f"--xla_force_host_platform_device_count={count}"
        os.environ["XLA_FLAGS"] = f"{flags} {count_flag}".strip()
        return JaxAdapter(hello, count)

    return ClientsBySize(hello, devices, make)


class JaxAdapter:
    """JAX, live in this process until `close`."""

    def __init__(self, hello: Hello, devices: int) -> None:
        from adapters.jax_xla import explicit, jit, shard_map
        from adapters.jax_xla.answer_in_progress import AnswerInProgress
        from adapters.jax_xla.compiled_program import Compiler
        from adapters.reference.cheapest_plan import cheapest_plan
        from adapters.reference.implied_plan import implied_plan

        self._hello = hello
        self._devices = devices
        self._compiler = Compiler()
        self._answering = AnswerInProgress
        self._routes: dict[str, Callable[[Question, AnswerInProgress], None]] = {
            "jax/jit": lambda question, notes: jit.answer(self._compiler, question, notes),
            "jax/explicit": lambda question, notes: explicit.answer(
                self._compiler, question, notes
            ),
            "jax/shard_map:implied": lambda question, notes: shard_map.answer(
                self._compiler, question, notes, implied_plan
            ),
            "jax/shard_map:cheapest": lambda question, notes: shard_map.answer(
                self._compiler, question, notes, cheapest_plan
            ),
        }

    def hello(self) -> Hello:
        """This JAX: its release, and how many devices it has."""
        return self._hello

    def observe(self, question: Question, subject: str, seconds: float) -> Answer:
        """What JAX does with the question by the route called ``subject``.

        Cannot stop itself: only its process can be ended during a call into XLA. KeyError if there
        is no such route.
        """
        from adapters.jax_xla.attempt import RefusedByJax

        route = self._routes[subject]
        notes = self._answering(question)
        end: End = Done()
        try:
            if question.recipe is not None and subject != "jax/jit":
                raise CannotAnswer("a recipe is one program under jit")
            if (why := _beyond(question, self._devices)) is not None:
                raise CannotAnswer(why)
            route(question, notes)
        except RefusedByJax as stopped:
            end = stopped.end
        except CannotAnswer as error:
            end = Unsupported(error.why, error.place)
        return notes.finish(subject, end)

    def close(self) -> None:
        """Remove what was written; there is no other process."""
        self._compiler.close()


# Regions that torch needs to keep a sharded class dim sharded. JAX needs no region for that.
_NEEDLESS = ("loss_parallel",)


def _beyond(question: Question, devices: int) -> str | None:
    """Why no route can be asked this; None if one can."""
    if question.context not in (None, *_NEEDLESS):
        return f"JAX has no region {question.context}"
    if (wanted := question.devices) > devices:
        return f"{wanted} devices asked for, this worker has {devices}"
    return None
