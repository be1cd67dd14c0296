"""What a worker offers to runs that demand something: labels that it is given, and those that it has by itself."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping

from agentq.coordinator.model.demands import HOST_LABEL, VERSION_LABEL, WORKER_LABEL
from agentq.coordinator.package_version import installed_version
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.worker.agents.agent_context import AgentContext


class WorkerLabels:
    """Of one worker, which hears when it can take runs of other agents than before."""

    def __init__(self, worker: str, queue: RunVerbs, on_change: Callable[[], None]) -> None:
        self._built_in = {HOST_LABEL: socket.gethostname(), WORKER_LABEL: worker, VERSION_LABEL: installed_version()}
        self._queue = queue
        self._on_change = on_change
        self.agents = AgentContext.detect(queue, on_change)

    def combine(self, given: Mapping[str, str]) -> dict[str, str]:
        """All of them."""
        return {**given, **self._built_in, **self.agents.availability.labels()}

    def reload(self) -> None:
        """Profiles may have changed, and agents may have been installed or removed."""
        before, self.agents = self.agents, AgentContext.detect(self._queue, self._on_change)
        before.availability.close()
