"""What runs say while they run, output and progress, on its way to the server. Its tasks:

1. Send what each attempt wrote, in order, one call for all that has gathered; numbered, so that none is doubled.
2. Through an outage keep a bounded part of it, the newest; the file on this machine has all.
3. Let an attempt wait, for a bounded time, until its words are out, before its last word ends it.

Losing some of this is bearable; holding up a process, a heartbeat or an outcome for it is not. So it has a thread of
its own, and nobody waits for it but the end of the attempt it tells of.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentq.coordinator.errors import AgentqError, TryLater, Unreachable
from agentq.coordinator.limits import LOG_BYTES, LOG_CHUNKS_A_CALL
from agentq.coordinator.logs import Chunk
from agentq.coordinator.queue import Claim, Queue

RETRY_MS = 1_000
KEPT_CHARACTERS = LOG_BYTES


@dataclass(slots=True)
class _Tale:
    """What one attempt has to tell."""

    chunks: deque[Chunk] = field(default_factory=deque)
    characters: int = 0
    left_out: int = 0
    sending: list[Chunk] = field(default_factory=list)
    """What a call that was not answered yet has in it; it is sent again as it was."""
    progress: Mapping[str, object] | None = None
    logged: int = 0
    reported: int = 0

    def empty(self) -> bool:
        return not self.chunks and not self.sending and self.progress is None

    def add(self, chunks: list[Chunk]) -> None:
        self.chunks.extend(chunks)
        self.characters += sum(len(chunk.text) for chunk in chunks)
        while self.characters > KEPT_CHARACTERS:
            dropped = self.chunks.popleft()
            self.characters -= len(dropped.text)
            self.left_out += len(dropped.text)

    def to_send(self) -> list[Chunk]:
        """What is to be sent next, or again."""
        if not self.sending and self.chunks:
            if self.left_out:
                text = f"{self.left_out} characters left out here: the server was out of reach.\n"
                self.sending.append(Chunk("note", text))
                self.left_out = 0
            while self.chunks and len(self.sending) < LOG_CHUNKS_A_CALL:
                self.sending.append(self.chunks.popleft())
                self.characters -= len(self.sending[-1].text)
        return self.sending


class Narration:
    """Tells what attempts say, in a thread."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._tales: dict[Claim, _Tale] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._refused = False
        """The server has answered that it takes nothing at the moment: it is out of memory."""
        self._thread = threading.Thread(target=self._run, name="agentq-narration", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def log(self, claim: Claim, chunks: list[Chunk]) -> None:
        with self._changed:
            self._tales.setdefault(claim, _Tale()).add(chunks)
            self._changed.notify_all()

    def progress(self, claim: Claim, progress: Mapping[str, object]) -> None:
        """The newest word counts; those that were not sent yet are forgotten."""
        with self._changed:
            self._tales.setdefault(claim, _Tale()).progress = progress
            self._changed.notify_all()

    def pending(self, claim: Claim) -> bool:
        with self._changed:
            tale = self._tales.get(claim)
            return tale is not None and not tale.empty()

    def finish(self, claim: Claim, patience_ms: int) -> None:
        """Wait until everything of this attempt is out, or for that long; but not for a server that takes no logs."""
        with self._changed:
            tale = self._tales.get(claim)
            if tale is not None:
                self._changed.wait_for(lambda: tale.empty() or self._refused, patience_ms / 1000)

    def forget(self, claim: Claim) -> None:
        """There is nothing more to tell of this attempt."""
        with self._changed:
            self._tales.pop(claim, None)

    def close(self, patience_ms: int) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(patience_ms / 1000)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._unsaid())
                unsaid = self._unsaid()
                if not unsaid:
                    return
            for claim, tale in unsaid:
                try:
                    self._tell(claim, tale)
                    self._refused = False
                except (Unreachable, TryLater) as fault:
                    with self._changed:
                        self._refused = isinstance(fault, TryLater)
                        self._changed.notify_all()
                        self._changed.wait_for(lambda: self._closed, random.uniform(RETRY_MS / 10, RETRY_MS) / 1000)
                        if self._closed:
                            return
                    break
                except AgentqError:
                    # The attempt was superseded, or has ended: nobody wants to hear of it any more.
                    with self._changed:
                        tale.chunks.clear()
                        tale.sending.clear()
                        tale.progress = None
                        self._changed.notify_all()

    def _unsaid(self) -> list[tuple[Claim, _Tale]]:
        return [(claim, tale) for claim, tale in self._tales.items() if not tale.empty()]

    def _tell(self, claim: Claim, tale: _Tale) -> None:
        with self._changed:
            chunks, progress = tale.to_send(), tale.progress
        if chunks:
            self.queue.log(claim, tale.logged + 1, chunks)
            tale.logged += 1
            tale.sending = []
        if progress is not None:
            self.queue.report(claim, tale.reported + 1, progress)
            tale.reported += 1
        with self._changed:
            if tale.progress is progress:
                tale.progress = None
            self._changed.notify_all()
