"""Reports that come twice, late or out of order. R-numbers are those of actors-and-races.md."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from support.world import World

from agentq.coordinator.bounds import ATTEMPTS_KEPT
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import Outcome, RetryPolicy
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.storage.scripts import ScriptSet

EXIT = Outcome(class_=OutcomeClass.EXIT, exit_code=1)
Report = tuple[str, int]


def say(world: World, claim: Claim, report: Report) -> None:
    """Send one of a worker's reports; what is refused is refused."""
    verb, number = report
    try:
        if verb == "start":
            world.queue.start([claim])
        elif verb == "report":
            world.queue.report(claim, number, {"step": number})
        elif verb == "finish":
            world.queue.finish([(claim, Outcome())])
        else:
            world.queue.fail(claim, EXIT)
    except AgentqError:
        pass


@pytest.mark.parametrize("end", ["finish", "fail", "retry"])
def test_a_report_that_is_sent_again_from_any_point_on_changes_nothing(world: World, end: str) -> None:
    """R21: the worker cannot know which of its reports arrived before the connection broke."""
    claim = world.held("w1", retry=RetryPolicy(failures=int(end == "retry")))
    history = [("start", 0), *(("report", number) for number in range(1, 6)), ("fail" if end == "retry" else end, 0)]
    for place in range(len(history)):
        say(world, claim, history[place])
        for first in range(place + 1):
            with world.unchanged():
                for report in history[first : place + 1]:
                    say(world, claim, report)


def test_reports_that_overtake_each_other_leave_the_newest(world: World) -> None:
    """R21."""
    claim = world.held("w1", started=True)
    numbers = [*range(1, 30)] * 2
    random.Random(1).shuffle(numbers)

    for number in numbers:
        world.queue.report(claim, number, {"step": number})

    assert world.get(claim.id).progress == {"step": 29}
    steps = [event.detail for event in world.events(claim.id) if event.event == "progressed"]
    assert steps == sorted(set(steps), key=lambda detail: numbers.index(int(detail[8:-1])))


def test_an_attempt_begins_once_however_often_that_is_said(world: World) -> None:
    """R23."""
    claim = world.held("w1")
    assert world.queue.start([claim, claim]) == [None, None]
    world.pass_ms(1000)

    with world.unchanged():
        assert world.queue.start([claim]) == [None]

    assert world.event_names(claim.id).count("started") == 1


def test_a_start_that_comes_after_the_end_revives_nothing(world: World) -> None:
    """R23."""
    claim = world.held("w1", started=True)
    world.queue.finish([(claim, Outcome())])

    with world.unchanged():
        (refused,) = world.queue.start([claim])

    assert "is completed" in str(refused)


def test_the_end_of_an_attempt_is_taken_after_any_silence_that_the_lease_allows(world: World) -> None:
    """R24: the worker keeps it through the outage, and says it until it is acknowledged."""
    run, lease = world.submit(), world.worker("w1")
    (claim,) = lease.claim(1)
    world.queue.start([claim])
    world.pass_ms(10 * world.settings.lease_ms)
    world.reap()

    assert world.queue.finish([(claim, Outcome(result="kept"))] * 2) == [None, None]

    ended = world.get(run)
    assert (ended.state, ended.outcome and ended.outcome.result) == (State.COMPLETED, "kept")
    assert lease.register() == []


def test_orders_are_kept_until_they_are_carried_out_and_no_longer(world: World) -> None:
    """R25."""
    lease = world.worker("w1")
    for _ in range(150):
        world.submit()
    claims = lease.claim(150)
    for claim in claims:
        world.queue.cancel(claim.id)

    stopped = set()
    while orders := lease.heartbeat(claims).orders:
        assert lease.heartbeat(claims).orders == orders, "they come again until then"
        stopped |= {order.run for order in orders if order.order == "stop"}
        lease.heartbeat(claims, applied=orders)

    assert stopped == {claim.id for claim in claims}
    inbox = world.store.key(0, "worker_inbox", "w1")
    assert world.store.connection.command("XLEN", inbox) == 0
    lease.heartbeat(claims)
    for claim in claims:
        world.queue.fail(claim, EXIT)


def test_a_run_keeps_a_bounded_number_of_attempts(world: World) -> None:
    """R25: the newest, and it knows how many there were."""
    run, lease = world.submit(), world.worker("w1")
    for _ in range(ATTEMPTS_KEPT + 5):
        (claim,) = lease.claim(1)
        world.queue.release(claim)

    record = world.get(run)
    assert record.attempt == ATTEMPTS_KEPT + 5
    assert [attempt.attempt for attempt in record.attempts] == list(range(6, ATTEMPTS_KEPT + 6))


def test_the_events_that_are_kept_are_bounded(make_world: Callable[..., World]) -> None:
    """R25: in number, give or take a node of the stream."""

    def fewer(name: str, text: str) -> str:
        return text.replace("tostring(EVENTS_KEPT)", "'500'") if name == "prelude" else text

    world = make_world(scripts=ScriptSet(fewer))
    for _ in range(1000):
        world.submit()

    assert 500 <= world.store.connection.command("XLEN", world.store.key(0, "events")) <= 700
