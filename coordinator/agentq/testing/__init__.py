"""Testing kit for programs that submit runs: an in-memory queue, a clock, a worker in this process, and assertions.

It needs the extra `testing`, and provides the fixtures `agentq_client`, `agentq_clock`, `agentq_worker` and
`agentq_eager`.

pytest loads the plugin, and this package with it, in every environment where agentq is installed. So modules are
imported only when one of their names is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentq.testing.assertions import assert_nothing_submitted, assert_submitted, submitted
    from agentq.testing.clock import Clock
    from agentq.testing.eager_mode import eager
    from agentq.testing.memory_queue import MemoryClient, MemoryQueue
    from agentq.testing.worker import Worker

__all__ = [
    "Clock",
    "MemoryClient",
    "MemoryQueue",
    "Worker",
    "assert_nothing_submitted",
    "assert_submitted",
    "eager",
    "submitted",
]

_LAZY_EXPORTS = {
    "Clock": "clock",
    "MemoryClient": "memory_queue",
    "MemoryQueue": "memory_queue",
    "Worker": "worker",
    "assert_nothing_submitted": "assertions",
    "assert_submitted": "assertions",
    "eager": "eager_mode",
    "submitted": "assertions",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY_EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_LAZY_EXPORTS[name]}"), name)
    globals()[name] = found
    return found
