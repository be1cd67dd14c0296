"""Uploads what attempts write while they run: output, progress and spending. Its tasks:

1. Send each attempt's output in order, one call for all that has gathered. Calls are numbered, so that none counts
   twice.
2. Keep output through an outage: a bounded part in memory, the rest on disk. Where the disk is full, a note says how
   much is missing. The log file on this machine is complete.
3. Say when an attempt's final report may be sent: once its output is uploaded, or cannot be within a bounded time.

Losing some output is bearable. Delaying a process, a heartbeat or, while the server answers, an outcome is not. So this
is a thread of its own, which alone touches the disk, and only final reports wait for it.
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
"""Output of all attempts that waits in memory while the server is away; more goes to disk."""
UPLOAD_WAIT_MS = 5_000
"""How long a final report waits for the output before it while the server answers."""


class LogUpload:
    """Uploads output, progress and spending of attempts, in a thread."""

    def __init__(
        self, queue: RunVerbs, spill: SpillFile, answering_since_ms: Callable[[], int | None], on_failure: OnFailure
    ) -> None:
        self.queue = queue
        self._conversations = AgentConversations(queue.store)
        self._spill = spill
        self._answering_since_ms = answering_since_ms
        """Since when the server has answered without a break; None if it does not answer."""
        self._buffers: dict[Claim, UploadBuffer] = {}
        self._forgotten: list[UploadBuffer] = []
        self._changed = threading.Condition()
        self._closed = False
        self._aborted = False
        self._refused = False
        """The server answered that it accepts nothing at the moment: it is out of memory."""
        self._on_uploaded: Callable[[], None] = lambda: None
        self._thread = WorkerThread(self._run, "agentq-log-upload", on_failure)

    def on_uploaded(self, act: Callable[[], None]) -> None:
        """Set what to call, in any thread, when a waiting final report may be sent."""
        self._on_uploaded = act

    def start(self) -> None:
        self._thread.start()

    def log(self, claim: Claim, chunks: list[LogChunk]) -> None:
        with self._changed:
            self._buffers.setdefault(claim, UploadBuffer()).add(chunks)
            self._changed.notify_all()

    def progress(self, claim: Claim, progress: Mapping[str, object]) -> None:
        """Report progress. Only the newest is sent."""
        with self._changed:
            self._buffers.setdefault(claim, UploadBuffer()).progress = progress
            self._changed.notify_all()

    def spent(self, claim: Claim, spending: AgentSpending, totals: Mapping[str, float]) -> None:
        """Report what an agent's attempt has spent so far. The newest value includes the earlier ones."""
        with self._changed:
            self._buffers.setdefault(claim, UploadBuffer()).spent = (spending, totals)
            self._changed.notify_all()

    def may_report_end(self, claim: Claim) -> bool:
        """Whether an attempt's final report may be sent; asked repeatedly once there is one.

        Time during which the server is away does not count: it could not be sent the final report either.
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
            # The server accepts spending even when it has no room for output.
            return (self._refused and buffer.spent is None) or now_ms - max(since_ms, buffer.ended_ms) >= UPLOAD_WAIT_MS

    def forget(self, claim: Claim) -> None:
        """Discard what is left of this attempt."""
        with self._changed:
            buffer = self._buffers.pop(claim, None)
            if buffer is not None:
                self._forgotten.append(buffer)
                self._changed.notify_all()

    def close(self, patience_ms: int) -> None:
        """Upload what is left, within `patience_ms`."""
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
            # Spending goes first: the server accepts it even when it has no room for output.
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
                    # The attempt was fenced or has ended: the server refuses its output.
                    with self._changed:
                        buffer.clear()
                if buffer.ended_ms is not None and buffer.is_empty():
                    self._on_uploaded()
        self._spill.close()

    def _wait_for_pending(self) -> list[tuple[Claim, UploadBuffer]]:
        """Wait for something to upload; empty once closed."""
        with self._changed:
            while True:
                self._drop_pieces()
                pending = [(claim, buffer) for claim, buffer in self._buffers.items() if not buffer.is_empty()]
                if pending or self._closed:
                    return pending
                self._changed.wait()

    def _upload(self, claim: Claim, buffer: UploadBuffer) -> bool:
        """Upload output and progress; returns whether there were any."""
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
        """Upload spending. Returns False: it says nothing about whether the server accepts output."""
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
        """The next chunks to send, read from disk if they are there."""
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
            # The part may have been dropped meanwhile.
            if buffer.parts and buffer.parts[0] is first:
                if chunks:
                    buffer.load_first(chunks)
                else:
                    buffer.drop_first()
            return buffer.sending

    def _spill_excess(self) -> None:
        """Reduce memory to its bound: move output to disk or, if that is full, drop it."""
        while True:
            with self._changed:
                self._drop_pieces()
                buffers = self._buffers.values()
                if sum(buffer.in_memory for buffer in buffers) <= MEMORY_CHARACTERS:
                    return
                longest = max(buffers, key=lambda buffer: buffer.in_memory)
                part, chunks = longest.take_part()
            piece = self._spill.put(pack_chunks(chunks))
            with self._changed:
                if piece is None:
                    longest.spill_failed(part)
                else:
                    longest.spilled(part, piece)

    def _drop_pieces(self) -> None:
        """Release dropped pieces on disk."""
        for buffer in self._forgotten:
            buffer.clear()
        for buffer in (*self._forgotten, *self._buffers.values()):
            for piece in buffer.dropped:
                self._spill.drop(piece)
            buffer.dropped.clear()
        self._forgotten.clear()
