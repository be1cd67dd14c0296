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
        self, queue: RunVerbs, spill: SpillFile, answering_since_ms: Callable[[], int | None], failed: OnFailure
    ) -> None:
        self.queue = queue
        self._conversations = AgentConversations(queue.store)
        self._spill = spill
        self._answering_since_ms = answering_since_ms
        """Since when the server has answered without a break; None if it does not."""
        self._tales: dict[Claim, UploadBuffer] = {}
        self._forgotten: list[UploadBuffer] = []
        self._changed = threading.Condition()
        self._closed = False
        self._over = False
        self._refused = False
        """The server has answered that it takes nothing at the moment: it is out of memory."""
        self._on_told: Callable[[], None] = lambda: None
        self._thread = WorkerThread(self._run, "agentq-narration", failed)

    def on_told(self, act: Callable[[], None]) -> None:
        """What to do, in whichever thread, when a last word may follow that had to wait."""
        self._on_told = act

    def start(self) -> None:
        self._thread.start()

    def log(self, claim: Claim, chunks: list[LogChunk]) -> None:
        with self._changed:
            self._tales.setdefault(claim, UploadBuffer()).add(chunks)
            self._changed.notify_all()

    def progress(self, claim: Claim, progress: Mapping[str, object]) -> None:
        """The newest word counts; those that were not sent yet are forgotten."""
        with self._changed:
            self._tales.setdefault(claim, UploadBuffer()).progress = progress
            self._changed.notify_all()

    def spent(self, claim: Claim, spending: AgentSpending, totals: Mapping[str, float]) -> None:
        """What an agent's attempt has spent so far; the newest word has all that those before it had."""
        with self._changed:
            self._tales.setdefault(claim, UploadBuffer()).spent = (spending, totals)
            self._changed.notify_all()

    def told(self, claim: Claim) -> bool:
        """Whether the last word of an attempt may follow; asked again and again from when there is one.

        A server that is away could not be told the last word either, so that time does not count.
        """
        with self._changed:
            tale = self._tales.get(claim)
            if tale is None or tale.empty() or self._over:
                return True
            since_ms, now_ms = self._answering_since_ms(), monotonic_ms()
            if tale.ended_ms is None:
                tale.ended_ms = now_ms
            if since_ms is None:
                return False
            # What was spent is taken even where there is no room for words.
            return (self._refused and tale.spent is None) or now_ms - max(since_ms, tale.ended_ms) >= UPLOAD_WAIT_MS

    def forget(self, claim: Claim) -> None:
        """There is nothing more to tell of this attempt."""
        with self._changed:
            tale = self._tales.pop(claim, None)
            if tale is not None:
                self._forgotten.append(tale)
                self._changed.notify_all()

    def close(self, patience_ms: int) -> None:
        """Tell what is left, for so long at the most."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(patience_ms / 1000)
        with self._changed:
            self._over = True
            self._changed.notify_all()
        self._on_told()

    def _run(self) -> None:
        while (unsaid := self._unsaid()) and not self._over:
            # What was spent goes first: a server without room for words takes that all the same.
            acts = [(act, *each) for act in (self._tell_spent, self._tell) for each in unsaid]
            for act, claim, tale in acts:
                try:
                    told = act(claim, tale)
                    self._refused = self._refused and not told
                except (Unreachable, TryLater) as fault:
                    self._refused = isinstance(fault, TryLater)
                    self._on_told()
                    self._put_away()
                    with self._changed:
                        self._changed.wait_for(lambda: self._over, random.uniform(RETRY_MS / 10, RETRY_MS) / 1000)
                    break
                except AgentqError:
                    # The attempt was superseded, or has ended: nobody wants to hear of it any more.
                    with self._changed:
                        tale.clear()
                if tale.ended_ms is not None and tale.empty():
                    self._on_told()
        self._spill.close()

    def _unsaid(self) -> list[tuple[Claim, UploadBuffer]]:
        """What there is to say, as soon as there is any; nothing if it is over."""
        with self._changed:
            while True:
                self._clear_away()
                unsaid = [(claim, tale) for claim, tale in self._tales.items() if not tale.empty()]
                if unsaid or self._closed:
                    return unsaid
                self._changed.wait()

    def _tell(self, claim: Claim, tale: UploadBuffer) -> bool:
        """Whether there were words, and the server took them."""
        chunks, progress = self._next_chunks(tale), tale.progress
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
        return bool(chunks) or progress is not None

    def _tell_spent(self, claim: Claim, tale: UploadBuffer) -> bool:
        """Never whether the server takes words."""
        spent = tale.spent
        if spent is None:
            return False
        try:
            self._conversations.spend(claim, *spent)
        except Invalid as invalid:
            self.log(claim, [LogChunk("note", f"what it has spent cannot be counted: {invalid}\n")])
        with self._changed:
            if tale.spent is spent:
                tale.spent = None
        return False

    def _next_chunks(self, tale: UploadBuffer) -> list[LogChunk]:
        """What is to be sent next of a tale, from the disk if it is there."""
        with self._changed:
            first = tale.parts[0] if tale.parts else None
            if tale.sending or first is None:
                return tale.to_send()
        assert first.piece is not None
        try:
            chunks = unpack_chunks(self._spill.get(first.piece))
        except (OSError, ValueError):
            chunks = []
        with self._changed:
            # It may have had to go meanwhile; then its turn is over.
            if tale.parts and tale.parts[0] is first:
                if chunks:
                    tale.read(chunks)
                else:
                    tale.unreadable()
            return tale.sending

    def _put_away(self) -> None:
        """Bring what waits in memory down to its bound: onto the disk or, where that is full, out of the world."""
        while True:
            with self._changed:
                self._clear_away()
                tales = self._tales.values()
                if sum(tale.in_memory for tale in tales) <= MEMORY_CHARACTERS:
                    return
                longest = max(tales, key=lambda tale: tale.in_memory)
                part, chunks = longest.set_apart()
            piece = self._spill.put(pack_chunks(chunks))
            with self._changed:
                if piece is None:
                    longest.missed(part)
                else:
                    longest.put(part, piece)

    def _clear_away(self) -> None:
        """Let the disk forget what was dropped."""
        for tale in self._forgotten:
            tale.clear()
        for tale in (*self._forgotten, *self._tales.values()):
            for piece in tale.dropped:
                self._spill.drop(piece)
            tale.dropped.clear()
        self._forgotten.clear()
