"""A studio for each test, on a server of its own namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agents.real import RealStudio
from agents.sealed import Sealed
from support.agent_studio import Studio
from support.crew import Crew
from support.servers import Server


@pytest.fixture
def studio(make_crew: Callable[..., Crew], valkey: Server, folder: Path) -> Studio:
    """See `studio.py`."""
    return Studio(make_crew, valkey, folder)


@pytest.fixture
def real(studio: Studio, folder: Path) -> Iterator[RealStudio]:
    """A studio with the real agents, sealed off with the stub models."""
    sealed = Sealed(folder).start()
    yield RealStudio(studio, sealed, folder / "home")
    studio.crew.close()
    sealed.stop()
