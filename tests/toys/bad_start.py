"""A framework that cannot be started: what goes wrong is what TOY_START says."""

from __future__ import annotations

import importlib
import os
import sys
import time

import msgspec

from adapters import protocol
from adapters.framing import make_frame
from adapters.protocol import Hello
from tests.toys.plain import Plain

FAULT = os.environ["TOY_START"]

if FAULT == "no framework":
    importlib.import_module("toy_framework")


class BadStart(Plain):
    """The toy."""

    def hello(self) -> Hello:
        """What TOY_START says, or a Hello with something wrong."""
        hello = super().hello()
        match FAULT:
            case "abort":
                print("the driver is too old", file=sys.stderr)
                os.abort()
            case "exit":
                sys.exit(0)
            case "silence":
                time.sleep(60)
            case "text":
                os.write(int(sys.argv[4]), b"Loading the framework ...\n")
            case "json":
                os.write(int(sys.argv[4]), make_frame(b"{}"))
            case "version":
                return msgspec.structs.replace(hello, protocol=protocol.VERSION + 1)
            case "framework":
                return msgspec.structs.replace(hello, framework="other")
        return hello


def connect(devices: int) -> object:
    """The toy, or something that is no adapter."""
    return object() if FAULT == "no adapter" else BadStart(devices)


if FAULT == "no connect":
    del connect
