"""What do a run and its workers say to one another? Frames of JSON over two private pipes.

A worker is one process with one adapter: it says Hello, then answers each Ask with one Answer per
subject, in the order asked. The pipes are not the worker's standard streams, so nothing that a
framework prints can damage a frame.
"""

from __future__ import annotations

from typing import BinaryIO, Literal, Protocol

import msgspec

from adapters.answer import Answer
from adapters.framing import make_frame, read_frame
from cases.model import Question

# Raise it when a frame changes its meaning. A worker of another version is refused.
VERSION = 1


# What a route can promise of an input or result: fields of `Observed`; and "program" of `Answer`.
Field = Literal[
    "dtype", "layout", "shards", "offsets", "full", "collectives", "full_collectives", "local",
    "program",
]  # fmt: skip


class Promise(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields that a route always gives in an answer that ended well.

    ``real``: in a run with data; ``dry_run``: in one without. ``unless_used``: those that it does
    not give of a result that a later step uses. ``unless_partial``: those that it does not give of
    a tensor with a pending reduction. Fields that no route can give are left out by
    `completeness.required_fields`.
    """

    real: tuple[Field, ...] = ()
    dry_run: tuple[Field, ...] = ()
    unless_used: tuple[Field, ...] = ()
    unless_partial: tuple[Field, ...] = ()


# By subject. A subject that is not there promises nothing.
Promises = dict[str, Promise]


class Hello(msgspec.Struct, frozen=True, tag=True):
    """A worker's first frame: which version it speaks, and what it is.

    ``framework`` and ``release`` as the framework spells them ("torch", "2.13.0+cpu"); ``facts``
    for people ("gloo", "8 host devices"). ``unseen``: sentences on how this release hides
    collectives from the adapter's counters. ``promises``: the fields that its routes always show.
    """

    protocol: int
    framework: str
    release: str
    python: str
    facts: tuple[str, ...] = ()
    pid: int = 0
    unseen: tuple[str, ...] = ()
    promises: Promises = {}


class Ask(msgspec.Struct, frozen=True, tag=True):
    """A question for some of the adapter's subjects, with seconds allowed for each."""

    question: Question
    subjects: tuple[str, ...]
    seconds: float


class Adapter(Protocol):
    """What ``connect(devices: int)`` of an adapter's module returns: one framework, live.

    `observe` never raises for what a framework did: that is the ``end`` of an `Answer`.
    """

    def hello(self) -> Hello:
        """Which framework and release this is. Called once, before any question."""
        ...

    def observe(self, question: Question, subject: str, seconds: float) -> Answer:
        """The framework's answer; by ``seconds`` at the latest where it can stop itself."""
        ...

    def close(self) -> None:
        """End every process that the adapter started."""
        ...


Frame = Hello | Ask | Answer

_encoder = msgspec.json.Encoder()
_from_worker: msgspec.json.Decoder[Hello | Answer] = msgspec.json.Decoder(Hello | Answer)
_from_run: msgspec.json.Decoder[Ask] = msgspec.json.Decoder(Ask)


class _Version(msgspec.Struct, frozen=True):
    protocol: int


def encode(frame: Frame) -> bytes:
    """One frame as it goes over the pipe: its length, then its body."""
    return make_frame(_encoder.encode(frame))


def decode(body: bytes) -> Hello | Answer:
    """The frame of a worker that has this body.

    Raises:
        msgspec.DecodeError: not a frame of this version.
    """
    return _from_worker.decode(body)


def version(body: bytes) -> int:
    """The version that a worker's first frame says it speaks, whatever else is in it.

    Raises:
        msgspec.DecodeError: it says none.
    """
    return msgspec.json.decode(body, type=_Version).protocol


def write(pipe: BinaryIO, frame: Frame) -> None:
    """Send one frame."""
    pipe.write(encode(frame))
    pipe.flush()


def read_ask(pipe: BinaryIO) -> Ask | None:
    """The next question, on the worker's side; None once the run is gone.

    Raises:
        msgspec.ValidationError: not a frame of this version.
    """
    body = read_frame(pipe.read)
    return None if body is None else _from_run.decode(body)
