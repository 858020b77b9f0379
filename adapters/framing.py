"""Where does a message end? Its length comes before it. Knows nothing of what a message says."""

from __future__ import annotations

import struct
from collections.abc import Callable

_LENGTH = struct.Struct(">I")

# What claims to be longer is no frame; four letters of text read as a length are above it.
MAX_BYTES = 1 << 27


class BadFrame(Exception):
    """What came is no frame, or not the one that is due."""


def make_frame(body: bytes) -> bytes:
    """The length of ``body`` in 4 bytes, then ``body``."""
    return _LENGTH.pack(len(body)) + body


def read_frame(read: Callable[[int], bytes]) -> bytes | None:
    """The next body; None once the other side is gone, also in the middle of a frame.

    ``read``: gives as many bytes as it is asked for, and fewer only at the end.
    """
    head = read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = read(length)
    return body if len(body) == length else None


class FrameBuffer:
    """Bytes that have come, and are not yet a whole frame."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, data: bytes) -> None:
        """Take in what has come."""
        self._bytes += data

    def next(self) -> bytes | None:
        """The next whole body, None if there is none yet.

        Raises:
            BadFrame: the next bytes are no frame.
        """
        if len(self._bytes) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self._bytes)[0]
        if end > MAX_BYTES:
            raise BadFrame(f"no frame: {bytes(self._bytes[:40])!r}")
        if len(self._bytes) < end:
            return None
        body = bytes(memoryview(self._bytes)[_LENGTH.size : end])
        del self._bytes[:end]
        return body
