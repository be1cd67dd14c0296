"""Reports outcomes of calls to the server and claims the next calls in the same round trip.

Two threads do this, so that the server has the next exchange before this side has handled the last reply.

1. Outcomes since the last exchange are sent in one call, which also claims as many calls as the children have room for.
2. When fewer arrive than requested, the lanes are empty: from then on it only reports, and the claiming thread waits
   for calls along with everything else. When that thread gets as many as it requested, the exchange claims again.
3. While the server is away, outcomes are kept and sent again. They can be sent twice.
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
"""Outcomes sent, and calls claimed, in one exchange: fewer than wait in a child, which would be idle meanwhile
otherwise.
"""
BATCH_BYTES = 4 << 20
RETRY_MS = 1_000
PENDING_BYTES_MAX = 64 << 20
"""Outcomes that may wait for the server; beyond that, children are not read."""
RETRYABLE_ERRORS = (Unreachable, TryLater, Evicted)
"""The server did not process the exchange."""


class FunctionExchange:
    """Exchanges outcomes for calls with the server."""

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
        """The batch that each thread is sending."""
        self._bytes = 0
        self._requested = 0
        """How many calls are requested and not yet handed to the engine."""
        self._request_lock = threading.Lock()
        self._busy_threads = 0
        """Threads in a call to the server."""
        self._changed = threading.Condition()
        self._closed = False
        self._pause = threading.Event()
        self._claim_due = False
        self.is_paused = True
        """Whether it leaves claiming to the claiming thread."""
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
        """Whether so many outcomes wait that children should not be read."""
        return self._bytes > self._pending_bytes_max

    def resume(self) -> None:
        """Claim again: the lanes have more calls."""
        with self._changed:
            self.is_paused = False
            self._claim_due = True
            self._changed.notify()

    @property
    def is_idle(self) -> bool:
        """Whether it waits for outcomes."""
        return not self._busy_threads and not self._ended

    def close(self, patience_ms: int) -> bool:
        """Send what is left and end; false if the server did not acknowledge all in time."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        until = monotonic_ms() + patience_ms
        for thread in self._threads:
            thread.join(max(0, until - monotonic_ms()) / 1000)
        return not self._ended and not any(thread.is_alive() for thread in self._threads)

    def unsent(self) -> list[AttemptReport]:
        """Outcomes that the server did not acknowledge, once this is closed."""
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
                # Repeat the same request until it is answered: a lost reply may have granted runs.
                while (batch or calls) and not self._exchange(way, batch, size, calls):
                    # The server is away, or this worker has to register again: keep the batch and retry.
                    self._pause.wait(random.uniform(RETRY_MS / 10, RETRY_MS) / 1000)
                    if self._closed and not batch:
                        return
            except Exception as error:  # noqa: BLE001 - no outcome is lost silently
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
        """The next outcomes to send, and their size in bytes."""
        batch: list[FunctionOutcome] = []
        size, ended = 0, self._ended
        while ended and len(batch) < BATCH_MAX and (not batch or size + len(ended[0].outcome) <= BATCH_BYTES):
            size += len(ended[0].outcome)
            batch.append(ended.popleft())
        return batch, size

    def _reserve_calls(self) -> int:
        """How many calls to request. Both threads may ask at once, and only one gets the room."""
        with self._request_lock:
            # In this order: calls that arrive in between are counted twice rather than not at all.
            requested = self._requested
            # Not under `_changed`: `_call_room` takes the engine's lock, whose holder may be reporting to us.
            room = 0 if self.is_paused or self._closed else self._call_room()
            calls = min(BATCH_MAX, max(0, room - requested))
            with self._changed:
                self._requested += calls
            return calls

    def _exchange(self, way: int, batch: list[FunctionOutcome], size: int, calls: int) -> bool:
        """Send a batch and claim calls; false if the server did not process it all."""
        try:
            refusals, claims = self._lease.exchange(batch, calls, way=way)
        except RETRYABLE_ERRORS:
            return False
        unanswered = [
            end for end, refusal in zip(batch, refusals, strict=True) if isinstance(refusal, RETRYABLE_ERRORS)
        ]
        if unanswered:
            # One of several partitions is away. Calls from the others have to reach the children all the same.
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
        """The server acknowledged outcomes of this size."""
        with self._changed:
            self._bytes -= size
