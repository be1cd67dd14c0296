"""What Redis streams do by themselves, and what that means here: section 2.6 of queues.md, on every kind of server."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from support.concurrency import outcome_of
from support.lossy_proxy import Proxy
from support.requirements import FLAVOURS
from support.servers import Server, until
from support.world import World, checked

from agentq.coordinator.duties.janitor import LANE_IDLE_MS, Janitor
from agentq.coordinator.errors import Unreachable
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import Outcome, RetryPolicy, RunSpec
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.storage.connection import Connection
from agentq.coordinator.storage.keys import CONSUMER_GROUP, KEY_KINDS

LANE = "default:5:"
SPEC = RunSpec(kind="command", argv=["true"])
A_NODE_BYTES = 20_000
"""More than a node of a stream takes, and far less than hundreds of entries."""


@pytest.fixture(params=FLAVOURS)
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue({"valkey": "valkey", "redis": "redis7"}[request.param])
    return found


@pytest.fixture
def world(server: Server) -> Iterator[World]:
    """A namespace on each kind of server; all invariants must hold in the end."""
    with closing(Connection(server.url)) as connection, checked(connection) as world:
        yield world


def command(world: World, *words: str | int) -> Any:
    return world.store.connection.command(*words)


def lane_key(world: World, lane: str = LANE) -> str:
    return world.store.key(0, "lane", lane)


def group(world: World) -> dict[str, Any]:
    """What XINFO tells of the lane's group."""
    ((*flat,),) = command(world, "XINFO", "GROUPS", lane_key(world))
    return dict(zip(flat[::2], flat[1::2], strict=True))


def finish(world: World, claims: list[Claim]) -> None:
    assert not any(world.queue.finish([(claim, Outcome()) for claim in claims]))


def read(world: World, worker: str, *lanes: str) -> list[tuple[str, str]]:
    """What a blocking read delivers to a worker, as (lane, entry); nobody has adopted it yet."""
    keys = {lane_key(world, lane): lane for lane in lanes or (LANE,)}
    words = ("XREADGROUP", "GROUP", CONSUMER_GROUP, worker, "COUNT", 1, "STREAMS")
    reply = command(world, *words, *keys, *(">" for _ in keys))
    return [(keys[key], entry) for key, entries in reply or () for entry, _ in entries]


def test_a_finished_run_leaves_nothing_in_its_lane(world: World) -> None:
    """XACK does not delete, and XDEL frees no memory before a whole node is dead."""
    assert sum(1 for _ in world.queue.submit_many([SPEC] * 2000)) == 2000
    full = command(world, "MEMORY", "USAGE", lane_key(world))
    lease = world.worker("w1")

    while claims := lease.claim(100):
        finish(world, claims)

    assert command(world, "XLEN", lane_key(world)) == 0
    assert group(world)["pending"] == 0
    assert command(world, "MEMORY", "USAGE", lane_key(world)) < min(A_NODE_BYTES, full / 5)


def test_a_run_that_lasts_keeps_at_most_its_own_node_in_memory(world: World) -> None:
    lease = world.worker("w1")
    world.submit()
    (lasting,) = lease.claim(1)
    for _ in range(20):
        list(world.queue.submit_many([SPEC] * 100))
        finish(world, lease.claim(100))

    assert command(world, "XLEN", lane_key(world)) <= 2
    assert command(world, "MEMORY", "USAGE", lane_key(world)) < A_NODE_BYTES
    finish(world, [lasting])
    assert command(world, "XLEN", lane_key(world)) == 0


def test_cancelling_a_waiting_run_leaves_its_entry_for_a_claim_to_drop(world: World) -> None:
    """Deleting an entry that was not delivered turns the lag of the group into nil, for good on some servers."""
    cancelled, other = world.submit(), world.submit()
    world.queue.cancel(cancelled)

    assert command(world, "XLEN", lane_key(world)) == 2
    assert group(world)["lag"] == 2
    assert [claim.id for claim in world.worker("w1").claim(5)] == [other]
    assert command(world, "XLEN", lane_key(world)) == 1


