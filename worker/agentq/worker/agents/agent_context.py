"""What agents' attempts need of their worker, beside what all attempts do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from agentq.coordinator.queues.limits import Limits
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.coordinator.sessions.conversations import AgentConversations
from agentq.worker.agents.accounts.availability import AgentAvailability
from agentq.worker.agents.profiles.installed import InstalledAgents
from agentq.worker.agents.profiles.registry import ProfileRegistry


@dataclass(frozen=True, slots=True)
class AgentContext:
    """See above."""

    profiles: ProfileRegistry
    conversations: AgentConversations
    availability: AgentAvailability
    queue: RunVerbs

    @classmethod
    def detect(cls, queue: RunVerbs, on_change: Callable[[], None]) -> Self:
        """Those of this host; `on_change` is called when the worker can take runs of others than before."""
        profiles = ProfileRegistry.load()
        availability = AgentAvailability(Limits(queue.store), profiles, InstalledAgents.detect(profiles), on_change)
        return cls(profiles, AgentConversations(queue.store), availability, queue)
