"""P1 to P4 and P6 at once: whatever is done to it, every acknowledged run ends exactly once, with its effect.

A seed picks the faults and their times; it is printed, and `AGENTQ_CHAOS_SEED=7` replays it. `AGENTQ_CHAOS_SEEDS=20`
tries so many.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from chaos.nemesis import torment
from chaos.scene import Scene
from chaos.verdict import judge
from servers import Server, until

FIRST = int(os.environ.get("AGENTQ_CHAOS_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("AGENTQ_CHAOS_SEEDS", "1")))
TORMENT_MS = 15_000


@pytest.mark.parametrize("seed", SEEDS)
def test_p1_p2_p4_p6_every_acknowledged_run_ends_exactly_once_whatever_happens(
    durable: Server, folder: Path, seed: int
) -> None:
    print(f"AGENTQ_CHAOS_SEED={seed}")
    scene = Scene(durable, folder, random.Random(seed))
    with scene.playing():
        until(lambda: scene.journal.ended() >= 3, "work to begin", 30)
        print("faults:", *torment(scene, TORMENT_MS))

    judge(scene)
