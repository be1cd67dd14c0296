"""Embedded servers, each in a folder of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import redis_binary
from starters import end, processes

from agentq.coordinator.embedded import Embedded


@pytest.fixture
def base() -> Iterator[Path]:
    """A short folder; whatever happens, no more than one server has data in it, and none stays behind."""
    folder = Path(tempfile.mkdtemp(prefix="aq"))
    yield folder
    served = {server: pids for server in folder.rglob("*") if server.is_dir() and (pids := processes(server))}
    for pids in served.values():
        for pid in pids:
            end(pid)
    shutil.rmtree(folder)
    assert all(len(pids) == 1 for pids in served.values()), served


@pytest.fixture
def server(base: Path) -> Embedded:
    return Embedded(base / "server")


@pytest.fixture(params=["valkey", "redis"])
def either(request: pytest.FixtureRequest, base: Path) -> Embedded:
    """The server, once for each program that there is."""
    if request.param == "redis" and redis_binary() is None:
        pytest.skip("this machine has no redis-server")
    return Embedded(base / "server", binary=redis_binary() if request.param == "redis" else None)
