"""RQ's keys have no namespace, so each test has a server of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rq_jobs.adoption import Adoption
from rq_jobs.fleet import Fleet
from support.invariants import check, take_snapshot
from support.servers import Server, free_port, valkey_binary

from agentq.coordinator.config.settings import Settings


@pytest.fixture
def rq_server(folder: Path) -> Iterator[Server]:
    server = Server(valkey_binary(), folder / "server", port=free_port()).start()
    yield server
    server.stop()


@pytest.fixture
def adoption(rq_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Adoption]:
    """RQ and agentq on one server, whose address the environment tells."""
    monkeypatch.setenv("AGENTQ_URL", rq_server.url)
    monkeypatch.delenv("AGENTQ_NAMESPACE", raising=False)
    adoption = Adoption(rq_server, Settings(url=rq_server.url))
    yield adoption
    for base in adoption.store.keyspace.bases():
        check(take_snapshot(adoption.store.connection, base))
    adoption.client.connection_pool.disconnect()
    adoption.store.connection.close()


@pytest.fixture
def fleet(rq_server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    """The same, with real processes."""
    fleet = Fleet(rq_server, folder)
    for name, value in fleet.settings.to_environment().items():
        monkeypatch.setenv(name, value)
    yield fleet
    fleet.close()
    fleet.client.connection_pool.disconnect()
    fleet.store.connection.close()
