"""What one attempt has to tell, and where it waits: the older parts on the disk, the newest in memory, in order.

The newest LOG_BYTES characters are kept, as many as the server keeps of a log. Where something had to go, a note will
stand that says how much it was.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentq.coordinator.limits import LOG_BYTES, LOG_CHUNKS_A_CALL
from agentq.coordinator.logs import Chunk
from agentq.coordinator.run import Spending
from agentq.worker.spill import Piece

KEPT_CHARACTERS = LOG_BYTES
PART_CHARACTERS = 256 << 10
CHUNKS_A_PART = LOG_CHUNKS_A_CALL - 1
"""With the note before it, a part is sent in one call."""


@dataclass(slots=True)
class Part:
    """Some chunks on the disk, or on their way there."""

    characters: int
    missing: int
    """Characters that are missing before it."""
    piece: Piece | None = None


@dataclass(slots=True)
class Tale:
    """Whoever uses it sees to it that only one thread does at a time."""

    parts: deque[Part] = field(default_factory=deque)
    chunks: deque[Chunk] = field(default_factory=deque)
    """What came after the parts, in memory."""
    in_memory: int = 0
    on_disk: int = 0
    missing: int = 0
    """Characters that are missing between the parts and the chunks."""
    dropped: list[Piece] = field(default_factory=list)
    """What the disk may forget."""
    sending: list[Chunk] = field(default_factory=list)
    """What a call that was not answered yet has in it; it is sent again as it was."""
    progress: Mapping[str, object] | None = None
    spent: tuple[Spending, Mapping[str, float]] | None = None
    logged: int = 0
    reported: int = 0
    ended_ms: int | None = None
    """Since when its last word waits for it."""

    def empty(self) -> bool:
        words = self.chunks or self.parts or self.sending or self.missing
        return not words and self.progress is None and self.spent is None

    def add(self, chunks: list[Chunk]) -> None:
        self.chunks.extend(chunks)
        self.in_memory += _count(chunks)
        while self.in_memory + self.on_disk > KEPT_CHARACTERS:
            if self.parts:
                self._miss_first()
            else:
                self.missing += _count(self._taken(1))

    def set_apart(self) -> tuple[Part, list[Chunk]]:
        """The oldest chunks in memory become a part, to be put on the disk; `put` or `missed` says what came of it."""
        chunks = self._taken(CHUNKS_A_PART, PART_CHARACTERS)
        part = Part(_count(chunks), self.missing)
        self.missing = 0
        self.parts.append(part)
        self.on_disk += part.characters
        return part, chunks

    def put(self, part: Part, piece: Piece) -> None:
        part.piece = piece
        if not any(part is each for each in self.parts):
            self.dropped.append(piece)

    def missed(self, part: Part) -> None:
        """There was no room for it. It was the newest part, unless it had to go meanwhile."""
        if self.parts and self.parts[-1] is part:
            self._let_go(self.parts.pop())
            self.missing += part.missing + part.characters

    def unreadable(self) -> None:
        """The first part cannot be read again."""
        self._miss_first()

    def read(self, chunks: list[Chunk]) -> None:
        """The first part was read: it is what is to be sent next."""
        part = self.parts.popleft()
        self._let_go(part)
        self.sending = _noted(part.missing, chunks)

    def to_send(self) -> list[Chunk]:
        """What is to be sent next, or again, when there are no parts before it."""
        if not self.sending and (self.chunks or self.missing):
            self.sending = _noted(self.missing, self._taken(CHUNKS_A_PART) if self.chunks else [])
            self.missing = 0
        return self.sending

    def clear(self) -> None:
        """Nobody wants to hear of it any more."""
        while self.parts:
            self._miss_first()
        self.chunks.clear()
        self.in_memory = self.missing = 0
        self.sending = []
        self.progress = self.spent = None

    def _miss_first(self) -> None:
        first = self.parts.popleft()
        self._let_go(first)
        gone = first.missing + first.characters
        if self.parts:
            self.parts[0].missing += gone
        else:
            self.missing += gone

    def _let_go(self, part: Part) -> None:
        self.on_disk -= part.characters
        if part.piece is not None:
            self.dropped.append(part.piece)

    def _taken(self, most: int, characters: int = KEPT_CHARACTERS) -> list[Chunk]:
        """The oldest chunks in memory: at least one, and so many at the most."""
        taken = [self.chunks.popleft()]
        size = len(taken[0].text)
        while self.chunks and len(taken) < most and size + len(self.chunks[0].text) <= characters:
            taken.append(self.chunks.popleft())
            size += len(taken[-1].text)
        self.in_memory -= size
        return taken


def packed(chunks: list[Chunk]) -> bytes:
    """Chunks as they stand on the disk."""
    return json.dumps(chunks, ensure_ascii=False).encode("utf-8", "surrogatepass")


def unpacked(body: bytes) -> list[Chunk]:
    return [Chunk(stream, text) for stream, text in json.loads(body.decode("utf-8", "surrogatepass"))]


def _count(chunks: list[Chunk]) -> int:
    return sum(len(chunk.text) for chunk in chunks)


def _noted(missing: int, chunks: list[Chunk]) -> list[Chunk]:
    if not missing:
        return chunks
    return [Chunk("note", f"{missing} characters left out here: the server was out of reach.\n"), *chunks]
