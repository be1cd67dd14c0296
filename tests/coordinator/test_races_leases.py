"""Races between a worker that comes back and those who have given it up. R-numbers are those of actors-and-races.md."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from support.concurrency import ThreadBarrier, outcome_of
from support.servers import until
from support.world import World

from agentq.coordinator.bounds import CRASHES, START_DEADLINE_MS
from agentq.coordinator.duties.ticker import Ticker
from agentq.coordinator.errors import Duplicate, Evicted, Fenced
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.workers.lease import WorkerLease

ROUNDS = 100


def a_later_moment(world: World, than_ms: int) -> bool:
    seconds, micros = world.store.connection.command("TIME")
    return int(seconds) * 1000 + int(micros) // 1000 > than_ms


def keep_alive(world: World, lease: WorkerLease, held: list[Claim], milliseconds: int) -> list[Claim]:
    """Let time pass while a worker sends its heartbeats; returns what it was told that it no longer has."""
    end, fenced_claims = world.now_ms + milliseconds, []
    while world.now_ms < end:
        world.pass_ms(min(world.settings.heartbeat_ms, end - world.now_ms))
        fenced_claims += lease.heartbeat(held).fenced_claims
        held = [claim for claim in held if claim not in fenced_claims]
    return fenced_claims


def to_the_boundary(world: World) -> None:
    """Let a worker's lease run out and its mark grow old: the next reap declares it lost, unless it comes back."""
    world.reap()
    world.pass_ms(world.settings.tick_ms)
    while not world.reaper.reap(0).doubtful:
        world.pass_ms(world.settings.tick_ms)
    world.pass_ms(world.settings.reap_grace_ms)


def test_every_attempt_has_a_deadline_of_its_own_to_start(world: World) -> None:
    """R7: a worker that claims and never starts loses the run, and the next has as long again; in the end it fails."""
    run, lease = world.submit(), world.worker("w1")
    for attempt in range(1, CRASHES + 2):
        world.pass_ms(world.settings.heartbeat_ms)
        world.tick()
        lease.heartbeat()
        (claim,) = lease.claim(1)
        assert world.get(run).attempt == attempt

        assert keep_alive(world, lease, [claim], START_DEADLINE_MS - 1) == []
        assert world.state(run) == "claimed"
        world.pass_ms(1)
        assert lease.heartbeat([claim]).fenced_claims == [claim]
        world.pass_ms(300_000)

    ended = world.get(run)
    assert ended.state is State.FAILED
    assert ended.outcome is not None
    assert ended.outcome.error == "it was claimed and not started"


def test_a_run_that_has_started_is_never_taken_from_a_worker_that_is_alive(world: World) -> None:
    """R7."""
    run, lease = world.submit(), world.worker("w1")
    (claim,) = lease.claim(1)
    world.queue.start([claim])

    assert keep_alive(world, lease, [claim], 3 * START_DEADLINE_MS) == []

    assert world.state(run) == "running"


def test_a_run_whose_patience_ended_says_so_in_its_state(world: World) -> None:
    """R8: not only to whoever happened to ask; and an operator can let it begin again."""
    run = world.submit(expires_ms=1000)
    world.pass_ms(1000)
    world.tick()

    ended = world.get(run)
    assert (ended.state, ended.outcome and ended.outcome.class_) == (State.FAILED, OutcomeClass.TIMEOUT)
    assert world.queue.requeue(run) is State.PENDING
    world.pass_ms(86_400_000)
    world.tick()
    assert [claim.id for claim in world.worker("w1").claim(1)] == [run], "with patience without end"


def test_a_heartbeat_and_the_reaper_at_the_boundary_save_the_worker_or_lose_it(world: World) -> None:
    """R15: never half of each."""
    lease = world.worker("w1")
    seen: set[bool] = set()
    with ThreadBarrier(2) as threads:
        for number in range(ROUNDS):
            run = world.submit()
            (claim,) = lease.claim(1)
            to_the_boundary(world)

            beat, lost = threads.race(number, outcome_of(partial(lease.heartbeat, [claim])), world.reap)

            evicted = isinstance(beat, Evicted)
            seen.add(evicted)
            assert lost == (["w1"] if evicted else [])
            assert world.state(run) == ("pending" if evicted else "claimed")
            if evicted:
                assert lease.register() == []
                (claim,) = lease.claim(1)
            assert world.queue.finish([(claim, Outcome())]) == [None]
            world.check()
    assert seen == {True, False}


