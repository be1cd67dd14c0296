"""Which seeds the simulator runs, and what may be asked of it on the command line.

Every commit gets seeds of its own, and others each day: the first is a number made of both, which the head of the
output shows. `--seeds-from` and `--seeds` run the same ones again, `--seed` one of them alone.
"""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path
from zlib import crc32

import pytest
from support.lanes import is_full

SEEDS, SEEDS_FULL, STEPS = 150, 2000, 200
SEEDS_A_TEST, SEEDS_A_TEST_FULL = 15, 100


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulation")
    group.addoption("--seed", type=int, default=None, help="replay this seed only")
    group.addoption(
        "--seeds", type=int, default=None, help=f"how many seeds to run: {SEEDS}, or {SEEDS_FULL} if --full"
    )
    group.addoption(
        "--seeds-from", type=int, default=None, help="the first of them; by the day and the commit if not given"
    )
    group.addoption("--steps", type=int, default=STEPS, help="how many steps each seed makes before it heals")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the first seed once: the processes of pytest-xdist inherit the options of the one that starts them."""
    if config.option.seeds_from is None:
        config.option.seeds_from = first_seed_of_today()
    if config.option.seeds is None:
        config.option.seeds = SEEDS_FULL if is_full(config) else SEEDS


def first_seed_of_today() -> int:
    here = Path(__file__).parent
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True).stdout
    return crc32(f"{datetime.now(UTC):%Y-%m-%d} {commit}".encode())


def pytest_report_header(config: pytest.Config) -> str:
    return f"simulation: --seeds {config.option.seeds} --seeds-from {config.option.seeds_from}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for a batch of seeds, so that they can run side by side; or one for the seed that was asked for."""
    if "seeds" not in metafunc.fixturenames:
        return
    option = metafunc.config.option
    seeds = range(option.seeds_from, option.seeds_from + option.seeds)
    size = SEEDS_A_TEST_FULL if is_full(metafunc.config) else SEEDS_A_TEST
    batches = [seeds[at : at + size] for at in range(0, len(seeds), size)]
    if option.seed is not None:
        batches = [range(option.seed, option.seed + 1)]
    metafunc.parametrize("seeds", batches, ids=[f"{batch.start}-{batch.stop - 1}" for batch in batches])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A replay runs its seed and nothing else."""
    if config.option.seed is not None:
        items[:] = [item for item in items if "seeds" in getattr(item, "fixturenames", ())]
