"""Progress events that the server adds to a session: its run has begun, or is completed. Clients of the newer dialects
wait for them, and their executors do not send them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import JsonValue

from agentq.coordinator.bounds import DIALECT_RUNNER_MS
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.storage.connection import CommandArgument
from agentq.coordinator.storage.session_lookup import session_partition
from agentq.coordinator.storage.store import NamespaceStore
from agentq.dialects.agent_orchestrator.run_translation import format_time

ProgressStep = Literal["run_start", "run_completed"]
STEP_FIELDS: dict[ProgressStep, dict[str, JsonValue]] = {
    "run_start": {},
    "run_completed": {"exit_code": 0, "reason": "completed"},
}


class ProgressEvent(NamedTuple):
    """The progress of an attempt, as an event of its session."""

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
    """Store events of sessions. An event that is sent twice in a row is stored once."""
    rows: list[tuple[int, tuple[CommandArgument, ...]]] = []
    for each in events:
        operation = f"{each.step}/{each.run}/{each.fence}"
        words = (each.session, each.run, operation, json.dumps(each.event()), DIALECT_RUNNER_MS)
        rows.append((session_partition(store, each.session), words))
    store.call_together("dialect/append_event", rows)
