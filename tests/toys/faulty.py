"""A framework that does, instead of answering, what the question's context says.

Without a context it is `plain`, and so is every subject but the first.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import signal
import struct
import sys
import termios
import time

import msgspec

from adapters import protocol
from adapters.answer import Answer
from adapters.framing import make_frame
from cases.model import Question
from tests.toys.plain import Plain

READING, WRITING = map(int, sys.argv[3:5]) if len(sys.argv) > 4 else (-1, -1)


def asleep_in_python() -> None:
    """Sleep, as a collective does that waits for a peer."""
    time.sleep(60)


def asleep_in_c() -> None:
    """Sleep in C without letting go of the interpreter, as a deadlock in a framework does."""
    ctypes.PyDLL(None).sleep(60)


def fork() -> None:
    """A child that outlives this process, and keeps its pipes."""
    if os.fork() == 0:
        while True:
            time.sleep(60)


class Faulty(Plain):
    """The toy."""

    def observe(self, question: Question, subject: str, seconds: float) -> Answer:
        """What the context says, then the right answer where that is still possible."""
        answer = super().observe(question, subject, seconds)
        if not subject.endswith("1"):
            return answer
        match question.context:
            case "abort":
                print("about to abort")
                os.abort()
            case "abort, leaving a child":
                fork()
                os.abort()
            case "exit":
                os._exit(3)
            case "raise":
                raise RuntimeError("a defect of the adapter")
            case "close the pipe":
                os.close(WRITING)
                time.sleep(60)
            case "hang":
                asleep_in_python()
            case "hang in C":
                asleep_in_c()
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "fork":
                fork()
            case "fork and hang":
                fork()
                asleep_in_c()
            case "chatter":
                for line in range(50_000):
                    print(f"{line:>50}")
                sys.stderr.write("e" * 2_000_000)
                for fd in (1, 2):
                    os.write(fd, b"\x00\x00\x00\x10" + b"raw" * 200_000)
                sys.stdout.buffer.write(b"\xff\xfe")
            case "text in the pipe":
                os.write(WRITING, b"warning: this is not a frame\n")
            case "json in the pipe":
                os.write(WRITING, make_frame(b'{"type":"No"}'))
            case "half a frame":
                os.write(WRITING, make_frame(b'{"type":"Answer"' + b" " * 984)[:20])
                os.abort()
            case "hello again":
                os.write(WRITING, protocol.encode(self.hello()))
            case "other question":
                return msgspec.structs.replace(answer, question="another")
            case "other subject":
                return msgspec.structs.replace(answer, subject="toy/9")
            case "one too many":
                os.write(WRITING, protocol.encode(answer))
            case "what waits":
                time.sleep(0.4)
                room = fcntl.ioctl(READING, termios.FIONREAD, b"\0" * 4)
                (waiting,) = struct.unpack("i", room)
                return msgspec.structs.replace(answer, complaints=(str(waiting),))
            case str(context) if found := re.fullmatch(r"take ([\d.]+) s", context):
                time.sleep(float(found[1]))
            case None:
                pass
            case unknown:
                raise AssertionError(unknown)
        return answer


def connect(devices: int) -> Faulty:
    """The toy."""
    return Faulty(devices)
