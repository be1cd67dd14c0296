"""A repository and a worker's home for each test."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.repositories import alone as alone
from support.repositories import depot as depot
from support.workspaces import Workshop


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    """The workspaces of a worker."""
    return Workshop(tmp_path / "home")
