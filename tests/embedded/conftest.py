"""Embedded servers, each in a folder of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.embedded_servers import end, processes
from support.requirements import FLAVOURS, binary

from agentq.coordinator.storage.embedded import EmbeddedServer


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
def server(base: Path) -> EmbeddedServer:
    return EmbeddedServer(base / "server")


@pytest.fixture(params=FLAVOURS)
def either(request: pytest.FixtureRequest, base: Path) -> EmbeddedServer:
    """The server, once for each program."""
    return EmbeddedServer(base / "server", binary=binary("redis") if request.param == "redis" else None)
