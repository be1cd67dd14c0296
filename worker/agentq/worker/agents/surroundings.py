"""What agents' attempts need of their worker, beside what all attempts do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from agentq.coordinator.conversations import Conversations
from agentq.coordinator.flow import Flow
from agentq.coordinator.queue import Queue
from agentq.worker.agents.availability import Availability
from agentq.worker.agents.installed import Installed
from agentq.worker.agents.profiles import Profiles


@dataclass(frozen=True, slots=True)
class Agents:
    """See above."""

    profiles: Profiles
    conversations: Conversations
    availability: Availability
    queue: Queue

    @classmethod
    def here(cls, queue: Queue, changed: Callable[[], None]) -> Self:
        """Those of this host; `changed` hears when the worker can take runs of others than before."""
        profiles = Profiles.found()
        availability = Availability(Flow(queue.store), profiles, Installed.found(profiles), changed)
        return cls(profiles, Conversations(queue.store), availability, queue)
