"""The protocol that runners and clients of other programs already speak, in its four dialects; see README.md."""

from __future__ import annotations

import re
from typing import Any

from agentq.coordinator.errors import NotFound
from agentq.coordinator.model import ids
from agentq.coordinator.sessions.verbs import SessionRecord
from agentq.dialects.agent_orchestrator.run_translation import STATES_BY_STATUS as STATES_BY_STATUS
from agentq.dialects.agent_orchestrator.run_translation import DialectStatus as DialectStatus
from agentq.dialects.agent_orchestrator.run_translation import hide_scope as hide_scope
from agentq.dialects.agent_orchestrator.run_translation import list_all_runs as list_all_runs
from agentq.dialects.agent_orchestrator.run_translation import summarize_run as summarize_run
from agentq.dialects.agent_orchestrator.run_translation import translate_result as translate_result
from agentq.dialects.agent_orchestrator.run_translation import translate_run as translate_run
from agentq.dialects.agent_orchestrator.run_translation import translate_runs as translate_runs
from agentq.dialects.agent_orchestrator.run_translation import translate_summary as translate_summary


def translate_session(session: SessionRecord) -> dict[str, Any]:
    """What can be told of a session without a look at its turns."""
    return {"session_id": session.name, "session_name": session.name}


def is_dialect_request(body: object) -> bool:
    """Whether the body of a request for a run is in a dialect, and not in our own words."""
    return isinstance(body, dict) and "type" in body and "kind" not in body


def check_run_id(text: str) -> None:
    """Refuse what is not the id of a run; one of another system in its words, since it is well formed there."""
    if _RUN_ID_PATTERN.fullmatch(text):
        raise NotFound("Run not found")
    ids.check_run_id(text)


_RUN_ID_PATTERN = re.compile(r"run_[0-9a-f]{12}")
