"""For the tests of programs that submit runs: a queue in memory, a clock, a worker in this process, and assertions.

It needs `pip install 'agentq[testing]'`. The fixtures `agentq_client`, `agentq_clock`, `agentq_worker` and
`agentq_eager` come with it.
"""

from agentq.testing.assertions import assert_nothing_submitted, assert_submitted, submitted
from agentq.testing.clock import Clock
from agentq.testing.eager import eager
from agentq.testing.memory import MemoryClient, MemoryQueue
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
