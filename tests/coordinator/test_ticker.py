"""Who keeps the duties, how often each comes round, and what it costs those who only ask."""

from __future__ import annotations

from contextlib import closing

import pytest
from support.servers import Server, until
from support.world import World, checked

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.duties.ticker import LOCK_TICKS, Duty, DutyRound, Ticker
from agentq.coordinator.storage.connection import Connection

TICK_MS = 100_000
"""A keeper is one for some ticks: longer than a test takes on any machine."""


class Counted:
    """A duty that is seldom due, and counts its rounds."""

    def __init__(self, name: str = "counted", *, hasty: bool = False) -> None:
        self.name, self.hasty, self.ticks = name, hasty, 6
        self.rounds = 0

    def run_once(self, partition: int) -> DutyRound:  # noqa: ARG002 - as a duty has it
        self.rounds += 1
        return DutyRound({}, 3_600_000)


def ticker(world: World, *duties: Duty, owner: str = "w1") -> Ticker:
    return Ticker(world.store, duties, TICK_MS, owner=owner)


def test_one_keeps_the_duties_and_the_others_leave_them_alone(world: World) -> None:
    mine, others = Counted(), Counted()

    ticker(world, mine).look(0)
    ticker(world, others, owner="w2").look(0)

    assert (mine.rounds, others.rounds) == (1, 0)
    key = world.store.key(0, "duty_owner")
    assert world.store.connection.command("GET", key) == "w1"
    assert TICK_MS < world.store.connection.command("PTTL", key) <= LOCK_TICKS * TICK_MS


class Mistaken(Counted):
    """A duty with a mistake in it."""

    def run_once(self, partition: int) -> DutyRound:
        super().run_once(partition)
        raise LookupError("nobody thought of this")


def test_a_duty_with_a_mistake_is_told_tried_again_and_holds_up_no_other(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    mistaken, other = Mistaken("mistaken"), Counted()
    keeper = ticker(world, mistaken, other)

    again_at = keeper.look(0)

    assert (mistaken.rounds, other.rounds) == (1, 1)
    assert again_at <= monotonic_ms() + TICK_MS
    assert "nobody thought of this" in str(keeper.fault)
    assert "nobody thought of this" in caplog.text
    assert keeper.done_at_ms.keys() == {"counted"}


def test_when_the_keeper_is_gone_the_next_who_asks_does_everything_at_once(world: World) -> None:
    ticker(world, Counted()).look(0)
    duty = Counted()
    next_one = ticker(world, duty, owner="w2")
    next_one.look(0)
    world.store.connection.command("DEL", world.store.key(0, "duty_owner"))
    next_one._ask_at[0] = 0
    next_one.look(0)

    assert duty.rounds == 1


def test_a_keeper_that_leaves_hands_the_duties_to_the_one_that_asked_last(world: World) -> None:
    """What is due does not stand still until the promise of the keeper ends."""
    leaving, standby = world.worker("w1"), world.worker("w2")
    duty = Counted()
    successor = ticker(world, duty, owner="w2")
    ticker(world, Counted()).look(0)
    successor.look(0)

    leaving.deregister()

    assert [order.order for order in standby.heartbeat().orders] == ["timers"]
    successor.look(0, hasty=True)
    assert duty.rounds == 1


def test_a_worker_that_is_declared_lost_keeps_the_duties_no_longer(world: World) -> None:
    world.worker("w1")
    duty = Counted()
    ticker(world, Counted()).look(0)

    assert world.watch_ms(world.lost_after_ms()) == ["w1"]

    ticker(world, duty, owner="w2").look(0)
    assert duty.rounds == 1


def test_a_worker_that_has_left_cannot_take_the_duties_with_a_late_call(world: World) -> None:
    """Its thread for the duties may still be in a call when it deregisters."""
    world.worker("w1").deregister()
    late, duty = ticker(world, Counted()), Counted()

    late.look(0)
    ticker(world, duty, owner="w2").look(0)

    assert (late.keeps, duty.rounds) == (0, 1)


def test_a_server_that_ends_gives_the_duties_up_and_rings_for_another_server(world: World) -> None:
    ending = ticker(world, Counted(), owner="server-1")
    ending.start()
    key, bell = world.store.key(0, "duty_owner"), world.store.key(0, "duty_wakeup")
    command = world.store.connection.command
    until(lambda: command("GET", key) == "server-1", "the server to keep the duties")
    ticker(world, Counted(), owner="server-2").look(0)

    ending.stop()

    assert command("GET", key) is None
    assert command("XLEN", bell) == 1


def test_a_keeper_that_was_replaced_does_nothing_more(world: World) -> None:
    duty = Counted(hasty=True)
    keeper = ticker(world, duty)
    keeper.look(0)
    world.store.connection.command("SET", world.store.key(0, "duty_owner"), "w2", "PX", 60_000)
    keeper._ask_at[0] = 0
    keeper.look(0, hasty=True)

    assert duty.rounds == 1


def test_p3_a_keeper_from_before_the_servers_clock_was_set_back_keeps_nobody_from_the_duties(world: World) -> None:
    """It is dead, and by the clock it has hours to live."""
    key = world.store.key(0, "duty_owner")
    world.store.connection.command("SET", key, "the dead", "PX", 10_800_000)

    ticker(world, Counted()).look(0)

    assert 0 < world.store.connection.command("PTTL", key) <= LOCK_TICKS * TICK_MS


@pytest.mark.parametrize(("owner", "ticks"), [("w1", 6), ("", 1)])
def test_a_duty_waits_so_many_ticks_for_whom_the_server_tells_of_what_is_due_sooner(
    world: World, owner: str, ticks: int
) -> None:
    duty = Counted()
    one = ticker(world, duty, owner=owner)
    began_ms = monotonic_ms()
    one.look(0)

    assert began_ms + ticks * TICK_MS <= one._due[0][duty] <= monotonic_ms() + ticks * TICK_MS


def test_who_was_told_of_something_due_does_only_what_can_be_hasty(world: World) -> None:
    hasty, calm = Counted("hasty", hasty=True), Counted("calm")
    one = ticker(world, hasty, calm)
    one.look(0)
    one.look(0, hasty=True)

    assert (hasty.rounds, calm.rounds) == (2, 1)


def test_who_asks_whether_the_duties_are_done_sends_one_command(durable: Server) -> None:
    with closing(Connection(durable.url)) as connection, checked(connection) as world:
        ticker(world, world.reaper).look(0)
        asker = ticker(world, world.reaper, owner="w2")
        asker.look(0)
        asker._ask_at[0] = 0
        before = reads(connection)

        asker.look(0)

        assert reads(connection) - before == 2, "its own, and the one that counts"


def reads(connection: Connection) -> int:
    return int(connection.command("INFO", "stats").partition("total_reads_processed:")[2].split()[0])
