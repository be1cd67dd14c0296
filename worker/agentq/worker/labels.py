"""The labels that a worker offers to runs: those from its settings, and built-in ones."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping

from agentq.coordinator.model.demands import HOST_LABEL, VERSION_LABEL, WORKER_LABEL
from agentq.coordinator.package_version import installed_version
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.worker.agents.agent_context import AgentContext


class WorkerLabels:
    """Combines the labels of one worker; calls `on_change` when the set of available agents changes."""

    def __init__(self, worker: str, queue: RunVerbs, on_change: Callable[[], None]) -> None:
        self._built_in = {HOST_LABEL: socket.gethostname(), WORKER_LABEL: worker, VERSION_LABEL: installed_version()}
        self._queue = queue
        self._on_change = on_change
        self.agents = AgentContext.detect(queue, on_change)

    def combine(self, given: Mapping[str, str]) -> dict[str, str]:
        """The given labels, the built-in ones and those of the available agents."""
        return {**given, **self._built_in, **self.agents.availability.labels()}

    def reload(self) -> None:
        """Read profiles and installed agents again."""
        before, self.agents = self.agents, AgentContext.detect(self._queue, self._on_change)
        before.availability.close()
