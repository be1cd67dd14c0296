"""RQ on agentq: RQ's jobs, producers and tools, with agentq's leases. See the README beside this file.

`Queue` is for producers, and `Worker` for who starts workers with RQ's own command. They are imported when they are
asked for: every worker and every child for functions knows the names of RQ's queues, and few of them need RQ.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentq.worker.rq.queue import RqQueue as Queue
    from agentq.worker.rq.worker import RqWorker as Worker

__all__ = ["Queue", "Worker"]

_LAZY_EXPORTS = {"Queue": ("queue", "RqQueue"), "Worker": ("worker", "RqWorker")}


def __getattr__(name: str) -> Any:
    if name not in _LAZY_EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, defined = _LAZY_EXPORTS[name]
    return getattr(import_module(f"{__name__}.{module}"), defined)
