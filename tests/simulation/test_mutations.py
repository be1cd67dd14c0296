"""Whether the simulator would find a bug: some are planted, one at a time, and each must be found."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import pytest
from simulation.mutations import MUTATIONS, Mutation
from simulation.simulator import Simulator
from simulation.tapped import Planted, tapped
from simulation.wire import Wire
from support.lanes import is_full

from agentq.coordinator.storage.scripts import SCRIPTS, ScriptSet

SEEDS, STEPS = 1_000, 200
CAUGHT = Path(__file__).with_name("caught.json")
"""The first seed that catches each bug. The full lane searches from the beginning, and writes down what it finds."""


def catches(wire: Wire, seed: int, scripts: ScriptSet) -> bool:
    try:
        Simulator(wire, seed, scripts).run(STEPS)
    except AssertionError:
        return True
    return False


def first_that_catches(wire: Wire, mutation: Mutation, seeds: Iterable[int]) -> int:
    """The first of these seeds that fails with a bug planted."""
    scripts = [Planted(mutation.file, mutation.plant(), tight=tight) for tight in (False, True)]
    # A pattern that no script has any more is reported, and does not pass for a bug that was found.
    scripts[0].source(next(script for script in SCRIPTS.values() if scripts[0].has(script)))
    found = next((seed for seed in seeds if catches(wire, seed, scripts[seed % 2])), None)
    if found is None:
        pytest.fail(f"{SEEDS} seeds have not found that {mutation.name}")
    return found


def write_down(mutation: Mutation, seed: int) -> None:
    """Other processes of the suite write to the same file."""
    with CAUGHT.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        caught = json.load(file)
        file.seek(0)
        json.dump({**caught, mutation.name: seed}, file, indent=1, sort_keys=True)
        file.write("\n")
        file.truncate()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_planted_bug_is_found_and_only_that(wire: Wire, mutation: Mutation, pytestconfig: pytest.Config) -> None:
    """A seed that a changed script has made stale is followed by all others."""
    caught = {} if is_full(pytestconfig) else json.loads(CAUGHT.read_text())
    stored = [caught[mutation.name]] if mutation.name in caught else []
    seed = first_that_catches(wire, mutation, chain(stored, range(SEEDS)))
    if is_full(pytestconfig):
        write_down(mutation, seed)

    Simulator(wire, seed, tapped(tight=bool(seed % 2))).run(STEPS)


def test_a_bug_that_cannot_be_planted_is_reported() -> None:
    """A pattern that a script no longer has must not pass for a bug that was planted."""
    stale = Mutation("nothing is planted", "prelude", "what no script has ever said", "")

    with pytest.raises(AssertionError, match="occurs 0 times"):
        Planted(stale.file, stale.plant()).source(SCRIPTS["attempt/finish"])
