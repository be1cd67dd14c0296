"""The worker's threads, none of which ends by an unforeseen fault without the worker hearing of it.

Without one of them a worker would live on and do nothing: a fault that no thread expects ends it, with an exit code
that a service manager sees.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from agentq.coordinator.errors import AgentqError

log = logging.getLogger("agentq.worker")

OnFailure = Callable[[AgentqError], None]
"""Who hears why the worker cannot go on; called in whichever thread it was."""


class WorkerThread(threading.Thread):
    """A daemon thread that reports whatever exception ends it."""

    def __init__(self, target: Callable[[], None], name: str, on_failure: OnFailure) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self._on_failure = on_failure

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the worker ends by it
            self._on_failure(wrap_unexpected_error(error, f"in its thread {self.name}"))


def wrap_unexpected_error(error: Exception, where: str) -> AgentqError:
    """What a worker ends with after an exception that nothing expects, whose traceback is logged."""
    log.error("an unforeseen fault %s", where, exc_info=error)
    return AgentqError(f"The worker cannot go on: {type(error).__name__}: {error} ({where}).")
