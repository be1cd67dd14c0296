"""A studio for each test, on a server of its own namespace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from agents.studio import Studio
from crew import Crew
from servers import Server


@pytest.fixture
def studio(make_crew: Callable[..., Crew], valkey: Server, folder: Path) -> Studio:
    """See `studio.py`."""
    return Studio(make_crew, valkey, folder)
