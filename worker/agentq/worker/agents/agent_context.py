"""What agents' attempts need of their worker, beside what all attempts need."""

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
    """The agents of this host, and how to ask the server about them."""

    profiles: ProfileRegistry
    conversations: AgentConversations
    availability: AgentAvailability
    queue: RunVerbs

    @classmethod
    def detect(cls, queue: RunVerbs, on_change: Callable[[], None]) -> Self:
        """The agents of this host; `on_change` is called when the set of available agents changes."""
        profiles = ProfileRegistry.load()
        availability = AgentAvailability(Limits(queue.store), profiles, InstalledAgents.detect(profiles), on_change)
        return cls(profiles, AgentConversations(queue.store), availability, queue)
