"""A repository and a worker's home for each test."""

from __future__ import annotations

from pathlib import Path

import pytest
from worker.workspace.depot import ALONE, Depot
from worker.worktrees.workshop import Workshop


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
def shop(tmp_path: Path) -> Workshop:
    """The workspaces of a worker."""
    return Workshop(tmp_path / "home")
