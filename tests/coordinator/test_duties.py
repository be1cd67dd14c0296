"""Who does a duty: one at a time, and never nobody."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers import until
from world import World

from agentq.coordinator.duties.duty import Round, Ticker

TICK_MS = 100
HOUR_MS = 3_600_000


class Counting:
    """A duty that is done as often as it may."""

    name = "reaper"
    hasty = False

    def __init__(self) -> None:
        self.rounds = 0

    def run_once(self, _partition: int) -> Round:
        self.rounds += 1
        return Round({}, TICK_MS)


@pytest.fixture
def ticked(world: World) -> Iterator[tuple[Counting, Ticker]]:
    duty = Counting()
    ticker = Ticker(world.store, [duty], TICK_MS, owner="this one")
    yield duty, ticker
    ticker.stop()


def test_a_duty_is_left_to_whoever_has_its_lock_and_goes_on_when_that_one_is_gone(
    world: World, ticked: tuple[Counting, Ticker]
) -> None:
    duty, ticker = ticked
    command, key = world.store.connection.command, world.store.key(0, "duty", duty.name)
    command("SET", key, "somebody", "PX", 2 * TICK_MS)

    ticker.start()
    until(lambda: duty.rounds, "a round")

    assert command("GET", key) == "this one"
    until(lambda: duty.rounds > 3, "more of them")


def test_p3_a_lock_from_before_the_servers_clock_was_set_back_keeps_nobody_from_a_duty(
    world: World, ticked: tuple[Counting, Ticker]
) -> None:
    """Its holder is dead, and by the clock it has hours to live."""
    duty, ticker = ticked
    world.store.connection.command("SET", world.store.key(0, "duty", duty.name), "the dead", "PX", 3 * HOUR_MS)

    ticker.start()

    until(lambda: duty.rounds, "a round")
