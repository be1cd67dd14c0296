"""A worker that is started before its server waits for it, and says so once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from support.crew import Crew
from support.http_servers import Serving
from support.network_line import Line
from support.servers import Server, until


@pytest.fixture
def nowhere(folder: Path) -> Server:
    return Server("", folder / "never started")


@pytest.fixture
def told(capfd: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """All that workers have said on stderr so far."""
    said: list[str] = []

    def read() -> str:
        said.append(capfd.readouterr().err)
        return "".join(said)

    return read


@pytest.mark.full("takes 2 s")
def test_a_worker_waits_for_its_server_at_the_start(
    valkey: Server, nowhere: Server, make_crew: Callable[..., Crew], folder: Path, told: Callable[[], str]
) -> None:
    crew = make_crew(valkey, namespace=folder.name)
    with Line(valkey) as line:
        line.lead_to(nowhere)
        worker = crew.begin(url=line.url)
        until(lambda: "worker waits for it" in told(), "the worker to say that it waits", 60)

        line.lead_to(valkey)
        until(lambda: crew.name_of(worker), "the worker to register", 60)
        names = crew.queue.store.connection.command("CLIENT", "LIST")

        assert told().count("worker waits for it") == 1
        assert f" name=agentq:worker:{crew.name_of(worker)} " in names
        assert " name=agentq " in names, "ours"
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=30) == 0


@pytest.mark.full("takes 5 s")
def test_a_worker_waits_for_its_coordinator_at_the_start(
    valkey: Server,
    nowhere: Server,
    make_crew: Callable[..., Crew],
    make_serving: Callable[..., Serving],
    folder: Path,
    told: Callable[[], str],
) -> None:
    crew = make_crew(valkey, namespace=folder.name)
    serving = make_serving(valkey, namespace=folder.name)
    with Line(serving) as line:
        line.lead_to(nowhere)
        worker = crew.begin_through(line.url)
        until(lambda: "worker waits for it" in told(), "the worker to say that it waits", 60)

        line.lead_to(serving)
        until(lambda: crew.name_of(worker), "the worker to register", 60)

        assert told().count("worker waits for it") == 1


def test_a_worker_that_is_to_end_by_itself_does_not_wait(nowhere: Server, crew_of_nowhere: Crew) -> None:
    assert crew_of_nowhere.begin(url=nowhere.url, burst=True).wait(timeout=60) == 3


@pytest.fixture
def crew_of_nowhere(valkey: Server, make_crew: Callable[..., Crew], folder: Path) -> Crew:
    return make_crew(valkey, namespace=folder.name)
