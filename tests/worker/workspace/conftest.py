"""A repository for each test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from crew import Crew
from servers import Server
from worker.workspace.depot import ALONE, Depot
from worker.workspace.yard import Yard


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's own configuration of git decides."""
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def depot(tmp_path: Path) -> Depot:
    """With one commit on `main`, which is checked out."""
    made = Depot(tmp_path / "depot")
    made.commit("begin", a__txt="one\ntwo\nthree\n", b__txt="b\n")
    return made


@pytest.fixture
def yard(make_crew: Callable[..., Crew], valkey: Server, folder: Path, depot: Depot) -> Yard:
    """See `yard.py`."""
    return Yard(make_crew(valkey, namespace=folder.name), depot)
