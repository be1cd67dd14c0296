"""The status of a foreign session: it is stored nowhere, and follows from its turns and from what executors said."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from agentq.coordinator.model.lifecycle import HELD_STATES, State
from agentq.coordinator.runs.run_record import RunRecord
from agentq.dialects.agent_orchestrator.dialect_table import find_dialect

SessionFacts = dict[str, str]
NOT_EXISTENT = "not_existent"
PENDING, RUNNING, IDLE, FINISHED, FAILED, STOPPING, STOPPED = (
    *("pending", "running", "idle", "finished", "failed", "stopping", "stopped"),
)
STATUS_BY_END_STATE = {State.COMPLETED: FINISHED, State.FAILED: FAILED, State.SKIPPED: FAILED, State.CANCELLED: STOPPED}


class StatusTurn(NamedTuple):
    """A run of a session, as far as the session's status follows from it."""

    id: str
    state: State
    stopping: bool


def is_session_visible(about: SessionFacts, status: str) -> bool:
    """Whether clients of its dialect know that a session is there: where the executor makes it, once that has; or once
    something else has executed it.
    """
    if find_dialect(about.get("dialect")).begun_by == "server":
        return True
    return bool(about.get("given_id") or about.get("bound_at")) or status in (FINISHED, IDLE)


def derive_status(about: SessionFacts, live: StatusTurn | None, ended: Callable[[], StatusTurn | None]) -> str:
    """The status of a session, from the turn whose turn it is and the newest that has ended."""
    if live is not None and about.get("finished_run") == live.id:
        return FINISHED
    if live is not None and live.state in HELD_STATES:
        if live.stopping:
            return STOPPING
        if live.state is State.RUNNING or about.get("bound_run") == live.id:
            return RUNNING
    last = ended()
    if last is None:
        # What an executor began by itself runs from then on; what a client asked for waits for its runner.
        return RUNNING if live is None and about.get("bound_at") else PENDING
    if about.get("exited_run") == last.id and about.get("exited_as"):
        return about["exited_as"]
    if last.state is State.COMPLETED:
        return IDLE if about.get("idle_run") == last.id else FINISHED
    return STATUS_BY_END_STATE[last.state]


def make_status_turn(run: RunRecord | None) -> StatusTurn | None:
    """A run as far as a status follows from it."""
    return StatusTurn(run.id, run.state, run.stop_at_ms is not None) if run is not None else None
