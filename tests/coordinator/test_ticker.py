"""How often duties come round, and what they cost those who only ask whether somebody does them."""

from __future__ import annotations

from contextlib import closing

import pytest
from servers import Server
from world import World, checked

from agentq.coordinator.connection import Connection
from agentq.coordinator.duties.duty import Duty, Ticker

TICK_MS = 1000


def duty_of(world: World, name: str) -> Duty:
    duty: Duty = getattr(world, name)
    return duty


@pytest.mark.parametrize(("name", "ticks"), [("promoter", 1), ("reaper", 1), ("janitor", 6)])
def test_a_duty_comes_round_at_its_own_pace_for_who_does_it_and_for_who_would(
    world: World, name: str, ticks: int
) -> None:
    """The janitor came round in every tick, whatever it asked for: 17 commands each time, to find nothing."""
    duty = duty_of(world, name)
    for owner in ("w1", "w2"):
        next_ms = Ticker(world.store, [duty], TICK_MS, owner=owner)._round(duty, 0)

        assert 0.8 * ticks * TICK_MS <= next_ms <= ticks * TICK_MS
    key = world.store.key(0, "duty", name)
    assert world.store.connection.command("GET", key) == "w1"
    assert ticks * TICK_MS < world.store.connection.command("PTTL", key) <= 2 * ticks * TICK_MS


def test_who_asks_whether_a_duty_is_done_sends_one_command(durable: Server) -> None:
    with closing(Connection(durable.url)) as connection, checked(connection) as world:
        duty = duty_of(world, "reaper")
        Ticker(world.store, [duty], TICK_MS, owner="w1")._round(duty, 0)
        asker = Ticker(world.store, [duty], TICK_MS, owner="w2")
        before = commands(connection)

        asker._round(duty, 0)

        assert commands(connection) - before == 2, "its own, and the one that counts"


def commands(connection: Connection) -> int:
    return int(connection.command("INFO", "stats").partition("total_commands_processed:")[2].split()[0])
