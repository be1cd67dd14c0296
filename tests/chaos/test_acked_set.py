"""P1 to P4 and P6 at once: whatever is done to it, every acknowledged run ends exactly once, with its effect.

A seed picks the faults and their times. A test that fails prints the command that replays its seed; `--chaos-seeds 20`
tries as many. A seed replays the faults: what the machine makes of them differs from run to run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos.clock import Clock, durable_server
from chaos.nemesis import torment
from chaos.scene import Scene
from chaos.verdict import judge
from support.servers import Server, until

pytestmark = pytest.mark.needs("libfaketime")

TORMENT_MS = 15_000


@pytest.fixture
def clock(folder: Path) -> Clock:
    """The server's."""
    return Clock(folder)


@pytest.fixture
def server(folder: Path, clock: Clock) -> Iterator[Server]:
    server = durable_server(folder, clock).start()
    yield server
    server.stop()


def test_p1_p2_p4_p6_every_acknowledged_run_ends_exactly_once_whatever_happens(
    server: Server, clock: Clock, folder: Path, chaos_seed: int
) -> None:
    print(f"uv run pytest -n 0 --chaos-seed {chaos_seed}")
    scene = Scene(server, folder, random.Random(chaos_seed), clock=clock)
    with scene.playing():
        until(lambda: scene.journal.ended() >= 3, "work to begin", 30)
        print("faults:", *torment(scene, TORMENT_MS))

    judge(scene)
