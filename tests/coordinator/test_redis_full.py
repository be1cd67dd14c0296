"""A server at its memory limit: work goes out, none comes in, and nothing is thrown away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.requirements import FLAVOURS, binary
from support.servers import Server
from support.world import World, checked

from agentq.coordinator.errors import Incompatible, TryLater
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import Outcome, RetryPolicy, RunSpec
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.coordinator.schedules.verbs import make_schedule_rule
from agentq.coordinator.storage.connection import Connection
from agentq.coordinator.storage.keys import Keyspace
from agentq.coordinator.storage.store import NamespaceStore

EXIT = Outcome(class_=OutcomeClass.EXIT, exit_code=1)
SPEC = RunSpec(kind="command", argv=["true"])


@pytest.fixture(params=FLAVOURS)
def server(request: pytest.FixtureRequest, folder: Path) -> Iterator[Server]:
    server = Server(binary(request.param), folder).start()
    yield server
    server.stop()


@pytest.fixture
def world(server: Server) -> Iterator[World]:
    with closing(Connection(server.url)) as connection, checked(connection) as world:
        yield world


def limit(world: World, maxmemory: int) -> Any:
    return world.store.connection.command("CONFIG", "SET", "maxmemory", maxmemory)


def test_a_full_server_finishes_what_it_has(world: World) -> None:
    """Every verb that lets work out runs: a worker that comes, claims, reports and leaves, and all duties."""
    runs = [world.submit(retry=RetryPolicy(failures=1, delay_ms=1)) for _ in range(8)]
    dependent = world.submit(after=runs[:1])
    lost, sleeping = world.submit(queue="other"), world.submit(queue="other")
    both = world.worker("dead", "other").claim(2)
    world.queue.start(both)
    world.queue.park(both[1], "asleep", alarm_at_ms=world.now_ms + 1000)
    limit(world, 1)

    lease = world.worker("w1", "default", "other")
    claims = lease.claim(6)
    assert len(claims) == 6
    assert world.queue.start(claims[:4]) == [None] * 4
    lease.heartbeat(claims)
    assert world.queue.finish([(claim, Outcome()) for claim in claims[:3]]) == [None] * 3
    assert world.queue.fail(claims[3], EXIT) is State.SCHEDULED
    assert world.queue.release(claims[4]) is State.PENDING
    assert world.queue.cancel(claims[5].id) is State.CLAIMED
    assert world.queue.fail(claims[5], EXIT) is State.CANCELLED
    assert world.state(dependent) == "pending"
    world.watch_ms(world.lost_after_ms())
    world.tick()
    world.janitor.run_once(0)
    assert world.states([lost, sleeping]) == ["pending", "pending"]
    lease.register()
    while claims := lease.claim(5):
        world.queue.finish([(claim, Outcome()) for claim in claims])
    lease.drain()
    lease.deregister()

    assert world.states(runs) == ["completed"] * 5 + ["cancelled"] + ["completed"] * 2
    limit(world, 0)


@pytest.mark.parametrize(
    "submit",
    [
        lambda world: world.submit(),
        lambda world: world.submit(delay_ms=1000, plan="p", dedupe_key="k"),
        lambda world: list(world.queue.submit_many([SPEC] * 2500)),
    ],
    ids=["plain", "with a dedupe key", "many"],
)
def test_a_full_server_refuses_new_work_and_nothing_has_changed(
    world: World, submit: Callable[[World], object]
) -> None:
    world.submit()
    limit(world, 1)

    with world.unchanged(), pytest.raises(TryLater, match="memory limit"):
        submit(world)

    limit(world, 0)
    submit(world)


def test_a_full_server_refuses_to_begin_an_ended_run_again(world: World) -> None:
    run = world.submit()
    world.queue.cancel(run)
    limit(world, 1)

    with world.unchanged(), pytest.raises(TryLater):
        world.queue.requeue(run)

    limit(world, 0)
    assert world.queue.requeue(run) is State.PENDING


def test_a_program_that_starts_while_the_server_is_full_can_help_to_empty_it(world: World) -> None:
    """Nobody has to write anything into a namespace to be let in."""
    claim = world.held("w1", started=True)
    limit(world, 1)

    fresh = RunVerbs(NamespaceStore(world.store.connection.another(), world.store.keyspace, clock=lambda: world.now_ms))

    assert fresh.finish([(claim, Outcome())]) == [None]
    limit(world, 0)


def test_a_server_that_throws_keys_away_when_it_is_full_is_refused(world: World) -> None:
    """An evicted run is lost in silence."""
    world.store.connection.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    limit(world, 100_000_000)
    queue = RunVerbs(NamespaceStore(world.store.connection, Keyspace("another")))

    with world.unchanged(), pytest.raises(Incompatible, match="noeviction"):
        queue.submit(SPEC)

    assert world.store.connection.command("KEYS", "*another*") == []


def test_a_tick_that_a_full_server_refuses_comes_when_there_is_room(world: World) -> None:
    world.schedules.add("s", make_schedule_rule(every_ms=60_000), SPEC)
    world.pass_ms(60_000)
    limit(world, 1)

    with world.unchanged(), pytest.raises(TryLater):
        world.fire()
    limit(world, 0)
    world.pass_ms(30_000)
    world.fire()

    (told,) = world.schedules.history("s")
    assert (told.what, [told.run]) == ("made", world.schedules.get("s").live)
    limit(world, 1)
    assert world.schedules.pause("s").state == "paused"
    assert world.schedules.resume("s").state == "active"
    world.schedules.remove("s")
    limit(world, 0)
