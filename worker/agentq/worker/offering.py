"""What a worker offers to runs that demand something: labels that it is given, and those that it has by itself."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping

from agentq.coordinator.demands import HOST, VERSION, WORKER
from agentq.coordinator.queue import Queue
from agentq.coordinator.release import installed_version
from agentq.worker.agents.surroundings import Agents


class Offering:
    """Of one worker, which hears when it can take runs of other agents than before."""

    def __init__(self, worker: str, queue: Queue, changed: Callable[[], None]) -> None:
        self._built_in = {HOST: socket.gethostname(), WORKER: worker, VERSION: installed_version()}
        self._queue = queue
        self._changed = changed
        self.agents = Agents.here(queue, changed)

    def labels(self, given: Mapping[str, str]) -> dict[str, str]:
        """All of them."""
        return {**given, **self._built_in, **self.agents.availability.labels()}

    def look_again(self) -> None:
        """Profiles may have changed, and agents may have been installed or removed."""
        before, self.agents = self.agents, Agents.here(self._queue, self._changed)
        before.availability.close()
