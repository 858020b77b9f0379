"""How is JAX set up, and which route answers for which subject?

A child of this process has the XLA client with the CPU devices. `connect` sets the environment
before the first import of jax, which reads it once. This module also knows what no route can do.
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
    """A live JAX with ``devices`` CPU devices. jax must not be imported yet in this process."""
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["JAX_PLATFORMS"] = "cpu"
    # XLA warns on stderr about inefficient reshards. The counted collectives show these anyway.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import jax

    # NumPy and torch have 64-bit dtypes. Without this, JAX silently narrows them.
    jax.config.update("jax_enable_x64", True)
    # An assertion without a message is reported with the function that raised it, inside JAX.
    jax.config.update("jax_traceback_filtering", "off")
    # A program from the persistent cache is not compiled, so it has no dump to read.
    jax.config.update("jax_enable_compilation_cache", False)
    from jaxlib import version

    # All modules are imported before the first fork. The XLA client is created after it.
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
        # XLA reads this flag when the child creates the client.
        count_flag = f"--xla_force_host_platform_device_count={count}"
        os.environ["XLA_FLAGS"] = f"{flags} {count_flag}".strip()
        return JaxAdapter(hello, count)

    return ClientsBySize(hello, devices, make)


class JaxAdapter:
    """JAX in this process until `close`. See `adapters.protocol.Adapter`."""

    def __init__(self, hello: Hello, devices: int) -> None:
        from adapters.jax_xla import explicit, jit, shard_map
        from adapters.jax_xla.answer_in_progress import AnswerInProgress
        from adapters.jax_xla.compiled_program import Compiler
        from adapters.reference.cheapest_plan import cheapest_plan
        from adapters.reference.implied_plan import implied_plan

        self._hello = hello
        self._devices = devices
        self._compiler = Compiler()
        self._new_answer = AnswerInProgress
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
        """The release of JAX and its facts."""
        return self._hello

    def observe(self, question: Question, subject: str, seconds: float) -> Answer:
        """The answer of JAX by the route ``subject``. KeyError if there is no such route.

        A call into XLA cannot be interrupted. The caller must kill this process after ``seconds``.
        """
        from adapters.jax_xla.attempt import RefusedByJax

        route = self._routes[subject]
        notes = self._new_answer(question)
        end: End = Done()
        try:
            if question.recipe is not None and subject != "jax/jit":
                raise CannotAnswer("a recipe is one program under jit")
            if (why := _why_unsupported(question, self._devices)) is not None:
                raise CannotAnswer(why)
            route(question, notes)
        except RefusedByJax as stopped:
            end = stopped.end
        except CannotAnswer as error:
            end = Unsupported(error.why, error.place)
        return notes.finish(subject, end)

    def close(self) -> None:
        """Remove the dump directory."""
        self._compiler.close()


# Contexts that JAX does not need. torch needs this one to keep a sharded class dim sharded.
_NEEDLESS = ("loss_parallel",)


def _why_unsupported(question: Question, devices: int) -> str | None:
    """The reason why no route can answer a question. None if a route can."""
    if question.context not in (None, *_NEEDLESS):
        return f"JAX has no region {question.context}"
    if (wanted := question.devices) > devices:
        return f"{wanted} devices asked for, this worker has {devices}"
    return None
