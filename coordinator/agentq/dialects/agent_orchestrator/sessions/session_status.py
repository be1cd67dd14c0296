"""Derives the status of a session from its turns and from the reports of executors; it is not stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from agentq.coordinator.model.lifecycle import HELD_STATES, State
from agentq.coordinator.runs.run_record import RunRecord
from agentq.dialects.agent_orchestrator.dialect_table import find_dialect

SessionFields = dict[str, str]
NOT_EXISTENT = "not_existent"
PENDING, RUNNING, IDLE, FINISHED, FAILED, STOPPING, STOPPED = (
    *("pending", "running", "idle", "finished", "failed", "stopping", "stopped"),
)
STATUS_BY_END_STATE = {State.COMPLETED: FINISHED, State.FAILED: FAILED, State.SKIPPED: FAILED, State.CANCELLED: STOPPED}


class StatusTurn(NamedTuple):
    """The properties of a run that determine the status of its session."""

    id: str
    state: State
    stopping: bool


def is_session_visible(fields: SessionFields, status: str) -> bool:
    """Whether clients of its dialect can see a session. If the executor creates it, only after that, or once another
    worker has executed it."""
    if find_dialect(fields.get("dialect")).session_created_by == "server":
        return True
    return bool(fields.get("given_id") or fields.get("bound_at")) or status in (FINISHED, IDLE)


def derive_status(
    fields: SessionFields, live: StatusTurn | None, read_last_ended: Callable[[], StatusTurn | None]
) -> str:
    """The status of a session, from its live turn and the last one that has ended."""
    if live is not None and fields.get("finished_run") == live.id:
        return FINISHED
    if live is not None and live.state in HELD_STATES:
        if live.stopping:
            return STOPPING
        if live.state is State.RUNNING or fields.get("bound_run") == live.id:
            return RUNNING
    last = read_last_ended()
    if last is None:
        # A session that an executor began runs from then on; one that a client requested waits for its runner.
        return RUNNING if live is None and fields.get("bound_at") else PENDING
    if fields.get("exited_run") == last.id and fields.get("exited_as"):
        return fields["exited_as"]
    if last.state is State.COMPLETED:
        return IDLE if fields.get("idle_run") == last.id else FINISHED
    return STATUS_BY_END_STATE[last.state]


def make_status_turn(run: RunRecord | None) -> StatusTurn | None:
    """The properties of a run for the status of its session."""
    return StatusTurn(run.id, run.state, run.stop_at_ms is not None) if run is not None else None
