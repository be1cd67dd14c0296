"""RQ on agentq: RQ's jobs, producers and tools, with agentq's leases. See the README beside this file.

`Queue` is for producers, and `Worker` for who starts workers with RQ's own command. They are imported when they are
asked for: every worker and every child for functions knows the names of RQ's queues, and few of them need RQ.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentq.worker.rq.queue import Queue as Queue
    from agentq.worker.rq.worker import Worker as Worker

_HOMES = {"Queue": "queue", "Worker": "worker"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
