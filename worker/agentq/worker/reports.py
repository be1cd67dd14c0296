"""What attempts have to say, until the server has heard it. Its tasks:

1. Send words in the order in which they came, many in a round trip where there are many.
2. Keep every word through an outage of any length, and send it again: words can be sent twice.
3. Tell the worker what the server answered. A refusal is an answer; only silence is tried again.
4. Let go of a run once its last word was heard. Until then it takes its slot, so the words kept are bounded by slots.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from agentq.coordinator.errors import AgentqError, TryLater, Unreachable
from agentq.coordinator.queue import Claim, Queue
from agentq.coordinator.run import Outcome
from agentq.coordinator.waiting import Wait

RETRY_MS = 1_000
BATCH = 500

Verb = Literal["start", "finish", "fail", "release", "park"]
FINAL: tuple[Verb, ...] = ("finish", "fail", "release", "park")


@dataclass(frozen=True, slots=True)
class Report:
    """One word about an attempt."""

    verb: Verb
    claim: Claim
    outcome: Outcome | None = None
    reason: str = ""
    wait: Wait | None = None


class Reports:
    """The worker's mouth."""

    def __init__(self, queue: Queue, heard: Callable[[Report, AgentqError | None], None]) -> None:
        self.queue = queue
        self._heard = heard
        self._words: deque[Report] = deque()
        self._ready = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="agentq-reports", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def say(self, report: Report) -> None:
        with self._ready:
            self._words.append(report)
            self._ready.notify()

    def close(self, patience_ms: int) -> bool:
        """Say what is left, and end; false if the server did not hear it all in time."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        self._thread.join(patience_ms / 1000)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._ready:
                self._ready.wait_for(lambda: self._words or self._closed)
                if not self._words:
                    return
                batch = self._batch()
            try:
                answers = self._send(batch)
            except (Unreachable, TryLater):
                with self._ready:
                    self._ready.wait_for(lambda: False, timeout=random.uniform(RETRY_MS / 10, RETRY_MS) / 1000)
                continue
            with self._ready:
                for _ in batch:
                    self._words.popleft()
            for report, answer in zip(batch, answers, strict=True):
                self._heard(report, answer)

    def _batch(self) -> list[Report]:
        """The words at the head that one call can say."""
        batch = [self._words[0]]
        if batch[0].verb in ("start", "finish"):
            for report in list(self._words)[1:BATCH]:
                if report.verb != batch[0].verb:
                    break
                batch.append(report)
        return batch

    def _send(self, batch: Sequence[Report]) -> list[AgentqError | None]:
        first = batch[0]
        try:
            if first.verb == "start":
                return self.queue.start([report.claim for report in batch])
            if first.verb == "finish":
                return self.queue.finish([(report.claim, report.outcome or Outcome()) for report in batch])
            if first.verb == "fail":
                assert first.outcome is not None
                self.queue.fail(first.claim, first.outcome)
            elif first.verb == "park":
                assert first.wait is not None
                self.queue.park(first.claim, wait=first.wait)
            else:
                self.queue.release(first.claim, first.reason)
        except (Unreachable, TryLater):
            raise
        except AgentqError as refused:
            # It concerns one of them, or all: each learns by itself, and those before it can be said twice.
            return [refused] if len(batch) == 1 else [self._send([report])[0] for report in batch]
        return [None]
