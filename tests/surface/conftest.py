"""The command line in this process, on a namespace of its own; see tests/cli."""

from __future__ import annotations

import pytest
from cli.conftest import address as address
from cli.conftest import background as background
from cli.conftest import cli as cli
from cli.conftest import here as here
from cli.conftest import real as real


@pytest.fixture
def backend() -> str:
    """How commands reach the server."""
    return "redis"
