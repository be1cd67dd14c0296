"""Servers with times that only tests would set."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.http_servers import Serving
from support.servers import Server
from support.worker_protocol import opened

HASTY = {"RUNNER_POLL_TIMEOUT": "1"}


@pytest.fixture(scope="module")
def hasty(valkey: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server that holds polls for a second."""
    serving = Serving(valkey, tmp_path_factory.mktemp("hasty"), environment=HASTY).start()
    yield serving
    serving.stop()
    serving.check()


@pytest.fixture(scope="module")
def guarded(valkey: Server) -> Iterator[Serving]:
    """A coordinator where all clients need a token."""
    path = Path(tempfile.mkdtemp(prefix="aq"))
    serving = Serving(valkey, path, "--require-tokens", heartbeat_ms=1000, lease_ms=600_000, forget_ms=600_000).start()
    yield serving
    opened.close()
    serving.stop()
    serving.check()
    shutil.rmtree(path, ignore_errors=True)
