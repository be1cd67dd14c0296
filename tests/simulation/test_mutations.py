"""Whether the simulator would find a bug: some are planted, one at a time, and each must be found."""

from __future__ import annotations

import pytest
from simulation.mutations import MUTATIONS, Mutation
from simulation.simulator import Simulator
from simulation.tapped import Planted, tapped
from simulation.wire import Wire

from agentq.coordinator.scripts import SCRIPTS

SEEDS, STEPS = 1_000, 200


def first_failure(wire: Wire, mutation: Mutation) -> int:
    """The first seed that fails with a bug planted."""
    scripts = [Planted(mutation.file, mutation.plant(), tight=tight) for tight in (False, True)]
    # A pattern that no script has any more must be heard of, and not pass for a bug that was found.
    scripts[0].source(next(script for script in SCRIPTS.values() if scripts[0].has(script)))
    for seed in range(SEEDS):
        try:
            Simulator(wire, seed, scripts[seed % 2]).run(STEPS)
        except AssertionError:
            return seed
    pytest.fail(f"{SEEDS} seeds have not found that {mutation.name}")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_planted_bug_is_found_and_only_that(wire: Wire, mutation: Mutation) -> None:
    seed = first_failure(wire, mutation)

    Simulator(wire, seed, tapped(tight=bool(seed % 2))).run(STEPS)


def test_a_bug_that_cannot_be_planted_is_reported() -> None:
    """A pattern that a script no longer has must not pass for a bug that was planted."""
    stale = Mutation("nothing is planted", "prelude", "what no script has ever said", "")

    with pytest.raises(AssertionError, match="occurs 0 times"):
        Planted(stale.file, stale.plant()).source(SCRIPTS["finish"])
