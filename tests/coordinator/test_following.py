"""The log of a run, read and followed from any point: across attempts and restarts, to the end and no further."""

from __future__ import annotations

import itertools
import signal

import pytest
from support.logs import FULL, NEVER_MS, Follower, read, say
from support.servers import Server, until
from support.world import World

from agentq.coordinator.bounds import LOG_BYTES, LOG_CHUNK_CHARACTERS, LOG_CHUNKS_PER_CALL
from agentq.coordinator.errors import NotFound
from agentq.coordinator.model.spec import Outcome, RetryPolicy
from agentq.coordinator.runs.logs import Logs
from agentq.coordinator.storage.connection import Connection

EXIT = Outcome.model_validate({"class": "exit", "exit_code": 1})


def test_reading_goes_on_after_any_entry(world: World) -> None:
    claim = world.held()
    say(world, claim, 1, *(f"{number}\n" for number in range(LOG_CHUNKS_PER_CALL)))
    entries = read(world, claim.id)
    assert len(entries) == LOG_CHUNKS_PER_CALL

    for place in (0, 1, 499, 500, 501, 999):
        assert read(world, claim.id, entries[place].id) == entries[place + 1 :]


def test_a_run_that_never_was_has_no_log_to_follow(world: World) -> None:
    unknown = "run_" + "0" * 23
    world.submit()

    with world.unchanged():
        for look in (Logs(world.store).read, Logs(world.store).follow):
            with pytest.raises(NotFound):
                look(unknown)


def test_a_follower_hears_each_line_as_it_comes_and_ends_with_the_run(world: World) -> None:
    run = world.submit()
    follower = Follower(world.store, run)
    (claim,) = world.worker("w1").claim(1)

    for number, line in enumerate(("one\n", "two\n", "three\n"), 1):
        say(world, claim, number, line)
        follower.hears(line)
    world.queue.finish([(claim, Outcome())])

    assert follower.ends() == ["one\n", "two\n", "three\n"]


def test_a_follower_of_a_silent_run_hears_at_once_that_it_has_ended(world: World) -> None:
    claim = world.held()
    follower = Follower(world.store, claim.id)

    world.queue.finish([(claim, Outcome())])

    assert follower.ends() == []


def test_a_follower_hears_of_the_end_though_other_runs_make_more_noise(world: World) -> None:
    claim = world.held()
    follower = Follower(world.store, claim.id)
    for noise in (world.held(f"n{number}") for number in range(50)):
        say(world, noise, 1, "noise\n")
        world.queue.finish([(noise, Outcome())])

    say(world, claim, 1, "signal\n")
    world.queue.finish([(claim, Outcome())])

    assert follower.ends() == ["signal\n"]


def test_an_ended_run_is_read_to_its_end_and_no_further(world: World) -> None:
    claim = world.held()
    say(world, claim, 1, "one\n", "two\n")
    world.queue.finish([(claim, Outcome())])

    with world.unchanged():
        entries = list(Logs(world.store).follow(claim.id, block_ms=NEVER_MS))
    assert [entry.text for entry in entries] == ["one\n", "two\n"]
    assert [entry.text for entry in Logs(world.store).follow(claim.id, entries[0].id, NEVER_MS)] == ["two\n"]


def test_following_goes_across_retries(world: World) -> None:
    claim = world.held(retry=RetryPolicy(failures=1))
    follower = Follower(world.store, claim.id)
    say(world, claim, 1, "fails\n")
    assert world.queue.fail(claim, EXIT, delay_ms=1000) == "scheduled"
    follower.hears("fails\n")

    world.pass_ms(1000)
    world.tick()
    (again,) = world.worker("w2").claim(1)
    say(world, again, 1, "works\n")
    world.queue.finish([(again, Outcome())])

    assert follower.ends() == ["fails\n", "works\n"]
    assert [entry.attempt for entry in follower.heard] == [1, 2]


