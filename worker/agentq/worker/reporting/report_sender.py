"""Sends reports about attempts until the server acknowledges them. Its tasks:

1. Send reports in the order in which they came, many in a round trip where there are many.
2. Keep every report through an outage of any length and retry; reports can be sent twice. A run takes its slot until
   its final report was acknowledged, so there are no more reports than slots. Outcomes beyond a bound go to disk, and
   stay in memory where the disk is full.
3. Hold back an attempt's final report until its output is uploaded (see `log_upload.py`).
4. Pass the server's answers to the worker. A refusal is an answer; only silence is retried.
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
"""How often to check whether a held back report may be sent, without a wake-up."""
BATCH_MAX = 500
BATCH_BYTES = 1 << 20
MEMORY_BYTES_MAX = 8 << 20
"""Reports that wait in memory during an outage; more go to disk."""

ReportKind = Literal["start", "finish", "fail", "defer", "release", "park"]
_FINAL_REPORTS: tuple[ReportKind, ...] = ("finish", "fail", "defer", "release", "park")
BATCHED_VERBS: tuple[ReportKind, ...] = ("start", "finish")


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """One report about an attempt."""

    verb: ReportKind
    claim: Claim
    outcome: Outcome | None = None
    reason: str = ""
    wait: RunWait | None = None
    delay_ms: int | None = None
    """The wait before the next attempt, if this one asks for it."""
    due_at_ms: int | None = None
    """When a deferred run may be tried again; without it, the run's policy decides."""

    @property
    def is_final(self) -> bool:
        """Whether it ends its attempt."""
        return self.verb in _FINAL_REPORTS


def build_report(claim: Claim, class_: str, outcome: str, delay_ms: int | None = None) -> AttemptReport:
    """The report of a call that ended with this class and this outcome, as JSON."""
    verb: ReportKind = "finish" if class_ == "ok" else "fail"
    return AttemptReport(verb, claim, Outcome.model_validate_json(outcome), delay_ms=delay_ms)


@dataclass(slots=True)
class _PendingReport:
    """A report that waits to be sent; its outcome may be on disk."""

    report: AttemptReport
    bytes: int
    piece: SpilledPiece | None = None


class ReportSender:
    """Sends reports and retries until the server acknowledged them."""

    def __init__(
        self,
        queue: RunVerbs,
        spill: SpillFile,
        on_answered: Callable[[AttemptReport, AgentqError | None], None],
        on_failure: OnFailure,
        may_end: Callable[[Claim], bool] = lambda _: True,
    ) -> None:
        self.queue = queue
        self._spill = spill
        self._on_answered = on_answered
        self._may_end = may_end
        self._pending: OrderedDict[int, _PendingReport] = OrderedDict()
        self._next_number = 0
        self._changed = threading.Condition()
        self._closed = False
        self._on_failure = on_failure
        self._unsendable: list[AttemptReport] = []
        """Final reports that could not be sent because of an unexpected error in the worker itself."""
        self._thread = WorkerThread(self._run, "agentq-reports", on_failure)

    def start(self) -> None:
        self._thread.start()

    def send(self, report: AttemptReport) -> None:
        size = len(report.outcome.to_wire()) if report.outcome is not None else 0
        with self._changed:
            self._pending[self._next_number] = _PendingReport(report, size)
            self._next_number += 1
            self._changed.notify()

    def wake(self) -> None:
        """A held back report may be sent now."""
        with self._changed:
            self._changed.notify()

    def close(self, patience_ms: int) -> bool:
        """Send what is left and end; false if the server did not acknowledge everything in time."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(patience_ms / 1000)
        return not self._thread.is_alive() and not self._pending and not self._unsendable

    def unsent(self) -> list[AttemptReport]:
        """Final reports that the server did not acknowledge, once this is closed."""
        with self._changed:
            pending = [entry for entry in self._pending.values() if entry.report.is_final]
        return [*self._unsendable, *(self._load(word) for word in pending)]

    def _run(self) -> None:
        while (batch := self._wait_for_batch()) is not None:
            if not batch:
                self._spill_excess()
                continue
            reports = [self._load(entry) for entry in batch.values()]
            try:
                answers: list[AgentqError | None] | None = self._send_batch(reports)
            except (Unreachable, TryLater):
                self._spill_excess()
                with self._changed:
                    self._changed.wait_for(lambda: False, timeout=random.uniform(RETRY_MS / 10, RETRY_MS) / 1000)
                continue
            except Exception as error:  # noqa: BLE001 - ends the worker, after the other reports are sent
                self._on_failure(
                    wrap_unexpected_error(error, f"at the report {reports[0].verb} of the run {reports[0].claim.id}")
                )
                self._unsendable += [report for report in reports if report.is_final]
                answers = None
            with self._changed:
                for number in batch:
                    del self._pending[number]
            for entry in batch.values():
                if entry.piece is not None:
                    self._spill.drop(entry.piece)
            for report, answer in zip(reports, answers, strict=True) if answers is not None else ():
                self._on_answered(report, answer)
        self._spill.close()

    def _wait_for_batch(self) -> dict[int, _PendingReport] | None:
        """Wait for reports and return the next batch; empty if all are held back, None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._closed)
            if not self._pending:
                return None
            batch = self._next_batch()
            if not batch:
                self._changed.wait(HELD_CHECK_MS / 1000)
                batch = self._next_batch()
            return batch

    def _next_batch(self) -> dict[int, _PendingReport]:
        """The first reports that may be sent in one call."""
        batch: dict[int, _PendingReport] = {}
        verb, size = None, 0
        for number, entry in self._pending.items():
            if entry.report.is_final and not self._may_end(entry.report.claim):
                continue
            alone = entry.report.verb not in BATCHED_VERBS or entry.piece is not None
            size += entry.bytes
            if batch and (alone or entry.report.verb != verb or len(batch) == BATCH_MAX or size > BATCH_BYTES):
                break
            batch[number], verb = entry, entry.report.verb
            if alone:
                break
        return batch

    def _spill_excess(self) -> None:
        """While nothing can be sent, move outcomes beyond the memory bound to disk, if that has room."""
        with self._changed:
            pending = [entry for entry in self._pending.values() if entry.piece is None]
        kept = 0
        for word in pending:
            kept += word.bytes
            outcome = word.report.outcome
            if kept > MEMORY_BYTES_MAX and outcome is not None:
                word.piece = self._spill.put(outcome.to_wire().encode())
                if word.piece is None:
                    return
                word.report = replace(word.report, outcome=None)
                kept -= word.bytes

    def _load(self, entry: _PendingReport) -> AttemptReport:
        if entry.piece is None:
            return entry.report
        try:
            return replace(entry.report, outcome=Outcome.model_validate_json(self._spill.get(entry.piece)))
        except (OSError, ValueError) as error:
            # The outcome is lost, so the run did not complete; its crash budget decides whether it runs again.
            text = f"its outcome waited on the worker's disk and cannot be read again: {error}"
            return AttemptReport("fail", entry.report.claim, Outcome(class_=OutcomeClass.INTERNAL, error=text[:1000]))

    def _send_batch(self, batch: Sequence[AttemptReport]) -> list[AgentqError | None]:
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
            # The refusal concerns one report or all: send each alone. Reports can be sent twice.
            return [refused] if len(batch) == 1 else [self._send_batch([report])[0] for report in batch]
        return [None]
