"""Handles reports of runners about runs: started, completed, failed, stopped; for the attempt that the runner holds.

A report about a run that the runner no longer holds is accepted and changes nothing: if it were refused, the runner
programs would continue with the process. The next poll orders the runner to stop what still runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from pydantic import JsonValue, ValidationError

from agentq.coordinator.bounds import ERROR_CHARACTERS, TAIL_CHARACTERS
from agentq.coordinator.errors import AgentqError, Fenced, Invalid, NotFound, Stopping, WrongState
from agentq.coordinator.model.field_types import describe_error
from agentq.coordinator.model.ids import check_run_id
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import Claim
from agentq.dialects.agent_orchestrator.dialect_table import find_dialect
from agentq.dialects.agent_orchestrator.run_translation import get_session_id
from agentq.dialects.agent_orchestrator.runners.registry import RunnerRegistry
from agentq.dialects.agent_orchestrator.runners.snapshot import GIVEN_PREFIX, HeldRun, RunnerSnapshot
from agentq.dialects.agent_orchestrator.sessions import progress_events
from agentq.dialects.agent_orchestrator.sessions.progress_events import ProgressEvent, ProgressStep
from agentq.dialects.agent_orchestrator.sessions.store import DialectSessionStore

UNREPORTED_END_MS = 60_000
"""How long a runner may take to report a run that its executor has finished."""
RAN_TOO_LONG = Outcome(class_=OutcomeClass.TIMEOUT, error="It ran longer than it may.")
SHUTDOWN_SIGNAL = "shutdown"
"""The signal in the reports of a runner that shuts down."""

IDLE_STATUS = "idle"
"""The status of a session whose process waits for its next turn."""


class RunReport(NamedTuple):
    """A report: its runner and run, and for a completed run the status of its session."""

    runner: str
    run: str
    status: str | None = None


REPORTS_PER_BATCH = 100
"""The most reports that share one call."""
ReportAction = Callable[[Claim], object]


class RunNotFound(NotFound):
    """Run not found"""


class RunReports:
    """Handles the reports of runners."""

    def __init__(self, runner_registry: RunnerRegistry, session_store: DialectSessionStore) -> None:
        self.runner_registry = runner_registry
        self.session_store = session_store
        self.run_verbs = runner_registry.run_verbs
        self.run_queries = runner_registry.run_queries

    def started(self, reports: Sequence[RunReport]) -> list[AgentqError | None]:
        """Handle reports that processes have begun, in one round trip; for each, the error or None.

        A report whose claim is not cached here, or is out of date, is handled by itself.
        """
        claims = [self.runner_registry.cached_claim(each.runner, each.run) for each in reports]
        refusals = iter(self.run_verbs.start([claim for claim in claims if claim is not None]))
        taken = [claim if claim is not None and next(refusals) is None else None for claim in claims]
        self._record_progress(
            *(
                self._progress(each.runner, claim, "run_start")
                for each, claim in zip(reports, taken, strict=True)
                if claim is not None
            )
        )
        return [
            None if claim is not None else _catch_refusal(partial(self._start_one, each))
            for each, claim in zip(reports, taken, strict=True)
        ]

    def _start_one(self, report: RunReport) -> None:
        claim = self._find_claim(report.runner, report.run)
        if claim is None or not self._report(
            report.runner, claim, lambda held: _raise_refusal(self.run_verbs.start([held]))
        ):
            # The process runs all the same: recorded as given, it is stopped with the next poll.
            session = get_session_id(self._get_run(report.run))
            self.runner_registry.set_fields(report.runner, **{f"{GIVEN_PREFIX}{report.run}": f"{session} 0 0"})
            return
        self._record_progress(self._progress(report.runner, claim, "run_start"))

    def completed(self, reports: Sequence[RunReport]) -> list[AgentqError | None]:
        """Handle reports of completed runs, in a few round trips; for each, the error or None.

        A report whose claim is not cached here or is out of date, or whose session is idle, is handled by itself.
        """
        claims = [
            self.runner_registry.cached_claim(each.runner, each.run) if each.status != IDLE_STATUS else None
            for each in reports
        ]
        plain = [(each, claim) for each, claim in zip(reports, claims, strict=True) if claim is not None]
        self.runner_registry.set_fields_batch([(each.runner, {f"{GIVEN_PREFIX}{each.run}": ""}) for each, _ in plain])
        sessions = [
            self.runner_registry.drop_claim(each.runner, each.run) or get_session_id(self._get_run(each.run))
            for each, _ in plain
        ]
        runs = [(session, each.run) for session, (each, _) in zip(sessions, plain, strict=True)]
        outcomes = map(_build_outcome, self.session_store.find_results(runs))
        finished = self.run_verbs.finish([(claim, next(outcomes)) for _, claim in plain])
        self._record_progress(
            *(
                self._progress(each.runner, claim, "run_completed", session)
                for (each, claim), session, refused in zip(plain, sessions, finished, strict=True)
                if refused is None
            )
        )
        refusals = iter(finished)
        return [
            None if claim is not None and next(refusals) is None else _catch_refusal(partial(self._complete_one, each))
            for each, claim in zip(reports, claims, strict=True)
        ]

    def _complete_one(self, report: RunReport) -> None:
        claim, session = self._take_ended_claim(report.runner, report.run)
        if claim is None:
            return
        if report.status == IDLE_STATUS:
            self.session_store.set_fields(session, idle_run=report.run, idle_at=report.runner)
        outcome = _build_outcome(self.session_store.find_result(session, report.run))
        if self._report(report.runner, claim, lambda held: _raise_refusal(self.run_verbs.finish([(held, outcome)]))):
            self._record_progress(self._progress(report.runner, claim, "run_completed", session))

    def failed(self, runner: str, run_id: str, error: str) -> None:
        """Handle a report that a process failed."""
        claim, _ = self._take_ended_claim(runner, run_id)
        if claim is None:
            return
        outcome = Outcome(class_=OutcomeClass.EXIT, error=error[:ERROR_CHARACTERS] or "The process failed.")
        self._report(runner, claim, lambda held: self.run_verbs.fail(held, outcome))

    def stopped(self, runner: str, run_id: str, signal: str) -> None:
        """Handle a report that a process was stopped. If the stop was ordered the run ends; otherwise it goes to
        another runner."""
        claim, _ = self._take_ended_claim(runner, run_id)
        if claim is None:
            return
        why = "its runner shut down" if signal == SHUTDOWN_SIGNAL else f"its runner stopped it with {signal[:40]}"
        self._report(runner, claim, lambda held: self.run_verbs.release(held, why))

    def end_overdue(self, snapshot: RunnerSnapshot) -> None:
        """End runs that have exceeded their timeout, since runners have no timeouts; and complete runs that their
        executor has finished, where the runner's report was lost."""
        for hold in snapshot.held_runs:
            if hold.state != State.RUNNING:
                continue
            if self._is_overdue(hold, snapshot.now_ms):
                self._report(snapshot.runner, hold.claim, lambda held: self.run_verbs.fail(held, RAN_TOO_LONG))
            elif self._is_over(hold, snapshot.now_ms):
                self._complete_one(RunReport(snapshot.runner, hold.claim.id))

    def _is_overdue(self, hold: HeldRun, now_ms: int) -> bool:
        run = self.run_queries.get(hold.claim.id)
        timeout_ms = run.spec.timeout_ms
        return timeout_ms is not None and run.started_at_ms is not None and now_ms - run.started_at_ms > timeout_ms

    def _is_over(self, hold: HeldRun, now_ms: int) -> bool:
        session_fields = self.session_store.read_fields(hold.session) if hold.session else {}
        is_finished = session_fields.get("finished_run") == hold.claim.id
        return is_finished and now_ms - int(session_fields.get("finished_at_ms", now_ms)) > UNREPORTED_END_MS

    # ---- what the server tells of them

    def _progress(self, runner: str, claim: Claim, step: ProgressStep, session: str = "") -> ProgressEvent | None:
        """The progress event for an attempt, if in the runner's dialect the server sends it."""
        identity = self.runner_registry.cached_identity(runner) or self.runner_registry.get_identity(
            self.runner_registry.get_snapshot(runner)
        )
        if not find_dialect(str(identity.about.get("runner"))).server_reports_progress:
            return None
        cached = self.runner_registry.cached_claim_and_session(runner, claim.id)
        in_session = session or (cached[1] if cached is not None else get_session_id(self._get_run(claim.id)))
        return ProgressEvent(in_session, claim.id, claim.fence, step)

    def _record_progress(self, *steps: ProgressEvent | None) -> None:
        events = [each for each in steps if each is not None]
        if events:
            progress_events.record_progress(self.runner_registry.store, events)

    # ---- for whom

    def _find_claim(self, runner: str, run_id: str) -> Claim | None:
        """The attempt of a run that a runner holds; None if it holds none. Raises if the runner or the run is
        unknown."""
        try:
            check_run_id(run_id)
        except Invalid:
            self.runner_registry.get_snapshot(runner)
            raise RunNotFound("Run not found") from None
        claim = self.runner_registry.find_claim(runner, run_id)
        if claim is None:
            self.runner_registry.get_snapshot(runner)
            self._get_run(run_id)
        return claim

    def _take_ended_claim(self, runner: str, run_id: str) -> tuple[Claim | None, str]:
        """The attempt and session of a run whose process has ended; clears what was recorded about it for the
        runner."""
        claim = self._find_claim(runner, run_id)
        session = self.runner_registry.drop_claim(runner, run_id) or (
            get_session_id(self._get_run(run_id)) if claim is not None else ""
        )
        self.runner_registry.set_fields(runner, **{f"{GIVEN_PREFIX}{run_id}": ""})
        return claim, session

    def _get_run(self, run_id: str) -> RunRecord:
        try:
            return self.run_queries.get(run_id)
        except NotFound:
            raise RunNotFound("Run not found") from None

    def _report(self, runner: str, claim: Claim, action: ReportAction) -> bool:
        """Report for the current attempt; false if the run has continued without this runner, which the runner is not
        told."""
        try:
            action(claim)
        except Fenced:
            self.runner_registry.drop_claim(runner, claim.id)
            present = self.runner_registry.find_claim(runner, claim.id)
            if present is None or present.fence == claim.fence:
                return False
            # The cached claim was an earlier attempt; another server gave the runner this one.
            return self._report(runner, present, action)
        except (Stopping, WrongState):
            return True
        return True


def _build_outcome(result: JsonValue) -> Outcome:
    """The outcome of a run, with the result that its executor sent."""
    text = result[-TAIL_CHARACTERS:] if isinstance(result, str) else None
    try:
        return Outcome(result=result, tail=text)
    except ValidationError as error:
        return Outcome(tail=text, error=f"Its result is not kept: {describe_error(error)}"[:ERROR_CHARACTERS])


def _catch_refusal(report: Callable[[], None]) -> AgentqError | None:
    """Call `action`; returns the error that it raises."""
    try:
        report()
    except AgentqError as refused:
        return refused
    return None


def _raise_refusal(refusals: list[AgentqError | None]) -> None:
    """Raise the refusal of a call for one run."""
    if refusals[0] is not None:
        raise refusals[0]
