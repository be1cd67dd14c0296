"""A client of a real server, in a namespace of the test's own, and a worker for it in this process."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from itertools import count
from pathlib import Path

import pytest
from sdk.ways import BESIDE, BOTH_WAYS, beside
from support.http_servers import Serving
from support.servers import Server

from agentq.coordinator.queues.queues import Queues
from agentq.sdk import Client, connect, set_default_client
from agentq.testing import Worker

_numbers = count()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What a module in BOTH_WAYS claims holds for a client of Redis, and for one of a coordinator."""
    if "way" in metafunc.fixturenames:
        both = metafunc.module.__name__.rpartition(".")[2] in BOTH_WAYS
        own = set(signature(metafunc.function).parameters)
        # One that makes a client of its own decides by itself which way it goes.
        both = both and ("client" in own or not own & {"valkey_url", "valkey", "durable"})
        metafunc.parametrize("way", ["redis", "http"] if both else ["redis"], scope="module")


@pytest.fixture(scope="module")
def coordinator(valkey: Server) -> Iterator[Serving]:
    """A coordinator over HTTP, in a namespace of its own. What it waits for on the server others would see."""
    path = Path(tempfile.mkdtemp(prefix="aq"))
    serving = Serving(valkey, path, environment={"AGENTQ_SERVER_LOG_LEVEL": "warning"}).start()
    yield serving
    serving.stop()
    serving.check()
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def client(valkey: Server, way: str, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client, through which tasks are submitted during the test."""
    if way == "http":
        serving: Serving = request.getfixturevalue("coordinator")
        opened, direct = connect(serving.url), connect(valkey.url, namespace=serving.settings.namespace)
    else:
        opened = direct = connect(valkey.url, namespace=f"sdk-{next(_numbers)}")
    with opened, direct:
        before = set_default_client(opened)
        BESIDE[opened] = direct
        yield opened
        del BESIDE[opened]
        if way == "http":
            # The namespace is that of all tests, and what this one left would keep the next one's worker busy.
            Queues(direct.queue.store).purge("default", why="the test is over")
        set_default_client(before)


@contextmanager
def executing(client: Client) -> Iterator[None]:
    """A worker that executes runs as they come, in a thread."""
    over = threading.Event()
    worker = Worker(beside(client))
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
