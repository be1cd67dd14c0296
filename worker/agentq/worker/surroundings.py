"""What an attempt needs of its worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentq.coordinator.queue import Queue
from agentq.worker.agents.profiles import Profiles
from agentq.worker.channel import Channels
from agentq.worker.door import Door
from agentq.worker.environment import Environment
from agentq.worker.narration import Narration
from agentq.worker.reports import Report
from agentq.worker.tree import Cgroups
from agentq.worker.workspace.workspaces import Workspaces


@dataclass(frozen=True, slots=True)
class Surroundings:
    """See above."""

    environment: Environment
    cgroups: Cgroups | None
    logs: Path
    channels: Channels
    say: Callable[[Report], None]
    narration: Narration
    door: Door
    """Where agents may use agentq for their runs."""
    queue: Queue
    """What the server is asked; in a thread, as it may be slow or away."""
    workspaces: Workspaces
    profiles: Callable[[], Profiles]
    """Of the agents that are here."""
