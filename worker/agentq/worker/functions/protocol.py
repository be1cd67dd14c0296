"""The messages between a worker and its children, over a stream socket and the ring of their shared memory.

Frames go to the child: their length, and lines. The first line is the kind:

    calls  the number of the first; then for each its id, fence, lane and spec
    stop   the number of a call, and why: an exception in it
    told   the answer to `+receive`
    leave  end, when all that has begun is over

Records of four lines come from the child: id, fence, kind and text. They are in the ring, and a frame without a body
says how far it is written; a record that the ring has no room for is the body of a frame, after what is in the ring.
The kind of a record is a class of outcome, its text being the outcome; or a word that begins with `+`.

Newlines only end lines: ids, fences, lanes, JSON and paths contain none.
"""

from __future__ import annotations

import signal
import struct
from collections.abc import Iterator

FRAME_HEADER = struct.Struct("<I")
"""Before each frame to the child."""
RECORD_HEADER = struct.Struct("<QI")
"""Before each frame from the child: how far the ring was written before it, and its length."""

CALLS, STOP, ANSWER, LEAVE = "calls", "stop", "told", "leave"

LATE_STOP, UNWANTED_STOP = 1, 2
"""Why a call is stopped: its timeout expired, or it is not wanted any more."""

INTERRUPT_SIGNAL: int = getattr(signal, "SIGRTMIN", signal.SIGUSR2)
"""The signal on which a child looks whether its call is to be stopped; none that functions would use."""

LOG = "+log"
"""Its stream and a piece of text, as a JSON array."""
PROGRESS = "+progress"
PARK = "+park"
"""The wait, and the reason, as a JSON array."""
RECEIVE = "+receive"
"""The call asks what its run resumes with."""
TIMED = "+timed"
"""A call with limits has begun: timeout, silence timeout and stop grace, in milliseconds; 0 is none."""
ASYNC = "+async"
"""A call has begun that is awaited: others can begin beside it. The path of its function."""
REFUSED = "+refused"
"""The call was withdrawn before it could begin; its number."""
DELAYED = "+delayed"
"""The outcome asks for a wait before the next attempt: class, milliseconds and outcome, separated by spaces."""
FULL = "+full"
"""Belongs to no call: the child has grown too large and wants to be replaced."""

RECORD_LINES = 4


def encode_frame(*lines: str) -> bytes:
    """A frame to the child."""
    body = "\n".join(lines).encode()
    return FRAME_HEADER.pack(len(body)) + body


def encode_record(run: str, fence: str, what: str, text: str) -> bytes:
    """A record from the child."""
    return f"{run}\n{fence}\n{what}\n{text}\n".encode("utf-8", "replace")


class FrameDecoder:
    """Splits a stream of bytes into frames."""

    def __init__(self, header: struct.Struct) -> None:
        self._header = header
        self._rest = bytearray()

    def decode(self, piece: bytes) -> Iterator[tuple[tuple[int, ...], bytes]]:
        """The frames that are complete now: their headers and bodies."""
        rest, size = self._rest, self._header.size
        rest += piece
        at = 0
        try:
            while len(rest) - at >= size:
                header = self._header.unpack_from(rest, at)
                end = at + size + header[-1]
                if len(rest) < end:
                    break
                body = bytes(rest[at + size : end])
                at = end
                yield header, body
        finally:
            del rest[:at]
