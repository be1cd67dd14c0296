"""What runs say while they run, output, progress and what they spend, on its way to the server. Its tasks:

1. Send what each attempt wrote, in order, one call for all that has gathered; numbered, so that none is doubled.
2. Keep it through an outage, a bounded part of it in memory and the rest on the disk; where the disk is full, a note
   says how much is missing. The file on this machine has all.
3. Say when the last word of an attempt may follow: when its words are out, or will not be within a bounded time.

Losing some of this is bearable; holding up a process, a heartbeat or, while the server answers, an outcome for it is
not. So it has a thread of its own, which alone touches the disk, and nobody waits for it but an attempt's last word.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError, Invalid, TryLater, Unreachable
from agentq.coordinator.model.spec import AgentSpending
from agentq.coordinator.runs.logs import LogChunk
from agentq.coordinator.runs.verbs import Claim, RunVerbs
from agentq.coordinator.sessions.conversations import AgentConversations
from agentq.worker.reporting.spill import SpillFile
from agentq.worker.reporting.upload_buffer import UploadBuffer, pack_chunks, unpack_chunks
from agentq.worker.worker_thread import OnFailure, WorkerThread

RETRY_MS = 1_000
MEMORY_CHARACTERS = 8 << 20
"""What waits in memory, of all attempts together, while the server is away; more goes to the disk."""
UPLOAD_WAIT_MS = 5_000
"""How long the outcome waits for the output before it to reach a server that answers."""


class LogUpload:
    """Tells what attempts say, in a thread."""

    def __init__(
        self, queue: RunVerbs, spill: SpillFile, answering_since_ms: Callable[[], int | None], on_failure: OnFailure
    ) -> None:
        self.queue = queue
        self._conversations = AgentConversations(queue.store)
        self._spill = spill
        self._answering_since_ms = answering_since_ms
        """Since when the server has answered without a break; None if it does not."""
        self._buffers: dict[Claim, UploadBuffer] = {}
        self._forgotten: list[UploadBuffer] = []
        self._changed = threading.Condition()
        self._closed = False
        self._aborted = False
        self._refused = False
        """The server has answered that it takes nothing at the moment: it is out of memory."""
        self._on_uploaded: Callable[[], None] = lambda: None
        self._thread = WorkerThread(self._run, "agentq-narration", on_failure)

    def on_uploaded(self, act: Callable[[], None]) -> None:
        """What to do, in whichever thread, when a last word may follow that had to wait."""
        self._on_uploaded = act

    def start(self) -> None:
        self._thread.start()

    def log(self, claim: Claim, chunks: list[LogChunk]) -> None:
        with self._changed:
            self._buffers.setdefault(claim, UploadBuffer()).add(chunks)
            self._changed.notify_all()

    def progress(self, claim: Claim, progress: Mapping[str, object]) -> None:
        """The newest word counts; those that were not sent yet are forgotten."""
        with self._changed:
            self._buffers.setdefault(claim, UploadBuffer()).progress = progress
            self._changed.notify_all()

    def spent(self, claim: Claim, spending: AgentSpending, totals: Mapping[str, float]) -> None:
        """What an agent's attempt has spent so far; the newest word has all that those before it had."""
        with self._changed:
            self._buffers.setdefault(claim, UploadBuffer()).spent = (spending, totals)
            self._changed.notify_all()

    def may_report_end(self, claim: Claim) -> bool:
        """Whether the last word of an attempt may follow; asked again and again from when there is one.

        A server that is away could not be told the last word either, so that time does not count.
        """
        with self._changed:
            buffer = self._buffers.get(claim)
            if buffer is None or buffer.is_empty() or self._aborted:
                return True
            since_ms, now_ms = self._answering_since_ms(), monotonic_ms()
            if buffer.ended_ms is None:
                buffer.ended_ms = now_ms
            if since_ms is None:
                return False
            # What was spent is taken even where there is no room for words.
            return (self._refused and buffer.spent is None) or now_ms - max(since_ms, buffer.ended_ms) >= UPLOAD_WAIT_MS

    def forget(self, claim: Claim) -> None:
        """There is nothing more to tell of this attempt."""
        with self._changed:
            buffer = self._buffers.pop(claim, None)
            if buffer is not None:
                self._forgotten.append(buffer)
                self._changed.notify_all()

    def close(self, patience_ms: int) -> None:
        """Tell what is left, for so long at the most."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(patience_ms / 1000)
        with self._changed:
            self._aborted = True
            self._changed.notify_all()
        self._on_uploaded()

    def _run(self) -> None:
        while (pending := self._wait_for_pending()) and not self._aborted:
            # What was spent goes first: a server without room for words takes that all the same.
            uploads = [(upload, *each) for upload in (self._upload_spending, self._upload) for each in pending]
            for act, claim, buffer in uploads:
                try:
                    accepted = act(claim, buffer)
                    self._refused = self._refused and not accepted
                except (Unreachable, TryLater) as fault:
                    self._refused = isinstance(fault, TryLater)
                    self._on_uploaded()
                    self._spill_excess()
                    with self._changed:
                        self._changed.wait_for(lambda: self._aborted, random.uniform(RETRY_MS / 10, RETRY_MS) / 1000)
                    break
                except AgentqError:
                    # The attempt was superseded, or has ended: nobody wants to hear of it any more.
                    with self._changed:
                        buffer.clear()
                if buffer.ended_ms is not None and buffer.is_empty():
                    self._on_uploaded()
        self._spill.close()

    def _wait_for_pending(self) -> list[tuple[Claim, UploadBuffer]]:
        """What there is to say, as soon as there is any; nothing if it is over."""
        with self._changed:
            while True:
                self._drop_pieces()
                pending = [(claim, buffer) for claim, buffer in self._buffers.items() if not buffer.is_empty()]
                if pending or self._closed:
                    return pending
                self._changed.wait()

    def _upload(self, claim: Claim, buffer: UploadBuffer) -> bool:
        """Whether there were words, and the server took them."""
        chunks, progress = self._next_chunks(buffer), buffer.progress
        if chunks:
            self.queue.log(claim, buffer.logged + 1, chunks)
            buffer.logged += 1
            buffer.sending = []
        if progress is not None:
            self.queue.report(claim, buffer.reported + 1, progress)
            buffer.reported += 1
        with self._changed:
            if buffer.progress is progress:
                buffer.progress = None
        return bool(chunks) or progress is not None

    def _upload_spending(self, claim: Claim, buffer: UploadBuffer) -> bool:
        """Never whether the server takes words."""
        spent = buffer.spent
        if spent is None:
            return False
        try:
            self._conversations.spend(claim, *spent)
        except Invalid as invalid:
            self.log(claim, [LogChunk("note", f"what it has spent cannot be counted: {invalid}\n")])
        with self._changed:
            if buffer.spent is spent:
                buffer.spent = None
        return False

    def _next_chunks(self, buffer: UploadBuffer) -> list[LogChunk]:
        """What is to be sent next of a tale, from the disk if it is there."""
        with self._changed:
            first = buffer.parts[0] if buffer.parts else None
            if buffer.sending or first is None:
                return buffer.next_chunks()
        assert first.piece is not None
        try:
            chunks = unpack_chunks(self._spill.get(first.piece))
        except (OSError, ValueError):
            chunks = []
        with self._changed:
            # It may have had to go meanwhile; then its turn is over.
            if buffer.parts and buffer.parts[0] is first:
                if chunks:
                    buffer.load_first(chunks)
                else:
                    buffer.drop_first()
            return buffer.sending

    def _spill_excess(self) -> None:
        """Bring what waits in memory down to its bound: onto the disk or, where that is full, out of the world."""
        while True:
            with self._changed:
                self._drop_pieces()
                buffers = self._buffers.values()
                if sum(buffer.in_memory for buffer in buffers) <= MEMORY_CHARACTERS:
                    return
                longest = max(buffers, key=lambda tale: tale.in_memory)
                part, chunks = longest.take_part()
            piece = self._spill.put(pack_chunks(chunks))
            with self._changed:
                if piece is None:
                    longest.spill_failed(part)
                else:
                    longest.spilled(part, piece)

    def _drop_pieces(self) -> None:
        """Let the disk forget what was dropped."""
        for buffer in self._forgotten:
            buffer.clear()
        for buffer in (*self._forgotten, *self._buffers.values()):
            for piece in buffer.dropped:
                self._spill.drop(piece)
            buffer.dropped.clear()
        self._forgotten.clear()
