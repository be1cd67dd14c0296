"""What the server itself tells in a session: that a run has begun, that it is done. Clients of the newer dialects wait
for it, and their executors do not tell it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import JsonValue

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.connection import Word
from agentq.coordinator.limits import FOREIGN_MS
from agentq.coordinator.server.foreign.speaking import moment
from agentq.coordinator.sessions import partition_of_session
from agentq.coordinator.store import Store

Step = Literal["run_start", "run_completed"]
MORE: dict[Step, dict[str, JsonValue]] = {"run_start": {}, "run_completed": {"exit_code": 0, "reason": "completed"}}


class Progress(NamedTuple):
    """What has become of an attempt of a run, in its session."""

    session: str
    run: str
    fence: str
    step: Step

    def event(self) -> dict[str, JsonValue]:
        return {
            "event_type": self.step,
            "session_id": self.session,
            "timestamp": moment(wall_ms()),
            **MORE[self.step],
        }


def tell(store: Store, told: Sequence[Progress]) -> None:
    """Keep these as events of their sessions. Told twice in a row one is kept once."""
    rows: list[tuple[int, tuple[Word, ...]]] = []
    for each in told:
        operation = f"{each.step}/{each.run}/{each.fence}"
        words = (each.session, each.run, operation, json.dumps(each.event()), FOREIGN_MS)
        rows.append((partition_of_session(store, each.session), words))
    store.call_together("dialect/append_event", rows)
