"""Races around cancelling a run and draining a worker. R-numbers are those of actors-and-races.md."""

from __future__ import annotations

from functools import partial

import pytest
from support.concurrency import ThreadBarrier, outcome_of
from support.world import World

from agentq.coordinator.bounds import STOP_DEADLINE_MS
from agentq.coordinator.errors import Draining, Fenced, NotFound, Stopping
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.workers.lease import WorkerLease, order_drain

ROUNDS = 150
STOPPED = Outcome(class_=OutcomeClass.CANCELLED)


def orders(lease: WorkerLease, kind: str, held: list[Claim] | None = None) -> list[str]:
    """The runs, or nothing, that orders of a kind are about; all orders are then carried out."""
    found = lease.heartbeat(held or []).orders
    lease.heartbeat(held or [], applied=found)
    return [order.run for order in found if order.order == kind]


def test_a_second_cancel_orders_nothing_and_moves_no_deadline(world: World) -> None:
    """R4."""
    run, lease = world.submit(), world.worker("w1")
    (claim,) = lease.claim(1)
    world.queue.cancel(run)
    deadline = world.now_ms + STOP_DEADLINE_MS

    for _ in range(3):
        world.pass_ms(STOP_DEADLINE_MS // 4)
        assert world.queue.cancel(run) is State.CLAIMED
        assert world.get(run).stop_at_ms == deadline
        lease.heartbeat([claim])

    assert orders(lease, "stop", [claim]) == [run]
    world.pass_ms(STOP_DEADLINE_MS // 4)
    world.tick()
    assert world.state(run) == "cancelled"


def test_cancels_at_the_same_moment_order_one_stop(world: World) -> None:
    """R4."""
    lease = world.worker("w1")
    with ThreadBarrier(8) as threads:
        for _ in range(10):
            run = world.submit()
            (claim,) = lease.claim(1)
            threads.at_once(*[partial(world.queue.cancel, run)] * 8)

            assert orders(lease, "stop", [claim]).count(run) == 1
            assert world.event_names(run).count("stop_ordered") == 1
            world.queue.fail(claim, STOPPED)


def test_a_second_park_is_answered_and_does_nothing(world: World) -> None:
    """R4."""
    claim = world.held("w1", started=True)
    world.queue.park(claim, "asleep", alarm_at_ms=world.now_ms + 1000)

    with world.unchanged():
        assert world.queue.park(claim, "asleep", alarm_at_ms=world.now_ms + 9000) is State.WAITING


def test_a_cancel_and_a_claim_at_the_same_moment_end_in_one_of_two_ways(world: World) -> None:
    """R9: it was cancelled and nobody has it, or its worker has it together with the order to stop."""
    lease = world.worker("w1")
    seen = set()
    with ThreadBarrier(2) as threads:
        for number in range(ROUNDS):
            run = world.submit()
            threads.race(number, partial(world.queue.cancel, run), partial(lease.claim, 5))

            held = world.records.workers()[0].runs
            state = world.state(run)
            seen.add(state)
            if state == "cancelled":
                assert held == []
            else:
                assert (state, held) == ("claimed", [run])
                assert orders(lease, "stop") == [run]
                claim = Claim(*lease.register()[0], "", "")
                assert isinstance(world.queue.start([claim])[0], Stopping)
                world.queue.fail(claim, STOPPED)
                assert world.state(run) == "cancelled"
    assert seen == {"cancelled", "claimed"}


def test_a_patience_that_ends_as_the_run_is_claimed_ends_it_or_lets_it_begin(world: World) -> None:
    """R9: never both."""
    lease = world.worker("w1")
    with ThreadBarrier(2) as threads:
        for _ in range(ROUNDS // 2):
            run = world.submit(expires_ms=1)
            world.pass_ms(1)
            threads.at_once(world.tick, partial(lease.claim, 5))

            assert world.state(run) == "failed"
            assert world.records.workers()[0].runs == []
            assert world.event_names(run) == ["submitted", "failed"]


def test_what_was_delivered_to_a_worker_that_began_to_drain_goes_to_another_at_once(world: World) -> None:
    """R11: a drain may take hours, and this run has not even begun."""
    world.submit(argv=["first"])
    lease, other = world.worker("w1"), world.worker("w2")
    lease.claim(1)
    run = world.submit()
    lane = lease.lanes(0)[0]
    key = world.store.key(0, "lane", lane)
    read = ("XREADGROUP", "GROUP", "workers", "w1", "COUNT", 1, "STREAMS", key, ">")
    ((_, ((entry, _),)),) = world.store.connection.command(*read)
    order_drain(world.store, 0, "w1", "scaled down")

    with pytest.raises(Draining):
        lease.adopt(0, [(lane, entry)])

    assert [claim.id for claim in other.claim(5)] == [run]
    assert world.get(run).attempt == 1, "it cost the run nothing"
    assert lease.pending(0) == lease.pending(0)[:1], "only what it holds is left"


def test_a_draining_worker_is_told_so_and_gets_nothing(world: World) -> None:
    """R11."""
    lease = world.worker("w1")
    run = world.submit()
    lease.drain()

    with pytest.raises(Draining):
        lease.claim(1)

    assert lease.heartbeat().draining
    assert world.state(run) == "pending"


def test_a_worker_is_told_once_to_drain_however_many_say_so(world: World) -> None:
    """R12."""
    lease = world.worker("w1")
    with ThreadBarrier(4) as threads:
        threads.at_once(*[lambda: order_drain(world.store, 0, "w1", "by the pool")] * 3, lease.drain)

    assert len(orders(lease, "drain")) == 1


def test_a_drain_of_a_worker_that_has_left_is_refused(world: World) -> None:
    """R12."""
    world.worker("w1").deregister()

    with world.unchanged(), pytest.raises(NotFound, match="worker w1"):
        order_drain(world.store, 0, "w1", "too late")


def test_a_drain_never_ends_a_run(world: World) -> None:
    """R13: what is left in the hands of a worker that leaves goes on elsewhere, at no cost."""
    claim, never = world.held("w1", started=True), world.submit(queue="other")
    lease = world.worker("w2", "other")
    lease.claim(1)
    lease.drain()
    lease.deregister()

    assert world.states([claim.id, never]) == ["running", "pending"]
    assert world.event_names(never)[-1] == "released"
    assert (world.get(never).failures, world.get(never).crashes) == (0, 0)


def test_an_ordered_stop_wins_over_a_drain(world: World) -> None:
    """R13: cancelled means cancelled, though the worker leaves before it could confirm."""
    lease = world.worker("w1")
    run = world.submit()
    lease.claim(1)
    world.queue.cancel(run)
    lease.drain()
    lease.deregister()

    assert world.state(run) == "cancelled"


def test_a_drained_run_begins_elsewhere_only_when_its_worker_has_let_go(world: World) -> None:
    """R14."""
    lease, other = world.worker("w1"), world.worker("w2")
    run = world.submit()
    (claim,) = lease.claim(1)
    world.queue.start([claim])
    lease.drain()

    for _ in range(20):
        world.pass_ms(world.settings.heartbeat_ms)
        lease.heartbeat([claim])
        other.heartbeat()
        assert world.reap() == []
        assert other.claim(1) == []

    world.queue.release(claim, "handed back")
    (again,) = other.claim(1)
    assert again.id == run
    assert isinstance(world.queue.finish([(claim, Outcome())])[0], Fenced)


def test_a_finish_and_a_stop_at_the_same_moment_end_the_run_once(world: World) -> None:
    """R13: the work is in, or the run is cancelled; whoever comes second is told which."""
    lease = world.worker("w1")
    with ThreadBarrier(3) as threads:
        for _ in range(ROUNDS // 2):
            run = world.submit()
            (claim,) = lease.claim(1)
            threads.at_once(
                outcome_of(partial(world.queue.cancel, run)),
                outcome_of(partial(world.queue.fail, claim, STOPPED)),
                outcome_of(partial(world.queue.finish, [(claim, Outcome())])),
            )

            names = world.event_names(run)
            assert sum(names.count(state) for state in ("completed", "cancelled", "failed")) == 1
            assert world.state(run) == names[-1]
