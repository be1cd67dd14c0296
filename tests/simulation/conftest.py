"""A server for the simulator alone."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from simulation.wire import Wire
from support.servers import Server, valkey_binary


@pytest.fixture(scope="session")
def steps(pytestconfig: pytest.Config) -> int:
    """How many steps each seed makes."""
    return int(pytestconfig.option.steps)


@pytest.fixture(scope="session")
def wire() -> Iterator[Wire]:
    """A link to a server that holds nothing else; short stream nodes make short work of reading a stream's end."""
    path = Path(tempfile.mkdtemp(prefix="aq"))
    server = Server(valkey_binary(), path, "--stream-node-max-entries", "10").start()
    wire = Wire(server.url)
    yield wire
    wire.close()
    server.stop()
    shutil.rmtree(path, ignore_errors=True)
