"""Servers with times that only tests would set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers import Server
from serving import Serving

HASTY = {"RUNNER_POLL_TIMEOUT": "1", "RUNNER_HEARTBEAT_INTERVAL": "0.4", "RUNNER_HEARTBEAT_TIMEOUT": "1"}


@pytest.fixture(scope="module")
def hasty(valkey: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server that holds polls for a second, and whose runners are lost after two."""
    serving = Serving(valkey, tmp_path_factory.mktemp("hasty"), environment=HASTY).start()
    yield serving
    serving.stop()
    serving.check()
