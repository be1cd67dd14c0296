"""Final reports that a worker could not send before it left. Its tasks:

1. Save the reports in the worker's home, in a file with the worker's name, and name the runs in one sentence.
2. Send them when the next worker of that home starts. The fence of each attempt decides whether it still counts.
3. Keep reports of runs that the server does not know, which may belong to another server with that namespace, until
   home cleanup removes them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from agentq.coordinator.errors import AgentqError, NotFound
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.verbs import Claim, RunVerbs
from agentq.coordinator.runs.wait import RunWait
from agentq.worker.reporting.report_sender import AttemptReport, ReportSender
from agentq.worker.reporting.spill import SpillFile

SEND_TIMEOUT_MS = 30_000
"""How long sending all reports of one worker may take."""
NAMED_RUNS_MAX = 10
log = logging.getLogger("agentq.worker")


class UnsentReports:
    """The saved reports of one home and namespace."""

    def __init__(self, home: Path, namespace: str) -> None:
        self.folder = home / "unreported" / namespace

    def save(self, worker: str, reports: Sequence[AttemptReport]) -> str:
        """Write reports to disk; returns the sentence that says what happens to them."""
        runs = list(dict.fromkeys(report.claim.id for report in reports))
        more = f" and {len(runs) - NAMED_RUNS_MAX} more" if len(runs) > NAMED_RUNS_MAX else ""
        which = f"how {_count_runs(len(runs))} ended: {', '.join(runs[:NAMED_RUNS_MAX])}{more}"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(self._file(worker), [_encode_report(report) for report in reports])
        except OSError as error:
            return f"The server does not know {which}. The reports could not be saved ({error}); the runs start again."
        return f"The server does not know {which}. The next worker that starts here reports it."

    def send_all(
        self, queue_of: Callable[[str], AbstractContextManager[RunVerbs]], note: Callable[[str], None]
    ) -> None:
        """Send all saved reports, each as the worker that left it. Reports that cannot be sent now stay."""
        for file in sorted(self.folder.glob("*.jsonl")):
            worker = file.stem
            try:
                with queue_of(worker) as queue:
                    self._send_file(file, queue, worker, note)
            except (AgentqError, OSError) as error:
                note(f"reports of the worker {worker} cannot be sent yet: {error}")

    def _send_file(self, file: Path, queue: RunVerbs, worker: str, note: Callable[[str], None]) -> None:
        lines = {
            report.claim: line for line in file.read_text().splitlines() if (report := _parse_report(line)) is not None
        }
        reports = [_parse_report(line) for line in lines.values()]
        answers: dict[Claim, AgentqError | None] = {}
        sender = ReportSender(
            queue, SpillFile(self.folder), lambda report, answer: answers.update({report.claim: answer}), _log_fault
        )
        sender.start()
        for report in reports:
            if report is not None:
                sender.send(report)
        sender.close(SEND_TIMEOUT_MS)
        unknown = [line for claim, line in lines.items() if isinstance(answers.get(claim, NotFound()), NotFound)]
        if unknown:
            self._write(file, unknown)
        else:
            file.unlink(missing_ok=True)
        accepted = sum(answer is None for answer in answers.values())
        refused = len(answers) - accepted - sum(isinstance(answer, NotFound) for answer in answers.values())
        if accepted:
            note(f"reported how {_count_runs(accepted)} of the worker {worker} ended.")
        if refused:
            has = "has" if refused == 1 else "have"
            note(f"{_count_runs(refused)} of the worker {worker} {has} continued without its unsent report.")

    def _file(self, worker: str) -> Path:
        return self.folder / f"{worker}.jsonl"

    def _write(self, file: Path, lines: Sequence[str]) -> None:
        """Replace the file atomically."""
        written = file.with_suffix(".new")
        written.touch(mode=0o600)
        written.write_text("".join(f"{line}\n" for line in lines))
        written.replace(file)


def _count_runs(number: int) -> str:
    return "1 run" if number == 1 else f"{number} runs"


def _log_fault(fault: AgentqError) -> None:
    log.error("%s", fault)


def _encode_report(report: AttemptReport) -> str:
    """One report as a line, without the spec of its run."""
    wait, outcome = report.wait, report.outcome
    return json.dumps(
        {
            "verb": report.verb,
            "run": report.claim.id,
            "fence": report.claim.fence,
            "lane": report.claim.lane,
            "reason": report.reason,
            "delay_ms": report.delay_ms,
            "due_at_ms": report.due_at_ms,
            "outcome": None if outcome is None else outcome.to_wire(),
            "wait": None if wait is None else wait.model_dump_json(),
        }
    )


def _parse_report(line: str) -> AttemptReport | None:
    """The report of a line; None, and a log message, if it cannot be read."""
    try:
        fields = json.loads(line)
        outcome, wait = fields["outcome"], fields["wait"]
        return AttemptReport(
            fields["verb"],
            Claim(fields["run"], fields["fence"], fields["lane"], ""),
            None if outcome is None else Outcome.model_validate_json(outcome),
            fields["reason"],
            None if wait is None else RunWait.model_validate_json(wait),
            fields["delay_ms"],
            fields["due_at_ms"],
        )
    except (ValueError, KeyError, TypeError) as error:
        log.warning("dropping a saved report that cannot be read: %s", error)
        return None
