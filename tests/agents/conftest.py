"""A studio for each test, on a server of its own namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agents.real import RealAgents
from agents.sealed import Sealed
from support.agent_workers import Agents
from support.crew import Crew
from support.servers import Server


@pytest.fixture
def studio(make_crew: Callable[..., Crew], valkey: Server, folder: Path) -> Agents:
    """See `studio.py`."""
    return Agents(make_crew, valkey, folder)


@pytest.fixture
def real(studio: Agents, folder: Path) -> Iterator[RealAgents]:
    """A studio with the real agents, sealed off with the stub models."""
    sealed = Sealed(folder).start()
    yield RealAgents(studio, sealed, folder / "home")
    studio.crew.close()
    sealed.stop()