@pytest.mark.parametrize("seed", range(6))
def test_the_lag_of_a_lane_is_the_number_of_its_undelivered_entries_after_any_history(world: World, seed: int) -> None:
    """KEDA and Grafana read it. It would be nil after a run ended behind a longer one, if its entry went at once."""
    chance = random.Random(seed)
    leases = [world.worker("w1"), world.worker("w2")]
    runs, held = [world.submit()], list[Claim]()
    for _ in range(120):
        verb = chance.choice(("submit", "submit", "claim", "finish", "release", "cancel", "requeue", "groom"))
        if verb == "submit":
            runs.append(world.submit())
        elif verb == "claim":
            held += chance.choice(leases).claim(chance.randint(1, 3))
        elif verb == "groom":
            world.janitor.run_once(0)
        elif verb in ("cancel", "requeue"):
            outcome_of(partial(getattr(world.queue, verb), chance.choice(runs)))()
        elif held:
            claim = held.pop(chance.randrange(len(held)))
            outcome_of(partial(world.queue.release, claim) if verb == "release" else partial(finish, world, [claim]))()

        found = group(world)
        undelivered = command(world, "XRANGE", lane_key(world), f"({found['last-delivered-id']}", "+")
        assert found["lag"] == len(undelivered)


def test_a_consumer_that_somebody_removed_loses_nothing(world: World) -> None:
    """XGROUP DELCONSUMER drops what the consumer had: nobody would ever be given those entries again."""
    lease = world.worker("w1")
    held, delivered = world.submit(), world.submit()
    (claim,) = lease.claim(1)
    assert len(read(world, "w1")) == 1

    command(world, "XGROUP", "DELCONSUMER", lane_key(world), CONSUMER_GROUP, "w1")
    world.tidy()

    assert claim.id == held
    finish(world, [claim])
    (again,) = world.worker("w2").claim(5)
    assert again.id == delivered
    assert world.get(delivered).attempt == 1


def test_workers_that_are_gone_leave_no_consumer_behind(world: World) -> None:
    """Consumers never expire: 38 million were seen."""
    for number in range(5):
        lease = world.worker(f"left-{number}")
        world.submit()
        (claim,) = lease.claim(1)
        world.queue.release(claim)
        lease.deregister()
    world.held("lost")
    world.watch_ms(world.lost_after_ms())

    assert command(world, "XINFO", "CONSUMERS", lane_key(world), CONSUMER_GROUP) == []


def test_a_consumer_that_never_was_a_worker_is_removed_and_its_entries_go_on(world: World) -> None:
    """Somebody tried a command by hand; only once it has been idle, as a worker may be about to register."""
    run = world.submit()
    assert len(read(world, "by-hand")) == 1

    assert world.janitor.run_once(0).done["consumers"] == 0
    done = Janitor(world.store, idle_ms=0).run_once(0).done

    assert (done["consumers"], done["given_back"]) == (1, 1)
    assert [claim.id for claim in world.worker("w1").claim(1)] == [run]


def test_a_claim_takes_exactly_as_many_as_it_asks_for_over_many_lanes(world: World) -> None:
    """The COUNT of XREADGROUP is for each stream, so that one command over ten lanes can give ten times as many."""
    runs = {priority: world.submit(priority=priority) for priority in range(10)}
    lease = world.worker("w1")

    assert [claim.id for claim in lease.claim(3)] == [runs[9], runs[8], runs[7]]
    assert len(command(world, "XPENDING", lane_key(world, "default:6:"), CONSUMER_GROUP, "-", "+", 10)) == 0


def test_what_a_read_over_many_lanes_delivers_too_much_goes_to_others_at_once(world: World) -> None:
    """The most urgent is kept; a slot that is not there is not filled."""
    lease, other = world.worker("w1"), world.worker("w2")
    runs = [world.submit(priority=priority) for priority in (9, 5, 1)]
    entries = read(world, "w1", "default:9:", "default:5:", "default:1:")
    assert len(entries) == 3

    assert [claim.id for claim in lease.adopt(0, entries, 1)] == runs[:1]

    assert sorted(claim.id for claim in other.claim(5)) == sorted(runs[1:])
    assert [world.get(run).attempt for run in runs] == [1, 1, 1]