def test_a_worker_that_registers_at_the_boundary_has_its_runs_or_a_new_life(world: World) -> None:
    """R15: never both; what it has no more, it is refused."""
    lease = world.worker("w1")
    seen: set[bool] = set()
    with ThreadBarrier(2) as threads:
        for number in range(ROUNDS):
            run = world.submit()
            (claim,) = lease.claim(1)
            to_the_boundary(world)

            held, lost = threads.race(number, lease.register, world.reap)

            seen.add(bool(held))
            assert (held, lost) in (([(run, claim.fence)], []), ([], ["w1"]))
            if lost:
                assert isinstance(world.queue.finish([(claim, Outcome())])[0], Fenced)
                (claim,) = lease.claim(1)
            assert world.queue.finish([(claim, Outcome())]) == [None]
    assert seen == {True, False}


def test_two_processes_that_come_for_one_id_at_the_boundary_are_one_worker(world: World) -> None:
    """R15, R18: one of them gets the id, the other is told so, and neither has the other's runs."""
    with ThreadBarrier(3) as threads:
        for number in range(ROUNDS // 2):
            claim = world.held(f"w{number}")
            to_the_boundary(world)
            acts = [outcome_of(partial(world.worker, f"w{number}"))] * 2

            *leases, _ = threads.at_once(*acts, world.reap)

            assert sorted(type(lease).__name__ for lease in leases) == ["Duplicate", "WorkerLease"]
            (winner,) = [lease for lease in leases if isinstance(lease, WorkerLease)]
            (again,) = winner.claim(5)
            assert again.id == claim.id
            assert world.queue.finish([(again, Outcome())]) == [None]
            winner.deregister()


def test_the_late_cleanup_of_an_old_life_does_nothing_to_the_new_one(world: World) -> None:
    """R16: it is fenced by the epoch of the life that it belongs to."""
    old = world.worker("w1")
    world.pass_ms(world.settings.lease_ms)
    new = world.worker("w1")
    run = world.submit()
    (claim,) = new.claim(1)

    with world.unchanged():
        old.deregister()
        for late in (old.drain, old.heartbeat, partial(old.claim, 1), partial(old.adopt, 0, [(claim.lane, "1-1")])):
            with pytest.raises(Evicted):
                late()

    assert not new.heartbeat([claim]).draining
    assert world.state(run) == "claimed"


def test_a_worker_that_was_away_can_be_given_runs_after_one_heartbeat(world: World) -> None:
    """R17: not marked, not swept, or marked and not swept: it is as good as new."""
    lease = world.worker("w1")
    world.pass_ms(world.settings.lease_ms)
    for run in [world.submit(), world.submit()]:
        with pytest.raises(Evicted, match="send a heartbeat first"):
            lease.claim(1)
        lease.heartbeat()

        assert [claim.id for claim in lease.claim(1)] == [run]
        to_the_boundary(world)

    lease.heartbeat()
    assert world.watch_ms(world.settings.lease_ms - 1) == [], "the old mark does not count"


def test_a_second_process_with_the_id_of_a_live_one_is_refused_and_the_first_goes_on(world: World) -> None:
    """R18: they do not throw each other out in turns."""
    lease = world.worker("w1")
    for _ in range(5):
        world.pass_ms(world.settings.heartbeat_ms)
        with world.unchanged(), pytest.raises(Duplicate):
            world.worker("w1")
        lease.heartbeat()

    assert lease.claim(1) == []


def test_a_registration_that_was_sent_twice_is_one(world: World) -> None:
    """R18: its reply was lost; the process that asks again is the same."""
    lease = world.worker("w1")
    words = ("w1", "0", "operation-1", world.settings.lease_ms, "0.5", lease.identity.model_dump_json())
    lease.deregister()

    first = world.store.call("worker/register", 0, *words)
    again = world.store.call("worker/register", 0, *words)

    assert (first[0], first[1]) == (again[0], again[1])
    assert (first[2], again[2]) == (0, 1), "the second call resumed what the first had begun"
    world.store.call("worker/deregister", 0, "w1", first[1])


def test_nothing_from_an_earlier_life_of_a_worker_is_accepted(world: World) -> None:
    """R22."""
    lease = world.worker("w1")
    runs = [world.submit() for _ in range(3)]
    old = lease.claim(3)
    world.queue.start(old[:1])
    assert world.watch_ms(world.lost_after_ms()) == ["w1"]
    assert lease.register() == []
    new = lease.claim(3)
    assert [claim.id for claim in new] == runs

    with world.unchanged():
        assert all(isinstance(word, Fenced) for word in world.queue.start(old))
        assert all(isinstance(word, Fenced) for word in world.queue.finish([(claim, Outcome()) for claim in old]))
        for claim in old:
            with pytest.raises(Fenced):
                world.queue.report(claim, 1, {"step": 1})
            with pytest.raises(Fenced):
                world.queue.release(claim)

    assert lease.heartbeat([*old, *new]).fenced_claims == old, "though by their ids these are its own again"
    assert lease.heartbeat([*new, *old]).fenced_claims == old
    assert keep_alive(world, lease, new, world.settings.forget_ms) == []
    assert world.queue.finish([(claim, Outcome()) for claim in new]) == [None] * 3


def test_orders_to_a_worker_are_numbered_on_through_its_lives(world: World) -> None:
    """R26: so that an order to the new life is never taken for one that the old has carried out."""
    numbers: list[tuple[int, ...]] = []
    for _ in range(3):
        lease = world.worker("w1")
        run = world.submit()
        lease.claim(1)
        world.queue.cancel(run)
        numbers.extend(tuple(map(int, order.id.split("-"))) for order in lease.heartbeat().orders)
        lease.deregister()
        until(partial(a_later_moment, world, numbers[-1][0]), "a millisecond to pass")

    assert numbers == sorted(set(numbers))
    assert len(numbers) >= 3


def test_thirty_workers_that_die_together_are_lost_as_fast_as_one(world: World) -> None:
    """A rack goes dark: its runs do not wait for each other."""
    for number in range(30):
        world.submit(queue=f"q{number}")
        world.worker(f"w{number}", f"q{number}").claim(1)

    lost = world.watch_ms(world.lost_after_ms())

    assert len(lost) == 30
    assert world.records.count() == {f"q{number}": {State.PENDING: 1} for number in range(30)}


def another_server(world: World) -> None:
    """A restart, or a failover: what the evidence was worth before, nobody knows."""
    world.reaper.server = "server-2"


def a_gap(world: World) -> None:
    """No reaper was there: the server may have been frozen, or out of everyone's reach."""
    world.pass_ms(3 * world.settings.tick_ms + 1)


@pytest.mark.parametrize("change", [another_server, a_gap])
def test_whoever_was_missing_before_the_reaper_watched_has_a_full_lease_to_come_back(
    world: World, change: Callable[[World], None]
) -> None:
    """P3: and not longer."""
    lease, claim = world.worker("back"), world.held("away", queue="default")
    to_the_boundary(world)
    change(world)

    assert world.watch_ms(world.settings.lease_ms - 1) == []
    lease.heartbeat()
    assert world.watch_ms(world.settings.tick_ms) == ["away"]
    assert world.state(claim.id) == "pending"


def asks_for_the_duties(world: World) -> None:
    """A process that could reap: it can reach the server, whoever keeps the duties."""
    Ticker(world.store, [], world.settings.tick_ms, owner="standby").look(0)


@pytest.mark.parametrize("keepers_last_tick", [0, 1])
def test_p3_a_keeper_that_dies_costs_the_runs_of_a_dead_worker_no_further_lease(
    world: World, keepers_last_tick: int
) -> None:
    """The one that asks for the duties has reached the server all the while."""
    claim = world.held("away")
    tick_ms = world.settings.tick_ms
    assert world.watch_ms(keepers_last_tick * tick_ms) == []
    left_ms = world.settings.lease_ms - keepers_last_tick * tick_ms
    while left_ms > 0:  # for longer than any gap, no reaper looks
        asks_for_the_duties(world)
        world.pass_ms(tick_ms)
        left_ms -= tick_ms

    assert world.watch_ms(world.settings.reap_grace_ms) == ["away"]
    assert world.state(claim.id) == "pending"


def test_p3_that_the_server_is_asked_again_after_a_gap_does_not_close_the_gap(world: World) -> None:
    """It was away from everyone, and every worker has a full lease to come back."""
    world.held("away")
    world.reap()
    world.pass_ms(3 * world.settings.tick_ms + 1)
    for _ in range(4):
        asks_for_the_duties(world)
        world.pass_ms(world.settings.tick_ms)

    assert world.watch_ms(world.settings.lease_ms - 1) == []
    assert world.watch_ms(world.settings.tick_ms) == ["away"]
