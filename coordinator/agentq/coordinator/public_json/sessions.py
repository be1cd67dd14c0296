"""Sessions, in public JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentq.coordinator.model.durations import format_iso
from agentq.coordinator.public_json import format_time, read_time
from agentq.coordinator.public_json.runs import spending_json

if TYPE_CHECKING:
    from agentq.coordinator.sessions.verbs import SessionRecord


def session_json(session: SessionRecord) -> dict[str, Any]:
    """A session."""
    return {
        "name": session.name,
        "agent": session.agent,
        "state": session.state,
        "live": session.live,
        "turns_in_line": session.turns,
        "last": session.last,
        "model": session.model,
        "cwd": session.cwd,
        "account": session.account,
        "host": session.host,
        "stays": session.stays,
        "agent_session": session.agent_session,
        "forked_from": session.forked_from,
        "made_by": session.made_by or None,
        "budgets": None if session.budgets is None else session.budgets.model_dump(mode="json"),
        "spent": spending_json(session.spent),
        "created_at": format_iso(session.created_at_ms),
        "used_at": format_iso(session.used_at_ms),
        "closed_at": format_time(session.closed_at_ms),
    }


def read_session(record: dict[str, Any]) -> SessionRecord:
    """The record that `session_json` wrote; names that a dialect has added are passed over."""
    from agentq.coordinator.sessions.verbs import SessionRecord

    times = {f"{name}_ms": read_time(record[name]) for name in ("created_at", "used_at", "closed_at")}
    return SessionRecord.model_validate(
        record | times | {"turns": record["turns_in_line"], "made_by": record["made_by"] or ""}
    )
