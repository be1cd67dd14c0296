"""Handles stop requests of clients for runs and sessions."""

from __future__ import annotations

from typing import Any

from agentq.coordinator.errors import Invalid, NotFound, WrongState
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, State
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.dialects.agent_orchestrator.dialect_table import find_dialect
from agentq.dialects.agent_orchestrator.run_translation import STATUS_BY_STATE, DialectNotes, get_session_id
from agentq.dialects.agent_orchestrator.runners.registration import is_runner_id
from agentq.dialects.agent_orchestrator.runners.registry import RunnerNotRegistered, RunnerRegistry
from agentq.dialects.agent_orchestrator.runners.run_reports import RunNotFound
from agentq.dialects.agent_orchestrator.runners.snapshot import GIVEN_PREFIX
from agentq.dialects.agent_orchestrator.sessions.session_status import IDLE
from agentq.dialects.agent_orchestrator.sessions.store import DialectSessionStore
from agentq.dialects.agent_orchestrator.submission import BadDialectRequest

CANCELLED_MESSAGE = "Run cancelled before execution"
STOP_REASON = "stopped on request"


class StopRequests:
    """Handles stop requests."""

    def __init__(self, runner_registry: RunnerRegistry, session_store: DialectSessionStore) -> None:
        self.runner_registry = runner_registry
        self.session_store = session_store
        self.run_verbs: RunVerbs = runner_registry.run_verbs
        self.run_queries = runner_registry.run_queries

    def stop_run(self, run_id: str) -> dict[str, Any]:
        """Stop one run."""
        try:
            run = self.run_queries.get(run_id)
        except (NotFound, Invalid):
            raise RunNotFound("Run not found") from None
        if (
            run.state in TERMINAL_STATES
            and find_dialect(DialectNotes.from_spec(run.spec).dialect).refuses_stop_of_ended
        ):
            raise BadDialectRequest(f"Run cannot be stopped (status: {STATUS_BY_STATE[run.state]})")
        return self._stop(run)

    def _stop(self, run: RunRecord) -> dict[str, Any]:
        session = get_session_id(run)
        answer: dict[str, Any] = {"ok": True, "run_id": run.id, "session_id": session, "session_name": run.spec.session}
        if run.state in TERMINAL_STATES:
            return answer | {
                "status": STATUS_BY_STATE[run.state],
                "message": f"Run already {STATUS_BY_STATE[run.state]}",
            }
        try:
            state = self.run_verbs.cancel(run.id, STOP_REASON)
        except WrongState:
            return self._stop(self.run_queries.get(run.id))  # it has just ended
        if state is State.CANCELLED:
            return answer | {"status": "stopped", "message": CANCELLED_MESSAGE}
        return answer | {"status": "stopping"}

    def stop_session(self, named: str) -> dict[str, Any]:
        """Stop all turns of a session that have not ended, and the process that waits for its next one."""
        session = self.session_store.get_name(named)
        queued = self.session_store.sessions.line(session)
        # From the last to the first: otherwise the next turn would begin when one has ended.
        answers = [self._stop(self.run_queries.get(run_id)) for run_id in reversed(queued)]
        if answers:
            return answers[-1]
        live = self.session_store.get_live_turn(session)
        if live is not None:
            return self._stop(live)
        fields = self.session_store.read_fields(session)
        status = self.session_store.read_status(session, fields)
        if status == IDLE:
            self._stop_idle(session, fields["idle_run"], fields.get("idle_at", ""))
            return {"ok": True, "session_id": session, "run_id": fields["idle_run"], "status": "stopping"}
        return {"ok": True, "session_id": session, "status": status, "message": f"Session already {status}"}

    def _stop_idle(self, session: str, run_id: str, runner: str) -> None:
        """Record the run as lost for the runner that has the idle process, so that the next poll stops it."""
        self.session_store.set_fields(session, idle_run="", idle_at="")
        if not is_runner_id(runner):
            return
        try:
            self.runner_registry.get_snapshot(runner)
        except RunnerNotRegistered:
            return  # and so is its process
        self.runner_registry.set_fields(runner, **{f"{GIVEN_PREFIX}{run_id}": f"{session} 0 0"})
