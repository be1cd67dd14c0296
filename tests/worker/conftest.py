"""Some tests of this folder run in a process of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.function_workers import Callers
from support.own_process import FILES, is_alone
from support.servers import Server

collect_ignore = ["test_own_process.py"] if is_alone() else list(FILES)


@pytest.fixture
def callers(valkey: Server, folder: Path) -> Iterator[Callers]:
    """A namespace with workers that call functions; it is in order in the end."""
    callers = Callers(valkey, folder, namespace=folder.name)
    yield callers
    callers.close()
    callers.check()
