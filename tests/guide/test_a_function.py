"""How a Python function runs elsewhere, in the simplest cases: submitted here, called in a child of a worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import functions
from support.function_workers import Callers
from support.servers import Server, until

from agentq.sdk import Client, Invalid, RunFailed, connect, gather, task


@pytest.fixture
def callers(valkey: Server, folder: Path) -> Iterator[Callers]:
    """Starts workers, real processes, that find the functions of `support.functions`."""
    callers = Callers(valkey, folder, namespace=folder.name)
    yield callers
    callers.close()
    callers.check()


@pytest.fixture
def client(valkey: Server, folder: Path) -> Iterator[Client]:
    """Submits on the same server, and needs nothing else for that."""
    with connect(valkey.url, namespace=folder.name) as client:
        yield client


def test_a_function_is_called_by_a_worker_and_its_result_comes_back(client: Client, callers: Callers) -> None:
    callers.worker()

    runs = [client.submit(functions.added, number, 1) for number in range(3)]

    assert gather(*runs, timeout=30) == [1, 2, 3]
    assert runs[0].state() == "completed"


def test_a_run_is_the_argument_of_another(client: Client, callers: Callers) -> None:
    first = client.submit(functions.added, 1, 2)
    second = client.submit(functions.added, first.later, 10)
    assert second.state() == "blocked"

    callers.worker()

    assert second.result(timeout=30) == 13


def test_a_wrong_argument_is_refused_before_anything_is_sent(client: Client) -> None:
    with pytest.raises(Invalid, match="the argument 'first': it should be a whole number, not 'one'"):
        client.submit("support.functions:added", "one", 2)

    assert list(client.records.all()) == []


def test_an_exception_is_the_end_of_its_run_and_is_told(client: Client, callers: Callers) -> None:
    callers.worker()

    with pytest.raises(RunFailed, match="ValueError: no good") as failed:
        client.submit(functions.raised).result(timeout=30)

    assert failed.value.class_ == "exit"
    assert 'raise ValueError("no good")' in failed.value.tail


def test_the_call_of_a_killed_child_is_called_again(client: Client, callers: Callers, folder: Path) -> None:
    callers.worker()
    run = client.submit(task(retries=1)(functions.slept_until), str(folder / "go"))
    until(lambda: callers.effects("begin")[run.id] == 1, "the call to begin")

    os.kill(callers.pids()[run.id], signal.SIGKILL)
    until(lambda: callers.effects("begin")[run.id] == 2, "it to be called again")
    (folder / "go").touch()

    run.result(timeout=30)
    assert run.record().attempt == 2
