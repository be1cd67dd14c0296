"""What clients of other systems find in our answers, beside our own names."""

from __future__ import annotations

from typing import Any

from agentq.coordinator.life import Run, Summary
from agentq.coordinator.sessions import Session


def also(run: Run | Summary) -> dict[str, Any]:
    """The fields of a run under the names that other systems have for them."""
    return {"run_id": run.id}


def also_session(session: Session) -> dict[str, Any]:
    """The same for a session."""
    return {"session_id": session.name}
