"""Telling the server how calls ended, and getting the next ones in the same round trip: a thread of its own.

1. All that has ended since the last time is told in one call, which also claims as many as the children have room for.
2. When fewer come than were asked for, the lanes are empty: from then on it only tells, and the claiming thread waits
   for the next calls along with everything else. When that thread gets as many as it asked for, it is this one's turn.
3. While the server is away, what ended is kept and told again. It can be told twice.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from agentq.coordinator.errors import AgentqError, Evicted, TryLater, Unreachable
from agentq.coordinator.lease import Ended, Lease
from agentq.coordinator.queue import Claim

BATCH = 1000
BATCH_BYTES = 4 << 20
RETRY_MS = 1_000
KEPT_BYTES = 64 << 20
"""Outcomes that wait for the server; while there are more, children are not listened to."""


class Exchange:
    """The calls' way to the server and back."""

    def __init__(
        self,
        lease: Lease,
        wanted: Callable[[], int],
        heard: Callable[[Sequence[Ended], Sequence[AgentqError | None], Sequence[Claim]], None],
        hungry: Callable[[], None],
        failed: Callable[[AgentqError], None],
    ) -> None:
        self._lease = lease
        self._wanted = wanted
        self._heard = heard
        self._on_hungry = hungry
        self._failed = failed
        self._ended: deque[Ended] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._closed = False
        self.rests = False
        """Whether it waits for something to tell."""
        self._look = False
        self.hungry = True
        """Whether it leaves claiming to others."""
        self._thread = threading.Thread(target=self._run, name="agentq-exchange", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def tell(self, ended: Sequence[Ended]) -> None:
        size = sum(len(each.outcome) for each in ended)
        with self._changed:
            self._ended.extend(ended)
            self._bytes += size
            self._changed.notify()

    @property
    def is_full(self) -> bool:
        """Whether so much waits that nothing more should come."""
        return self._bytes > KEPT_BYTES

    def feed(self) -> None:
        """There is more where the last calls came from."""
        with self._changed:
            self.hungry = False
            self._look = True
            self._changed.notify()

    def close(self, patience_ms: int) -> bool:
        """Tell what is left, and end; false if the server did not hear it all in time."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(patience_ms / 1000)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._changed:
                self.rests = not self._ended
                self._changed.wait_for(lambda: self._ended or self._look or self._closed)
                self.rests = False
                if self._closed and not self._ended:
                    return
                batch, size = self._batch()
                self._look = False
            try:
                self._exchange(batch, size)
            except Evicted:
                self._wait_out()  # until the heartbeat has registered the worker again
            except (Unreachable, TryLater):
                self._wait_out()
            except AgentqError as error:
                self._failed(error)
                return

    def _batch(self) -> tuple[list[Ended], int]:
        batch = list(islice(self._ended, BATCH))
        size = sum(len(each.outcome) for each in batch)
        while size > BATCH_BYTES and len(batch) > 1:
            size -= len(batch.pop().outcome)
        return batch, size

    def _exchange(self, batch: list[Ended], size: int) -> None:
        calls = 0 if self.hungry or self._closed else self._wanted()
        if not batch and not calls:
            return
        refusals, claims = self._lease.exchange(batch, calls)
        with self._changed:
            for _ in batch:
                self._ended.popleft()
            self._bytes -= size
        empty = len(claims) < calls
        if empty:
            self.hungry = True
        self._heard(batch, refusals, claims)
        if empty:
            self._on_hungry()
        elif calls and self._wanted():
            # Asked without the lock: whoever answers may be about to tell us something.
            with self._changed:
                self._look = True

    def _wait_out(self) -> None:
        with self._changed:
            self._look = True
            self._changed.wait_for(lambda: False, timeout=random.uniform(RETRY_MS / 10, RETRY_MS) / 1000)
