"""Buffers the output of one attempt until it is uploaded: older parts on disk, the newest in memory, in order.

The newest LOG_BYTES characters are kept, as many as the server keeps of a log. Where something was dropped, a note says
how much.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentq.coordinator.bounds import LOG_BYTES, LOG_CHUNKS_PER_CALL
from agentq.coordinator.model.spec import AgentSpending
from agentq.coordinator.runs.logs import LogChunk
from agentq.worker.reporting.spill import SpilledPiece

BUFFER_CHARACTERS = LOG_BYTES
PART_CHARACTERS = 256 << 10
PART_CHUNKS = LOG_CHUNKS_PER_CALL - 1
"""Chunks of a part. Together with the note before it, a part is sent in one call."""


@dataclass(slots=True)
class BufferPart:
    """Some chunks on disk, or on their way there."""

    characters: int
    missing_before: int
    """Characters missing before this part."""
    piece: SpilledPiece | None = None


@dataclass(slots=True)
class UploadBuffer:
    """The output, progress and spending of one attempt. Not thread-safe; the caller holds the lock."""

    parts: deque[BufferPart] = field(default_factory=deque)
    chunks: deque[LogChunk] = field(default_factory=deque)
    """The chunks after the parts, in memory."""
    in_memory: int = 0
    on_disk: int = 0
    missing: int = 0
    """Characters missing between the parts and the chunks."""
    dropped: list[SpilledPiece] = field(default_factory=list)
    """Pieces that the disk may release."""
    sending: list[LogChunk] = field(default_factory=list)
    """Chunks of the unanswered call; sent again unchanged."""
    progress: Mapping[str, object] | None = None
    spent: tuple[AgentSpending, Mapping[str, float]] | None = None
    logged: int = 0
    reported: int = 0
    ended_ms: int | None = None
    """Since when the attempt's final report waits for this buffer."""

    def is_empty(self) -> bool:
        has_log = self.chunks or self.parts or self.sending or self.missing
        return not has_log and self.progress is None and self.spent is None

    def add(self, chunks: list[LogChunk]) -> None:
        self.chunks.extend(chunks)
        self.in_memory += _count_characters(chunks)
        while self.in_memory + self.on_disk > BUFFER_CHARACTERS:
            if self.parts:
                self._lose_first()
            else:
                self.missing += _count_characters(self._take(1))

    def take_part(self) -> tuple[BufferPart, list[LogChunk]]:
        """Turn the oldest chunks in memory into a part to spill; report the result by `spilled` or `spill_failed`."""
        chunks = self._take(PART_CHUNKS, PART_CHARACTERS)
        part = BufferPart(_count_characters(chunks), self.missing)
        self.missing = 0
        self.parts.append(part)
        self.on_disk += part.characters
        return part, chunks

    def spilled(self, part: BufferPart, piece: SpilledPiece) -> None:
        part.piece = piece
        if not any(part is each for each in self.parts):
            self.dropped.append(piece)

    def spill_failed(self, part: BufferPart) -> None:
        """There was no room for the part. It was the newest one, unless it was dropped meanwhile."""
        if self.parts and self.parts[-1] is part:
            self._release(self.parts.pop())
            self.missing += part.missing_before + part.characters

    def drop_first(self) -> None:
        """The first part cannot be read from disk."""
        self._lose_first()

    def load_first(self, chunks: list[LogChunk]) -> None:
        """The first part was read from disk: it is sent next."""
        part = self.parts.popleft()
        self._release(part)
        self.sending = _note_missing(part.missing_before, chunks)

    def next_chunks(self) -> list[LogChunk]:
        """The chunks to send next, or again, when no parts precede them."""
        if not self.sending and (self.chunks or self.missing):
            self.sending = _note_missing(self.missing, self._take(PART_CHUNKS) if self.chunks else [])
            self.missing = 0
        return self.sending

    def clear(self) -> None:
        """Drop everything: the server does not want it."""
        while self.parts:
            self._lose_first()
        self.chunks.clear()
        self.in_memory = self.missing = 0
        self.sending = []
        self.progress = self.spent = None

    def _lose_first(self) -> None:
        first = self.parts.popleft()
        self._release(first)
        gone = first.missing_before + first.characters
        if self.parts:
            self.parts[0].missing_before += gone
        else:
            self.missing += gone

    def _release(self, part: BufferPart) -> None:
        self.on_disk -= part.characters
        if part.piece is not None:
            self.dropped.append(part.piece)

    def _take(self, count_max: int, characters: int = BUFFER_CHARACTERS) -> list[LogChunk]:
        """The oldest chunks in memory: at least one, at most `count_max`."""
        taken = [self.chunks.popleft()]
        size = len(taken[0].text)
        while self.chunks and len(taken) < count_max and size + len(self.chunks[0].text) <= characters:
            taken.append(self.chunks.popleft())
            size += len(taken[-1].text)
        self.in_memory -= size
        return taken


def pack_chunks(chunks: list[LogChunk]) -> bytes:
    """Encode chunks for the disk."""
    return json.dumps(chunks, ensure_ascii=False).encode("utf-8", "surrogatepass")


def unpack_chunks(body: bytes) -> list[LogChunk]:
    return [LogChunk(stream, text) for stream, text in json.loads(body.decode("utf-8", "surrogatepass"))]


def _count_characters(chunks: list[LogChunk]) -> int:
    return sum(len(chunk.text) for chunk in chunks)


def _note_missing(missing: int, chunks: list[LogChunk]) -> list[LogChunk]:
    if not missing:
        return chunks
    return [LogChunk("note", f"{missing} characters left out here: the server was out of reach.\n"), *chunks]
