"""A client of a real server, in a namespace of the test's own, and a worker for it in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest
from servers import Server

from agentq.sdk import Client, connect, set_default_client
from agentq.testing import Worker

_numbers = count()


@pytest.fixture
def client(valkey: Server) -> Iterator[Client]:
    """A client, through which tasks are submitted during the test."""
    with connect(valkey.url, namespace=f"sdk-{next(_numbers)}") as client:
        before = set_default_client(client)
        yield client
        set_default_client(before)


@contextmanager
def executing(client: Client) -> Iterator[None]:
    """A worker that executes runs as they come, in a thread."""
    over = threading.Event()
    worker = Worker(client)
    faults: list[BaseException] = []

    def work() -> None:
        try:
            while not over.is_set():
                worker.run_all()
                over.wait(0.01)
        except BaseException as fault:
            faults.append(fault)
            raise

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert faults == []


@pytest.fixture
def worker(client: Client) -> Iterator[None]:
    """Runs are executed as they come."""
    with executing(client):
        yield
