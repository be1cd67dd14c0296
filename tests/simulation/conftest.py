"""A server for the simulator alone, and what may be asked of it on the command line."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import Server, valkey_binary
from simulation.wire import Wire

SEEDS, STEPS, BATCHES = 2000, 200, 20


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulation")
    group.addoption("--seed", type=int, default=None, help="replay this seed only")
    group.addoption("--seeds", type=int, default=SEEDS, help="how many seeds to run")
    group.addoption("--steps", type=int, default=STEPS, help="how many steps each seed makes before it heals")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for a batch of seeds, so that they can run side by side; or one for the seed that was asked for."""
    if "seeds" not in metafunc.fixturenames:
        return
    # Where pytest was not pointed at this folder, it has not read the options that are added here.
    seed, total = metafunc.config.getoption("seed", None), metafunc.config.getoption("seeds", SEEDS)
    batches = [range(at * total // BATCHES, (at + 1) * total // BATCHES) for at in range(BATCHES)]
    if seed is not None:
        batches = [range(seed, seed + 1)]
    metafunc.parametrize("seeds", batches, ids=[f"{batch.start}-{batch.stop - 1}" for batch in batches])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A replay runs its seed and nothing else."""
    if config.getoption("seed", None) is not None:
        items[:] = [item for item in items if "seeds" in getattr(item, "fixturenames", ())]


@pytest.fixture(scope="session")
def steps(request: pytest.FixtureRequest) -> int:
    """How many steps each seed makes."""
    return int(request.config.getoption("steps", STEPS))


@pytest.fixture(scope="session")
def wire() -> Iterator[Wire]:
    """A link to a server that holds nothing else; short stream nodes make short work of reading a stream's end."""
    path = Path(tempfile.mkdtemp(prefix="aq"))
    server = Server(valkey_binary(), path, "--stream-node-max-entries", "10").start()
    wire = Wire(server.url)
    yield wire
    wire.close()
    server.stop()
    shutil.rmtree(path, ignore_errors=True)
