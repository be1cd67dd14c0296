"""Eager mode: whatever is submitted has been executed when the submit returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from agentq.sdk.client import set_default_client
from agentq.testing.memory_queue import MemoryClient, MemoryQueue
from agentq.testing.worker import Worker


@contextmanager
def eager(*, raises: bool = False) -> Iterator[MemoryClient]:
    """In here the default client executes each run at its submit, here and now, with its retries and its delays.

    What a function raises is the outcome of its run, as ever; with `raises` it is also raised by the submit.
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
