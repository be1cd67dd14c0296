"""Fixtures for pytest. pytest loads this module in every environment with agentq, so it imports nothing of agentq
until a test uses a fixture."""

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
    """The clock of `agentq_client`; it stands still until the test moves it."""
    from agentq.testing.clock import Clock

    return Clock()


@pytest.fixture
def agentq_client(agentq_clock: Clock) -> Iterator[MemoryClient]:
    """A client with an in-memory queue, which is the default client during the test."""
    from agentq.sdk.client import set_default_client
    from agentq.testing.memory_queue import MemoryClient, MemoryQueue

    client = MemoryClient(MemoryQueue(agentq_clock))
    before = set_default_client(client)
    yield client
    set_default_client(before)
    client.close()


@pytest.fixture
def agentq_worker(agentq_client: MemoryClient) -> Worker:
    """Executes the runs of `agentq_client`, with run_all(), or with run_until_idle(), which moves the clock."""
    from agentq.testing.worker import Worker

    return Worker(agentq_client)


@pytest.fixture
def agentq_eager() -> Iterator[MemoryClient]:
    """A client that executes each run during its submit."""
    from agentq.testing.eager_mode import eager

    with eager() as client:
        yield client
