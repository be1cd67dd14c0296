"""Eager mode: a submitted run has been executed when the submit returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from agentq.sdk.client import set_default_client
from agentq.testing.memory_queue import MemoryClient, MemoryQueue
from agentq.testing.worker import Worker


@contextmanager
def eager(*, raises: bool = False) -> Iterator[MemoryClient]:
    """Within this context the default client executes each run at its submit, with its retries and delays.

    An exception of a function becomes the outcome of its run; with `raises` it is also raised by the submit.
    """
    client = MemoryClient(MemoryQueue())
    worker = Worker(client)

    def execute() -> None:
        worker.run_until_idle()
        if raises and worker.raised:
            _, error = worker.raised.popitem()
            worker.raised.clear()
            raise error

    client.memory.submitted = execute
    before = set_default_client(client)
    try:
        yield client
    finally:
        set_default_client(before)
        client.close()
