"""A schedule that cannot be read says so, and holds up no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from conformance.timetable import HOUR, MINUTE, Timetable
from support.world import World

from agentq.coordinator.bounds import HISTORY_KEPT

DAMAGE: dict[str, Callable[[World, str], object]] = {
    "no rule": lambda world, key: world.store.connection.command("HDEL", key, "rule"),
    "a rule that is no JSON": lambda world, key: world.store.connection.command("HSET", key, "rule", "{"),
    "a rule that is none": lambda world, key: world.store.connection.command("HSET", key, "rule", "{}"),
    "a zone that is none": lambda world, key: world.store.connection.command(
        "HSET", key, "rule", '{"cron":"* * * * *","tz":"Mars/Olympus"}'
    ),
    "a line that is none": lambda world, key: world.store.connection.command(
        "HSET", key, "rule", '{"cron":"a b c d e"}'
    ),
    "options that are no JSON": lambda world, key: world.store.connection.command("HSET", key, "options", "{"),
    "nothing to run": lambda world, key: world.store.connection.command("HDEL", key, "spec"),
    "no next tick": lambda world, key: world.store.connection.command("HDEL", key, "next_at_ms"),
    "a next tick that is none": lambda world, key: world.store.connection.command("HSET", key, "next_at_ms", "soon"),
    "a next tick that has been": lambda world, key: world.store.connection.command(
        "HSET", key, "last_at_ms", world.now_ms + HOUR
    ),
    "only a name": lambda world, key: (
        world.store.connection.command("DEL", key),
        world.store.connection.command("HSET", key, "x", "y"),
    ),
    "another type": lambda world, key: (
        world.store.connection.command("DEL", key),
        world.store.connection.command("SET", key, "y"),
    ),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_schedule_that_is_damaged_says_so_and_holds_up_no_other(
    timetable: Timetable, damage: Callable[[World, str], object]
) -> None:
    world, schedules = timetable.world, timetable.schedules
    neighbours = [
        name for name in map("n{}".format, range(30)) if schedules.partition(name) == schedules.partition("a")
    ]
    for name in ("a", *neighbours[:3]):
        timetable.add(name)
    damage(world, world.store.key(schedules.partition("a"), "schedule", "a"))

    timetable.pass_ms(MINUTE)

    assert [timetable.told(name) for name in neighbours[:3]] == [[("made", 1)]] * 3
    broken = schedules.get("a")
    assert broken.state == "faulty"
    assert broken.why
    assert [each.name for each in schedules.all()] == sorted(["a", *neighbours[:3]])
    assert world.fire() == {}, "it is put off"
    timetable.pass_ms(MINUTE)
    schedules.remove("a")
    timetable.add("a")
    timetable.pass_ms(MINUTE)
    assert (schedules.get("a").state, timetable.told("a")) == ("active", [("made", 3)])


def test_a_schedule_whose_record_is_gone_loses_its_place(timetable: Timetable) -> None:
    timetable.add()
    timetable.world.store.connection.command(
        "DEL", timetable.world.store.key(timetable.schedules.partition("s"), "schedule", "s")
    )

    timetable.pass_ms(MINUTE)

    assert list(timetable.schedules.all()) == []


def test_the_history_has_an_end(timetable: Timetable) -> None:
    timetable.add(missed="all", catch_up_ms=24 * HOUR)

    timetable.pass_ms((HISTORY_KEPT + 20) * MINUTE)

    assert len(timetable.schedules.history("s", 1000)) == HISTORY_KEPT
    assert timetable.told()[-1] == ("made", HISTORY_KEPT + 20)
