"""Fixtures for pytest. It is loaded in every pytest of its environment, so it imports nothing of agentq until a test
asks for a fixture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from agentq.testing.clock import Clock
    from agentq.testing.memory_queue import MemoryClient
    from agentq.testing.worker import Worker


@pytest.fixture
def agentq_clock() -> Clock:
    """The time of `agentq_client`, which stands still until the test moves it."""
    from agentq.testing.clock import Clock

    return Clock()


@pytest.fixture
def agentq_client(agentq_clock: Clock) -> Iterator[MemoryClient]:
    """A client with a queue in memory, through which tasks are submitted during the test."""
    from agentq.sdk.client import set_default_client
    from agentq.testing.memory_queue import MemoryClient, MemoryQueue

    client = MemoryClient(MemoryQueue(agentq_clock))
    before = set_default_client(client)
    yield client
    set_default_client(before)
    client.close()


@pytest.fixture
def agentq_worker(agentq_client: MemoryClient) -> Worker:
    """What executes the runs of `agentq_client`: with run_all(), or run_until_idle(), which moves the clock."""
    from agentq.testing.worker import Worker

    return Worker(agentq_client)


@pytest.fixture
def agentq_eager() -> Iterator[MemoryClient]:
    """A client that has executed a run when its submit returns."""
    from agentq.testing.eager_mode import eager

    with eager() as client:
        yield client
