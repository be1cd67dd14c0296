"""Telling the server how calls ended, and getting the next ones in the same round trip. Its threads are two, so that
the server has the next exchange before we have looked at the answer to the last.

1. What has ended since the last time is told in one call, which also claims as many as the children have room for.
2. When fewer come than were asked for, the lanes are empty: from then on it only tells, and the claiming thread waits
   for the next calls along with everything else. When that thread gets as many as it asked for, it is this one's turn.
3. While the server is away, what ended is kept and told again. It can be told twice.
"""

from __future__ import annotations

import random
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError, Evicted, TryLater, Unreachable
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.workers.lease import EXCHANGES_IN_FLIGHT, FunctionOutcome, WorkerLease
from agentq.worker.reporting.report_sender import AttemptReport, build_report

BATCH_MAX = 200
"""Calls that are told of, and asked for, at once: less than wait in a child, which else had nothing to do meanwhile."""
BATCH_BYTES = 4 << 20
RETRY_MS = 1_000
PENDING_BYTES_MAX = 64 << 20
"""Outcomes that wait for the server; while there are more, children are not listened to."""
RETRYABLE_ERRORS = (Unreachable, TryLater, Evicted)
"""The server has not heard it."""


class FunctionExchange:
    """The calls' way to the server and back."""

    def __init__(
        self,
        lease: WorkerLease,
        call_room: Callable[[], int],
        on_exchanged: Callable[[Sequence[FunctionOutcome], Sequence[AgentqError | None], Sequence[Claim]], None],
        on_paused: Callable[[], None],
        on_failure: Callable[[AgentqError], None],
        *,
        kept_bytes: int = PENDING_BYTES_MAX,
    ) -> None:
        self._lease = lease
        self._call_room = call_room
        self._on_exchanged = on_exchanged
        self._on_paused = on_paused
        self._on_failure = on_failure
        self._pending_bytes_max = kept_bytes
        self._ended: deque[FunctionOutcome] = deque()
        self._sending: list[list[FunctionOutcome]] = [[] for _ in range(EXCHANGES_IN_FLIGHT)]
        """What each thread is telling the server."""
        self._bytes = 0
        self._requested = 0
        """How many more are asked for, until they are in the engine's hands."""
        self._request_lock = threading.Lock()
        self._busy_threads = 0
        """Threads that are speaking to the server."""
        self._changed = threading.Condition()
        self._closed = False
        self._pause = threading.Event()
        self._claim_due = False
        self.is_paused = True
        """Whether it leaves claiming to others."""
        self._threads = [
            threading.Thread(target=self._run, args=(way,), name=f"agentq-exchange-{way}", daemon=True)
            for way in range(EXCHANGES_IN_FLIGHT)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def report(self, ended: Sequence[FunctionOutcome]) -> None:
        size = sum(len(each.outcome) for each in ended)
        with self._changed:
            self._ended.extend(ended)
            self._bytes += size
            self._changed.notify()

    @property
    def is_full(self) -> bool:
        """Whether so much waits that nothing more should come."""
        return self._bytes > self._pending_bytes_max

    def resume(self) -> None:
        """There is more where the last calls came from."""
        with self._changed:
            self.is_paused = False
            self._claim_due = True
            self._changed.notify()

    @property
    def is_idle(self) -> bool:
        """Whether it waits for something to tell."""
        return not self._busy_threads and not self._ended

    def close(self, patience_ms: int) -> bool:
        """Tell what is left, and end; false if the server did not hear it all in time."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        until = monotonic_ms() + patience_ms
        for thread in self._threads:
            thread.join(max(0, until - monotonic_ms()) / 1000)
        return not self._ended and not any(thread.is_alive() for thread in self._threads)

    def unsent(self) -> list[AttemptReport]:
        """How calls ended of which the server has not been told, once this is closed."""
        with self._changed:
            return [build_report(*end) for ended in (*self._sending, self._ended) for end in ended]

    def _run(self, way: int) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or self._claim_due or self._closed)
                if self._closed and not self._ended:
                    return
                self._claim_due = False
                batch, size = self._next_batch()
                self._sending[way] = batch
                self._busy_threads += 1
                if self._ended:
                    self._changed.notify()
            calls = self._reserve_calls()
            try:
                # Once it has asked, it asks for as many until it is answered: a reply that was lost has runs for us.
                while (batch or calls) and not self._exchange(way, batch, size, calls):
                    # Away, or still to be registered anew: what ended is kept, and told again.
                    self._pause.wait(random.uniform(RETRY_MS / 10, RETRY_MS) / 1000)
                    if self._closed and not batch:
                        return
            except Exception as error:  # noqa: BLE001 - whatever it is, nothing is lost silently
                with self._changed:
                    self._ended.extendleft(reversed(batch))
                if not isinstance(error, AgentqError):
                    traceback.print_exc()
                    error = AgentqError(f"The worker cannot go on: {type(error).__name__}: {error}.")
                self._on_failure(error)
                return
            finally:
                with self._changed:
                    self._sending[way] = []
                    self._busy_threads -= 1
                    self._requested -= calls
            if not self.is_paused and self._call_room() > self._requested:
                with self._changed:
                    self._claim_due = True
                    self._changed.notify()

    def _next_batch(self) -> tuple[list[FunctionOutcome], int]:
        """The next to tell of, and how many bytes they are."""
        batch: list[FunctionOutcome] = []
        size, ended = 0, self._ended
        while ended and len(batch) < BATCH_MAX and (not batch or size + len(ended[0].outcome) <= BATCH_BYTES):
            size += len(ended[0].outcome)
            batch.append(ended.popleft())
        return batch, size

    def _reserve_calls(self) -> int:
        """How many to ask for. Both threads may wonder at the same time, and only one gets what there is room for."""
        with self._request_lock:
            # In this order: what comes in between is counted twice rather than not at all.
            requested = self._requested
            # Not under the lock of what changes: whoever answers may be about to tell us something.
            room = 0 if self.is_paused or self._closed else self._call_room()
            calls = min(BATCH_MAX, max(0, room - requested))
            with self._changed:
                self._requested += calls
            return calls

    def _exchange(self, way: int, batch: list[FunctionOutcome], size: int, calls: int) -> bool:
        """Tell of these and get more; false if the server did not hear it all."""
        try:
            refusals, claims = self._lease.exchange(batch, calls, way=way)
        except RETRYABLE_ERRORS:
            return False
        unanswered = [
            end for end, refusal in zip(batch, refusals, strict=True) if isinstance(refusal, RETRYABLE_ERRORS)
        ]
        if unanswered:
            # One of several partitions is away. What the others gave has to reach the children all the same.
            answered = [
                position for position, refusal in enumerate(refusals) if not isinstance(refusal, RETRYABLE_ERRORS)
            ]
            self._count_answered(size - sum(len(end.outcome) for end in unanswered))
            self._on_exchanged([batch[place] for place in answered], [refusals[place] for place in answered], claims)
            self._pause.wait(random.uniform(RETRY_MS / 10, RETRY_MS) / 1000)
            with self._changed:
                self._ended.extendleft(reversed(unanswered))
            return True
        self._count_answered(size)
        empty = len(claims) < calls
        if empty:
            self.is_paused = True
        self._on_exchanged(batch, refusals, claims)
        if empty:
            self._on_paused()
        return True

    def _count_answered(self, size: int) -> None:
        """The server has heard outcomes of so many bytes."""
        with self._changed:
            self._bytes -= size