def test_an_entry_that_was_delivered_into_a_broken_connection_is_adopted(world: World, server: Server) -> None:
    """The server has booked it on the consumer, and never delivers it again by itself."""
    lease = world.worker("w1")
    world.submit(argv=["opens the lane"])
    finish(world, lease.claim(1))
    run = world.submit()
    with Proxy(server, b"XREADGROUP") as proxy:
        reader = Connection(proxy.url)
        words = (
            "XREADGROUP",
            "GROUP",
            CONSUMER_GROUP,
            "w1",
            "COUNT",
            1,
            "BLOCK",
            5000,
            "STREAMS",
            lane_key(world),
            ">",
        )
        with pytest.raises(Unreachable):
            reader.block(*words, timeout_ms=5000)
        reader.close()
    until(lambda: lease.pending(0), "the read to arrive, whose reply nobody hears")
    assert world.worker("w2").claim(5) == []

    (claim,) = lease.adopt(0, lease.pending(0))

    assert claim.id == run
    assert lease.adopt(0, lease.pending(0)) == [], "what it holds already is passed over"


def test_an_adoption_after_a_claim_whose_reply_was_lost_leaves_nothing_behind(world: World) -> None:
    """Both are found: what the claim took, and what was delivered meanwhile."""
    lease = world.worker("w1")
    world.submit(argv=["opens the lane"])
    finish(world, lease.claim(1))
    first, second = world.submit(), world.submit()
    (partition_lease,) = lease._partition_leases
    world.store.call("worker/claim", 0, "w1", partition_lease.epoch, lease._nonce(partition_lease), 1, 0, "", LANE)
    entries = read(world, "w1")

    assert [claim.id for claim in lease.adopt(0, entries)] == [first, second]


def test_an_entry_whose_reader_died_before_it_adopted_it_goes_to_another(world: World) -> None:
    lease = world.worker("w1")
    run = world.submit()
    assert len(read(world, "w1")) == 1
    del lease

    assert world.watch_ms(world.lost_after_ms()) == ["w1"]

    (claim,) = world.worker("w2").claim(1)
    assert (claim.id, world.get(run).attempt, world.get(run).crashes) == (run, 1, 0)


def test_a_lane_that_nobody_needs_is_closed_and_opened_again_by_the_next_run(world: World) -> None:
    lease = world.worker("w1")
    world.submit()
    finish(world, lease.claim(1))
    world.janitor.run_once(0)
    assert command(world, "EXISTS", lane_key(world)) == 1, "not at once"

    world.pass_ms(2 * LANE_IDLE_MS)
    lease.heartbeat()
    assert world.janitor.run_once(0).done["closed"] == 1
    assert command(world, "EXISTS", lane_key(world)) == 0
    assert lease.claim(1) == []
    assert lease.pending(0) == []

    run = world.submit()
    assert [claim.id for claim in lease.claim(1)] == [run]


def test_a_lane_with_a_run_that_waits_or_is_held_is_never_closed(world: World) -> None:
    lease = world.worker("w1")
    runs = [world.submit(), world.submit()]
    claims = lease.claim(1)
    world.queue.start(claims)
    world.pass_ms(100 * LANE_IDLE_MS)
    lease.heartbeat(claims)

    assert world.janitor.run_once(0).done["closed"] == 0

    finish(world, [*claims, *lease.claim(1)])
    assert world.states(runs) == ["completed", "completed"]


def test_when_everything_is_over_only_what_says_so_lives_for_ever(world: World) -> None:
    """Each line of keys.py says how long its keys live; nothing else is left, and nothing else has no time to live."""
    chance = random.Random(5)
    lease = world.worker("w1")
    options: list[dict[str, object]] = [{}, {"plan": "p"}, {"session": "s"}, {"dedupe_key": "k"}, {"delay_ms": 5}]
    first = world.submit(retry=RetryPolicy(failures=1))
    for number in range(30):
        world.submit(priority=number % 3, **chance.choice(options))
        world.submit(after=[first])
    while any(state not in (State.COMPLETED, State.SKIPPED) for state in world.records.count()["default"]):
        world.pass_ms(10)
        world.tick()
        finish(world, lease.claim(10))
    world.pass_ms(30 * 86_400_000)
    world.tick()
    lease.heartbeat()
    lease.deregister()
    world.janitor.run_once(0)

    (snapshot,) = world.snapshots()
    for_ever = {kind.name for kind in KEY_KINDS if kind.lifetime.startswith("for ever")}
    left = {kind for kind, values in snapshot.values.items() if values}
    assert left - for_ever == {"worker", "departed_workers"}
    assert all(ttl > 0 for name, ttl in snapshot.ttls.items() if ":worker:" in name or name.endswith(":departed"))
