"""Races between a run that goes to sleep and those who want it awake. R-numbers are those of actors-and-races.md."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from support.concurrency import ThreadBarrier
from support.world import World

from agentq.coordinator.errors import AgentqError
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import Outcome, RetryPolicy
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.runs.wait import RunWait
from agentq.coordinator.workers.lease import WorkerLease

ROUNDS = 150
EXIT = Outcome(class_=OutcomeClass.EXIT, exit_code=1)
RETRIES = RetryPolicy(failures=5, crashes=5, delay_ms=1, delay_ms_max=1)


def started(world: World, lease: WorkerLease) -> Claim:
    """The next run, begun."""
    (claim,) = lease.claim(1)
    assert world.queue.start([claim]) == [None]
    return claim


def test_a_wake_on_the_way_to_sleep_makes_one_new_attempt_and_only_after_the_old_one(world: World) -> None:
    """R1."""
    lease, other = world.worker("w1"), world.worker("w2")
    world.submit()
    claim = started(world, lease)

    assert world.queue.wake(claim.id) is State.RUNNING
    assert other.claim(5) == [], "the old attempt still runs"
    assert world.queue.park(claim, "asleep") is State.PENDING

    (again,) = other.claim(5)
    assert (again.id, world.get(claim.id).attempt) == (claim.id, 2)
    assert world.event_names(claim.id) == ["submitted", "claimed", "started", "wake_requested", "woken", "claimed"]


@pytest.mark.full("takes 2 s")
def test_a_wake_and_a_sleep_at_the_same_moment_always_end_awake(world: World) -> None:
    """R1: whichever of the two the server sees first."""
    lease = world.worker("w1")
    with ThreadBarrier(3) as threads:
        for _ in range(ROUNDS):
            run = world.submit()
            claim = started(world, lease)
            threads.at_once(
                partial(world.queue.park, claim, "asleep"),
                partial(world.queue.wake, run),
                partial(world.queue.wake, run),
            )

            (again,) = lease.claim(5)
            assert (again.id, world.get(run).attempt) == (run, 2)
            assert world.event_names(run).count("woken") == 1
            assert world.queue.finish([(again, Outcome())]) == [None]


@pytest.mark.full("takes 2 s")
def test_a_signal_and_a_sleep_at_the_same_moment_always_end_awake(world: World) -> None:
    """R1 and R29: with what was said, once, though it was said twice."""
    lease = world.worker("w1")
    with ThreadBarrier(3) as threads:
        for _ in range(ROUNDS):
            run = world.submit()
            claim = started(world, lease)
            threads.at_once(
                partial(world.queue.park, claim, wait=RunWait(signals=("go",))),
                partial(world.queue.signal, run, "go", operation="said-twice"),
                partial(world.queue.signal, run, "go", operation="said-twice"),
            )

            again = started(world, lease)
            found = world.queue.receive(again)
            assert found is not None
            assert (again.id, [message.name for message in found.messages]) == (run, ["go"])
            assert world.event_names(run).count("woken") == 1
            assert world.queue.finish([(again, Outcome())]) == [None]


@pytest.mark.full("takes 1 s")
def test_the_ends_of_children_and_the_sleep_of_their_parent_at_the_same_moment_always_end_awake(world: World) -> None:
    lease, nursery = world.worker("w1"), world.worker("w2", "nursery")
    with ThreadBarrier(3) as threads:
        for _ in range(ROUNDS):
            run = world.submit()
            claim = started(world, lease)
            for _ in range(2):
                world.submit(parent=run, queue="nursery")
            first, second = nursery.claim(2)
            threads.at_once(
                partial(world.queue.park, claim, wait=RunWait(children="all")),
                partial(world.queue.finish, [(first, Outcome())]),
                partial(world.queue.finish, [(second, Outcome())]),
            )

            again = started(world, lease)
            found = world.queue.receive(again)
            assert found is not None
            assert {child.id for child in found.children} == {first.id, second.id}
            assert world.event_names(run).count("woken") == 1
            assert world.queue.finish([(again, Outcome())]) == [None]


def lost(world: World, claim: Claim) -> None:
    assert world.watch_ms(world.lost_after_ms()) == ["w1"]
    assert world.state(claim.id) == "pending"


def retried(world: World, claim: Claim) -> None:
    world.queue.fail(claim, EXIT)
    world.pass_ms(10)
    world.tick()


def deferred(world: World, claim: Claim) -> None:
    world.queue.defer(claim, world.now_ms + 10, Outcome(class_=OutcomeClass.LIMIT))
    world.pass_ms(10)
    world.tick()


def requeued(world: World, claim: Claim) -> None:
    world.queue.finish([(claim, Outcome())])
    world.queue.requeue(claim.id)


def cancelled(world: World, claim: Claim) -> None:
    world.queue.cancel(claim.id)
    world.queue.fail(claim, EXIT)
    world.queue.requeue(claim.id)


def released(world: World, claim: Claim) -> None:
    world.queue.release(claim)


def parked(world: World, claim: Claim) -> None:
    assert world.queue.park(claim, "asleep") is State.PENDING


@pytest.mark.parametrize("end", [lost, retried, deferred, requeued, cancelled, released, parked])
def test_a_wake_of_one_attempt_does_not_keep_the_next_from_sleeping(
    world: World, end: Callable[[World, Claim], None]
) -> None:
    """R2: the wish ends with the attempt that it was for, however that ends."""
    world.submit(retry=RETRIES)
    claim = started(world, world.worker("w1"))
    world.queue.wake(claim.id)

    end(world, claim)

    again = started(world, world.worker("w2"))
    assert again.id == claim.id
    assert world.queue.park(again, "asleep") is State.WAITING


def test_however_many_wake_a_run_it_wakes_once(world: World) -> None:
    """R3."""
    lease = world.worker("w1")
    with ThreadBarrier(8) as threads:
        for _ in range(ROUNDS // 4):
            run = world.submit()
            world.queue.park(started(world, lease), "asleep")

            states = threads.at_once(*[partial(world.queue.wake, run)] * 8)

            assert states == [State.PENDING] * 8
            (again,) = lease.claim(5)
            assert world.event_names(run).count("woken") == 1
            assert world.get(run).attempt == 2
            assert world.queue.wake(run) is State.CLAIMED, "awake already, or about to be"
            assert world.queue.finish([(again, Outcome())]) == [None]


def test_waking_what_has_ended_or_has_never_slept_is_refused_and_changes_nothing(world: World) -> None:
    """R3."""
    ended, blocked = world.held("w1"), world.submit(after=[world.submit(queue="other")])
    world.queue.finish([(ended, Outcome())])

    with world.unchanged():
        for run, state in ((ended.id, "completed"), (blocked, "blocked")):
            with pytest.raises(AgentqError, match=f"is {state}"):
                world.queue.wake(run)


def test_an_alarm_that_is_due_when_the_run_falls_asleep_wakes_it_at_once(world: World) -> None:
    """R5: it is looked at in the same step."""
    world.submit()
    claim = started(world, world.worker("w1"))

    assert world.queue.park(claim, "asleep", alarm_at_ms=world.now_ms) is State.PENDING

    assert world.event_names(claim.id)[-1] == "woken"


def test_an_alarm_and_a_wake_at_the_same_moment_make_one_new_attempt(world: World) -> None:
    """R5, R3."""
    lease = world.worker("w1")
    with ThreadBarrier(3) as threads:
        for _ in range(ROUNDS // 2):
            run = world.submit()
            world.queue.park(started(world, lease), "asleep", alarm_at_ms=world.now_ms + 5)
            world.pass_ms(5)

            threads.at_once(world.tick, world.tick, partial(world.queue.wake, run))

            (again,) = lease.claim(5)
            assert world.event_names(run).count("woken") == 1
            assert world.queue.finish([(again, Outcome())]) == [None]


def test_a_run_that_was_woken_early_has_no_alarm_left(world: World) -> None:
    """R6: or it would be woken again and again."""
    lease = world.worker("w1")
    run = world.submit()
    world.queue.park(started(world, lease), "asleep", alarm_at_ms=world.now_ms + 1000)
    world.queue.wake(run)
    claim = started(world, lease)

    world.pass_ms(2000)
    world.tick()
    assert world.queue.park(claim, "asleep again") is State.WAITING
    world.pass_ms(2000)
    world.tick()

    assert world.state(run) == "waiting"
    assert world.event_names(run).count("woken") == 1


def test_a_run_that_was_woken_stays_awake_while_nobody_can_take_it(world: World) -> None:
    """R6: what wakes it is kept until a worker has it."""
    lease = world.worker("w1")
    run = world.submit()
    world.queue.park(started(world, lease), "asleep")
    lease.deregister()
    world.queue.wake(run)

    world.pass_ms(30 * 86_400_000)
    world.tick()
    world.reap()

    assert [claim.id for claim in world.worker("w2").claim(5)] == [run]


def test_a_sleeping_run_that_nobody_wakes_can_still_be_cancelled(world: World) -> None:
    """R8: no state is a dead end."""
    world.submit()
    claim = started(world, world.worker("w1"))
    world.queue.park(claim, "asleep", alarm_at_ms=world.now_ms + 1000)

    assert world.queue.cancel(claim.id) is State.CANCELLED

    world.pass_ms(2000)
    world.tick()
    assert world.state(claim.id) == "cancelled", "its alarm is gone with it"
