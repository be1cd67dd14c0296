"""What the server itself tells in a session: that a run has begun, that it is done. Clients of the newer dialects wait
for it, and their executors do not tell it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import JsonValue

from agentq.coordinator.bounds import DIALECT_RUNNER_MS
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.sessions.verbs import session_partition
from agentq.coordinator.storage.connection import CommandArgument
from agentq.coordinator.storage.store import NamespaceStore
from agentq.dialects.agent_orchestrator.run_translation import format_time

ProgressStep = Literal["run_start", "run_completed"]
STEP_FIELDS: dict[ProgressStep, dict[str, JsonValue]] = {
    "run_start": {},
    "run_completed": {"exit_code": 0, "reason": "completed"},
}


class ProgressEvent(NamedTuple):
    """What has become of an attempt of a run, in its session."""

    session: str
    run: str
    fence: str
    step: ProgressStep

    def event(self) -> dict[str, JsonValue]:
        return {
            "event_type": self.step,
            "session_id": self.session,
            "timestamp": format_time(wall_ms()),
            **STEP_FIELDS[self.step],
        }


def record_progress(store: NamespaceStore, events: Sequence[ProgressEvent]) -> None:
    """Keep these as events of their sessions. Told twice in a row one is kept once."""
    rows: list[tuple[int, tuple[CommandArgument, ...]]] = []
    for each in events:
        operation = f"{each.step}/{each.run}/{each.fence}"
        words = (each.session, each.run, operation, json.dumps(each.event()), DIALECT_RUNNER_MS)
        rows.append((session_partition(store, each.session), words))
    store.call_together("dialect/append_event", rows)
