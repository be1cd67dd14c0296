"""Random histories of a whole namespace against a model. A seed that fails is printed with the command to replay it."""

from __future__ import annotations

import re

import pytest
from simulation.simulator import Simulator
from simulation.tapped import tapped
from simulation.wire import Wire

SCRIPTS = tapped(), tapped(tight=True)
"""Every second seed runs with tight limits, where nearly everything takes several calls."""


def simulate(wire: Wire, seed: int, steps: int) -> Simulator:
    simulator = Simulator(wire, seed, SCRIPTS[seed % 2])
    simulator.run(steps)
    return simulator


@pytest.mark.promise("P1", "P2", "P4")
def test_whatever_happens_every_promise_is_kept(wire: Wire, seeds: range, steps: int) -> None:
    """No acknowledged run is lost, no attempt acts after a later one, and in the end every run ends or says why not."""
    for seed in seeds:
        simulate(wire, seed, steps)


def test_the_same_seed_does_the_same_again(wire: Wire) -> None:
    """All but the places in the streams, which are the server's time."""

    def history(seed: int) -> list[str]:
        return [re.sub(r"\d{13}-\d+", "PLACE", line) for line in simulate(wire, seed, 400).told()]

    for seed in range(6):
        assert history(seed) == history(seed)
