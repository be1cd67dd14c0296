"""Crews for the tests that break things."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crew import Crew
from servers import Server


@pytest.fixture
def make_crew(folder: Path) -> Iterator[Callable[..., Crew]]:
    """Makes crews; their workers end with the test."""
    crews: list[Crew] = []

    def make(server: Server, **settings: object) -> Crew:
        crews.append(Crew(server, folder, **settings))
        return crews[-1]

    yield make
    for crew in crews:
        crew.close()
