"""Seeds for the tests that break things."""

from __future__ import annotations

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each seed of faults."""
    if "chaos_seed" in metafunc.fixturenames:
        first = metafunc.config.getoption("chaos_seed") or 1
        metafunc.parametrize("chaos_seed", range(first, first + metafunc.config.getoption("chaos_seeds")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A replay runs its seeds and nothing else."""
    if config.getoption("chaos_seed") is not None:
        items[:] = [item for item in items if "chaos_seed" in getattr(item, "fixturenames", ())]
