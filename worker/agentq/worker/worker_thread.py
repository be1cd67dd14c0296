"""The worker's threads. An unexpected exception in any of them ends the worker.

Without one of its threads a worker would live on and do nothing. So it ends with an exit code that a service manager
sees.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from agentq.coordinator.errors import AgentqError

log = logging.getLogger("agentq.worker")

OnFailure = Callable[[AgentqError], None]
"""Called, in any thread, with the reason why the worker cannot continue."""


class WorkerThread(threading.Thread):
    """A daemon thread that reports the exception that ends it."""

    def __init__(self, target: Callable[[], None], name: str, on_failure: OnFailure) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self._on_failure = on_failure

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:  # noqa: BLE001 - any unexpected error ends the worker
            self._on_failure(wrap_unexpected_error(error, f"in its thread {self.name}"))


def wrap_unexpected_error(error: Exception, where: str) -> AgentqError:
    """Log the traceback of an unexpected exception and return the error that ends the worker."""
    log.error("unexpected error %s", where, exc_info=error)
    return AgentqError(f"The worker cannot go on: {type(error).__name__}: {error} ({where}).")
