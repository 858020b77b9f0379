"""Is a message whole, whatever the pieces that it comes in?"""

from __future__ import annotations

import io

import pytest

from adapters.framing import MAX_BYTES, BadFrame, FrameBuffer, make_frame, read_frame

BOTH = make_frame(b"one") + make_frame(b"") + make_frame(b"three")


def test_frames_are_read_one_after_another() -> None:
    """An empty one is a frame; at the end there is none."""
    pipe = io.BytesIO(BOTH)
    assert [read_frame(pipe.read) for _ in range(4)] == [b"one", b"", b"three", None]


@pytest.mark.parametrize("size", range(1, len(make_frame(b"one"))))
def test_a_frame_that_is_cut_is_none(size: int) -> None:
    """In its length or in its body: the other side is gone."""
    assert read_frame(io.BytesIO(make_frame(b"one")[:size]).read) is None


def test_a_buffer_gives_what_is_whole() -> None:
    """Byte by byte, each frame as soon as its last byte has come."""
    buffer, found = FrameBuffer(), []
    for at in range(len(BOTH)):
        buffer.add(BOTH[at : at + 1])
        while (body := buffer.next()) is not None:
            found.append((at, body))
    assert found == [(6, b"one"), (10, b""), (19, b"three")]


def test_a_buffer_refuses_what_claims_to_be_too_long() -> None:
    """Text read as a length does, before anything waits for the rest."""
    assert int.from_bytes(b"Load", "big") > MAX_BYTES
    buffer = FrameBuffer()
    buffer.add(b"Loading the framework")
    with pytest.raises(BadFrame, match="no frame: b'Loading the framework'"):
        buffer.next()
