"""What attempts have to say, until the server has heard it. Its tasks:

1. Send words in the order in which they came, many in a round trip where there are many.
2. Keep every word through an outage of any length, and send it again: words can be sent twice. A run takes its slot
   until its last word was heard, so there are no more words than slots; what of them exceeds a bound goes to the disk,
   and stays in memory where the disk is full.
3. Hold back the last word of an attempt until what it wrote before is out (see `log_upload.py`).
4. Tell the worker what the server answered. A refusal is an answer; only silence is tried again.
"""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agentq.coordinator.errors import AgentqError, TryLater, Unreachable
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.verbs import Claim, RunVerbs
from agentq.coordinator.runs.wait import RunWait
from agentq.worker.reporting.spill import SpilledPiece, SpillFile
from agentq.worker.worker_thread import OnFailure, WorkerThread, wrap_unexpected_error

RETRY_MS = 1_000
HELD_CHECK_MS = 500
"""How often to look whether a word that is held back may be said, when nobody tells."""
BATCH_MAX = 500
BATCH_BYTES = 1 << 20
MEMORY_BYTES_MAX = 8 << 20
"""The words that wait in memory during an outage; more go to the disk."""

ReportKind = Literal["start", "finish", "fail", "defer", "release", "park"]
_FINAL_REPORTS: tuple[ReportKind, ...] = ("finish", "fail", "defer", "release", "park")
BATCHED_VERBS: tuple[ReportKind, ...] = ("start", "finish")


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """One word about an attempt."""

    verb: ReportKind
    claim: Claim
    outcome: Outcome | None = None
    reason: str = ""
    wait: RunWait | None = None
    delay_ms: int | None = None
    """The wait before another try that the attempt asks for itself."""
    due_at_ms: int | None = None
    """When it may be tried again, if it is put off; without that, its policy says."""

    @property
    def is_final(self) -> bool:
        """Whether it is the last word of its attempt."""
        return self.verb in _FINAL_REPORTS


def build_report(claim: Claim, class_: str, outcome: str, delay_ms: int | None = None) -> AttemptReport:
    """Of a call that ended with this class and this outcome, as JSON."""
    verb: ReportKind = "finish" if class_ == "ok" else "fail"
    return AttemptReport(verb, claim, Outcome.model_validate_json(outcome), delay_ms=delay_ms)


@dataclass(slots=True)
class _PendingReport:
    """A report that waits; its outcome may be on the disk."""

    report: AttemptReport
    bytes: int
    piece: SpilledPiece | None = None


