"""Logs one line for each run that starts here and each that ends, at level `info`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.workers.lease import FunctionOutcome
from agentq.worker.reporting.report_sender import AttemptReport, build_report

log = logging.getLogger("agentq.worker.runs")
ERROR_CHARACTERS = 200


class RunLog:
    """Remembers which runs have started. Each call is one step on a dictionary, so threads need no lock."""

    def __init__(self) -> None:
        self._started_ms: dict[tuple[str, str], int] = {}

    def started(self, claims: Sequence[Claim]) -> None:
        """Log claimed runs."""
        if not log.isEnabledFor(logging.INFO):
            return
        for claim in claims:
            self._started_ms[claim[:2]] = monotonic_ms()
            _write_event("run started", claim, {"lane": claim.lane})

    def ended(self, report: AttemptReport, refused: AgentqError | None = None) -> None:
        """Log that the server acknowledged how an attempt ended, or refused the report."""
        started_ms = self._started_ms.pop(report.claim[:2], None)
        if started_ms is None:
            return
        outcome = report.outcome
        _write_event(
            "run ended",
            report.claim,
            {
                "report": report.verb,
                "class": outcome and outcome.class_.value,
                "exit_code": outcome and outcome.exit_code,
                "took_ms": monotonic_ms() - started_ms,
                "error": ((outcome and outcome.error) or report.reason)[:ERROR_CHARACTERS],
                "refused": refused and str(refused),
            },
        )

    def calls_ended(self, ended: Sequence[FunctionOutcome], refusals: Sequence[AgentqError | None]) -> None:
        """Log the ends of function runs, which are reported in batches."""
        if self._started_ms:
            for end, refused in zip(ended, refusals, strict=True):
                self.ended(build_report(*end), refused)

    def dropped(self, claim: Claim) -> None:
        """Log an attempt that is no longer held; if it has not ended, another attempt superseded it."""
        started_ms = self._started_ms.pop(claim[:2], None)
        if started_ms is not None:
            _write_event("run ended", claim, {"report": "superseded", "took_ms": monotonic_ms() - started_ms})


def _write_event(event: str, claim: Claim, fields: dict[str, Any]) -> None:
    all_fields = {"run": claim.id, "attempt": int(claim.fence.partition("-")[0]), **fields}
    log.info(event, extra={"fields": {name: value for name, value in all_fields.items() if value not in (None, "")}})
