"""A studio for each test, on a server of its own namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agents.real import RealStudio, programs
from agents.sealed import Sealed, can_seal
from agents.studio import Studio
from crew import Crew
from flavours import required
from servers import Server


@pytest.fixture
def studio(make_crew: Callable[..., Crew], valkey: Server, folder: Path) -> Studio:
    """See `studio.py`."""
    return Studio(make_crew, valkey, folder)


@pytest.fixture
def real(studio: Studio, folder: Path) -> Iterator[RealStudio]:
    """A studio with the real agents, sealed off with the stub models. Skipped without them, but never in CI."""
    required(str(programs() or "") or None, "one of the real agents (see .ci/run)")
    required("unshare" if can_seal() else None, "unshare, with the right to make namespaces,")
    sealed = Sealed(folder).start()
    yield RealStudio(studio, sealed, folder / "home")
    studio.crew.close()
    sealed.stop()
