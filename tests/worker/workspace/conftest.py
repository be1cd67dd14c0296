"""A repository for each test."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree

import pytest
from support.crew import Crew
from support.repositories import Depot
from support.repositories import alone as alone
from support.repositories import depot as depot
from support.servers import Server
from support.worktree_runs import Yard, begin


@pytest.fixture(scope="module")
def at_work(valkey: Server) -> Iterator[Crew]:
    """A crew with one worker, for all tests of a module."""
    folder = Path(tempfile.mkdtemp(prefix="aq"))
    crew = Crew(valkey, folder, namespace=folder.name)
    begin(crew, slots=4)
    yield crew
    crew.close()
    crew.check()
    rmtree(folder, ignore_errors=True)


@pytest.fixture
def yard(at_work: Crew, depot: Depot) -> Yard:
    """See `yard.py`; there is a worker already."""
    return Yard(at_work, depot)


@pytest.fixture
def lone(make_crew: Callable[..., Crew], valkey: Server, folder: Path, depot: Depot) -> Yard:
    """A yard without a worker."""
    return Yard(make_crew(valkey, namespace=folder.name), depot)
