"""The protocol that runners and clients of other programs already speak, in its three dialects; see README.md."""

from __future__ import annotations

import re
from typing import Any

from agentq.coordinator import identity
from agentq.coordinator.errors import NotFound
from agentq.coordinator.server.foreign.speaking import STATES as STATES
from agentq.coordinator.server.foreign.speaking import Status as Status
from agentq.coordinator.server.foreign.speaking import also as also
from agentq.coordinator.server.foreign.speaking import also_brief as also_brief
from agentq.coordinator.server.foreign.speaking import brief as brief
from agentq.coordinator.server.foreign.speaking import concealed as concealed
from agentq.coordinator.server.foreign.speaking import every_run as every_run
from agentq.coordinator.server.foreign.speaking import result_of as result_of
from agentq.coordinator.server.foreign.speaking import wholly as wholly
from agentq.coordinator.sessions import Session


def also_session(session: Session) -> dict[str, Any]:
    """What can be told of a session without a look at its turns."""
    return {"session_id": session.name, "session_name": session.name}


def is_foreign(body: object) -> bool:
    """Whether the body of a request for a run is in a dialect, and not in our own words."""
    return isinstance(body, dict) and "type" in body and "kind" not in body


def check_run_id(text: str) -> None:
    """Refuse what is not the id of a run; one of another system in its words, since it is well formed there."""
    if _RUN.fullmatch(text):
        raise NotFound("Run not found")
    identity.check_run_id(text)


_RUN = re.compile(r"run_[0-9a-f]{12}")