class ReportSender:
    """The worker's mouth."""

    def __init__(
        self,
        queue: RunVerbs,
        spill: SpillFile,
        heard: Callable[[AttemptReport, AgentqError | None], None],
        failed: OnFailure,
        may_end: Callable[[Claim], bool] = lambda _: True,
    ) -> None:
        self.queue = queue
        self._spill = spill
        self._heard = heard
        self._may_end = may_end
        self._words: OrderedDict[int, _PendingReport] = OrderedDict()
        self._said = 0
        self._ready = threading.Condition()
        self._closed = False
        self._failed = failed
        self._set_aside: list[AttemptReport] = []
        """How attempts ended that could not be reported for a fault of the worker itself."""
        self._thread = WorkerThread(self._run, "agentq-reports", failed)

    def start(self) -> None:
        self._thread.start()

    def say(self, report: AttemptReport) -> None:
        size = len(report.outcome.to_wire()) if report.outcome is not None else 0
        with self._ready:
            self._words[self._said] = _PendingReport(report, size)
            self._said += 1
            self._ready.notify()

    def look(self) -> None:
        """A word that was held back may be said now."""
        with self._ready:
            self._ready.notify()

    def close(self, patience_ms: int) -> bool:
        """Say what is left, and end; false if the server did not hear it all in time."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        self._thread.join(patience_ms / 1000)
        return not self._thread.is_alive() and not self._words and not self._set_aside

    def left(self) -> list[AttemptReport]:
        """How attempts ended of which the server has not been told, once this is closed."""
        with self._ready:
            words = [word for word in self._words.values() if word.report.is_final]
        return [*self._set_aside, *(self._whole(word) for word in words)]

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            if not batch:
                self._put_away()
                continue
            reports = [self._whole(word) for word in batch.values()]
            try:
                answers: list[AgentqError | None] | None = self._send(reports)
            except (Unreachable, TryLater):
                self._put_away()
                with self._ready:
                    self._ready.wait_for(lambda: False, timeout=random.uniform(RETRY_MS / 10, RETRY_MS) / 1000)
                continue
            except Exception as error:  # noqa: BLE001 - the worker ends by it, and says the other words before
                self._failed(
                    wrap_unexpected_error(error, f"at the report {reports[0].verb} of the run {reports[0].claim.id}")
                )
                self._set_aside += [report for report in reports if report.is_final]
                answers = None
            with self._ready:
                for number in batch:
                    del self._words[number]
            for word in batch.values():
                if word.piece is not None:
                    self._spill.drop(word.piece)
            for report, answer in zip(reports, answers, strict=True) if answers is not None else ():
                self._heard(report, answer)
        self._spill.close()

    def _next(self) -> dict[int, _PendingReport] | None:
        """The next words to say, as soon as there are any; none if all are held back, None if it is over."""
        with self._ready:
            self._ready.wait_for(lambda: self._words or self._closed)
            if not self._words:
                return None
            batch = self._batch()
            if not batch:
                self._ready.wait(HELD_CHECK_MS / 1000)
                batch = self._batch()
            return batch

    def _batch(self) -> dict[int, _PendingReport]:
        """The first words that may be said and that one call can say."""
        batch: dict[int, _PendingReport] = {}
        verb, size = None, 0
        for number, word in self._words.items():
            if word.report.is_final and not self._may_end(word.report.claim):
                continue
            alone = word.report.verb not in BATCHED_VERBS or word.piece is not None
            size += word.bytes
            if batch and (alone or word.report.verb != verb or len(batch) == BATCH_MAX or size > BATCH_BYTES):
                break
            batch[number], verb = word, word.report.verb
            if alone:
                break
        return batch

    def _put_away(self) -> None:
        """While nothing can be said, bring outcomes that exceed the bound to the disk, as far as that has room."""
        with self._ready:
            words = [word for word in self._words.values() if word.piece is None]
        kept = 0
        for word in words:
            kept += word.bytes
            outcome = word.report.outcome
            if kept > MEMORY_BYTES_MAX and outcome is not None:
                word.piece = self._spill.put(outcome.to_wire().encode())
                if word.piece is None:
                    return
                word.report = replace(word.report, outcome=None)
                kept -= word.bytes

    def _whole(self, word: _PendingReport) -> AttemptReport:
        if word.piece is None:
            return word.report
        try:
            return replace(word.report, outcome=Outcome.model_validate_json(self._spill.get(word.piece)))
        except (OSError, ValueError) as error:
            # Nobody will ever know how it ended, so it did not complete; its crash budget says whether it runs again.
            text = f"its outcome waited on the worker's disk and cannot be read again: {error}"
            return AttemptReport("fail", word.report.claim, Outcome(class_=OutcomeClass.INTERNAL, error=text[:1000]))

    def _send(self, batch: Sequence[AttemptReport]) -> list[AgentqError | None]:
        first = batch[0]
        try:
            if first.verb == "start":
                return self.queue.start([report.claim for report in batch])
            if first.verb == "finish":
                return self.queue.finish([(report.claim, report.outcome or Outcome()) for report in batch])
            if first.verb == "fail":
                assert first.outcome is not None
                self.queue.fail(first.claim, first.outcome, delay_ms=first.delay_ms)
            elif first.verb == "defer":
                assert first.outcome is not None
                self.queue.defer(first.claim, first.due_at_ms, first.outcome, delay_ms=first.delay_ms)
            elif first.verb == "park":
                assert first.wait is not None
                self.queue.park(first.claim, first.reason, first.wait)
            else:
                self.queue.release(first.claim, first.reason)
        except (Unreachable, TryLater):
            raise
        except AgentqError as refused:
            # It concerns one of them, or all: each learns by itself, and those before it can be said twice.
            return [refused] if len(batch) == 1 else [self._send([report])[0] for report in batch]
        return [None]