def test_following_goes_on_when_the_worker_dies(world: World) -> None:
    claim = world.held("w1", started=True)
    follower = Follower(world.store, claim.id)
    say(world, claim, 1, "the last wo")
    assert world.watch_ms(world.lost_after_ms()) == ["w1"]

    (again,) = world.worker("w2").claim(1)
    say(world, again, 1, "from the beginning\n")
    world.queue.finish([(again, Outcome())])

    assert follower.ends() == ["the last wo", "from the beginning\n"]


def test_a_follower_outlives_a_restart_of_the_server(durable: Server) -> None:
    world = World(Connection(durable.url))
    claim = world.held(started=True)
    follower = Follower(world.store, claim.id)
    say(world, claim, 1, "before\n")
    follower.hears("before\n")

    durable.signal(signal.SIGKILL)
    durable.start()
    say(world, claim, 2, "after\n")
    follower.hears("before\n", "after\n")
    world.queue.finish([(claim, Outcome())])

    assert follower.ends() == ["before\n", "after\n"]


def test_a_follower_that_comes_back_goes_on_where_it_stopped(world: World) -> None:
    claim = world.held()
    say(world, claim, 1, "one\n")
    first = Follower(world.store, claim.id)
    first.hears("one\n")
    first.logs.close()
    assert first.ends() == ["one\n"]

    say(world, claim, 2, "two\n")
    second = Follower(world.store, claim.id, first.heard[-1].id)
    second.hears("two\n")
    world.queue.finish([(claim, Outcome())])

    assert second.ends() == ["two\n"]


def test_a_follower_that_is_closed_when_it_is_about_to_wait_does_not_wait(world: World) -> None:
    claim = world.held()
    logs = Logs(world.store)
    say(world, claim, 1, "one\n")
    entries = logs.follow(claim.id, block_ms=NEVER_MS)
    assert next(entries).text == "one\n"
    logs.close()

    assert list(entries) == []
    assert (
        logs._blocking_connection().block("XREAD", "BLOCK", NEVER_MS, "STREAMS", "nothing", "0", timeout_ms=NEVER_MS)
        is None
    )


def test_many_followers_of_one_run_all_hear_all_of_it(world: World) -> None:
    claim = world.held()
    followers = [Follower(world.store, claim.id) for _ in range(10)]
    lines = [f"{number}\n" for number in range(100)]
    for number, line in enumerate(lines, 1):
        say(world, claim, number, line)
    world.queue.finish([(claim, Outcome())])

    assert [follower.ends() for follower in followers] == [lines] * 10


def test_a_silent_follower_asks_the_server_nothing(durable: Server) -> None:
    """It waits in one blocking read, in which the server wakes it; it does not poll."""
    world = World(Connection(durable.url))
    claim = world.held()
    follower = Follower(world.store, claim.id)
    until(lambda: "flags=b" in world.store.connection.command("CLIENT", "LIST"), "the follower to block")
    commands = itertools.count(_commands(world), 1)

    # As many looks as it takes to be sure: each is a command itself, and the only one.
    assert all(_commands(world) == next(commands) + 1 for _ in range(200))

    world.queue.finish([(claim, Outcome())])
    assert follower.ends() == []


def _commands(world: World) -> int:
    stats = str(world.store.connection.command("INFO", "stats"))
    return int(stats.partition("total_commands_processed:")[2].split()[0])


def test_redis_7_keeps_logs_as_well(redis7: Server) -> None:
    world = World(Connection(redis7.url))
    claim = world.held()
    follower = Follower(world.store, claim.id)
    say(world, claim, 1, "one\n")
    say(world, claim, 1, "one\n")
    follower.hears("one\n")
    world.queue.log(claim, 2, [FULL] * LOG_CHUNKS_PER_CALL)
    world.queue.finish([(claim, Outcome())])

    assert "".join(follower.ends()[-LOG_BYTES // LOG_CHUNK_CHARACTERS :]) == "x" * LOG_BYTES
    assert read(world, claim.id)[0].text.startswith(
        f"{4 + LOG_CHUNKS_PER_CALL * len(FULL.text) - LOG_BYTES} bytes are missing here"
    )
    world.check()
