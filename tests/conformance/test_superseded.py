"""An attempt that was superseded is refused by name, whatever its worker says and however late."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from conformance import lives, ways
from conformance.lives import Build, started, stopping, then
from conformance.stage import MakeStage, Stage
from conformance.ways import WAYS

from agentq.coordinator.errors import AgentqError, Evicted, Fenced, NotFound
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.workers.lease import WorkerLease

SUPERSEDED: dict[str, tuple[Build, str]] = {
    "lost": (lives.lost_once, ""),
    "lost while it ran": (then(lives.running, ways.reap), ""),
    "lost twice": (then(lives.lost_twice, lives.come), ""),
    "lost for good and requeued": (then(lives.lost_for_good, lives.requeue), ""),
    "of a worker that was started again": (then(lives.running, ways.restart), ""),
    "forgotten by its worker": (then(lives.running, ways.forget), ""),
    "not begun in time": (then(lives.claimed, ways.never_begin), ""),
    "of a worker that left": (then(lives.running, ways.leave), ""),
    "released": (lives.released, "release"),
    "retried": (then(lives.retried, lives.come), "fail"),
    "deferred": (then(lives.deferred, lives.come), "defer"),
    "asleep and woken": (then(lives.asleep, lives.wake), "park"),
    "completed and requeued": (then(lives.completed, lives.requeue), ""),
    "failed and requeued": (then(lives.failed, lives.requeue), ""),
    "stopped and requeued": (then(lives.stop_confirmed, lives.requeue), ""),
    "not stopped in time and requeued": (then(stopping(lives.running), lives.come, lives.requeue), ""),
}
"""How an attempt is superseded, and the verb by which its own worker let go of the run."""

REPORTS = [way for way in WAYS.values() if way.shows_a_fence]


def say_all(stage: Stage, old: Claim, ended_by: str) -> None:
    """Everything a worker can say, with the fence of an old attempt. What it said before is answered, and no more."""
    state, present = stage.present(), stage.claim
    stage.claim = old
    with stage.unchanged():
        for way in REPORTS:
            if way.verb == ended_by:
                assert way.say(stage) == state
            else:
                with pytest.raises(Fenced):
                    way.say(stage)
    stage.claim = present


@pytest.mark.parametrize("how", SUPERSEDED)
def test_an_attempt_that_was_superseded_is_fenced(how: str, make_stage: MakeStage) -> None:
    stage = make_stage()
    build, ended_by = SUPERSEDED[how]
    build(stage)
    old = stage.claim
    say_all(stage, old, ended_by)

    stage.take("w2")
    say_all(stage, old, ended_by)
    stage.start()
    say_all(stage, old, ended_by)
    stage.finish()
    say_all(stage, old, ended_by)

    assert stage.present() == State.COMPLETED


@pytest.mark.parametrize("how", ["retried", "deferred", "released", "asleep and woken"])
def test_what_an_attempt_said_last_is_forgotten_once_another_attempt_has_said_so_too(
    how: str, make_stage: MakeStage
) -> None:
    stage = make_stage()
    build, _ = SUPERSEDED[how]
    build(stage)
    old = stage.claim
    stage.take("w2", start=True)
    stage.queue.release(stage.claim)

    say_all(stage, old, "")


def test_an_attempt_of_the_same_number_after_a_failover_is_fenced(make_stage: MakeStage) -> None:
    """A counter can rewind with a replica that was behind; the nonce beside it does not repeat."""
    stage = make_stage()
    started(lives.claimed)(stage)
    number, _, nonce = stage.claim.fence.partition("-")

    for fence in (f"{number}-another", f"{int(number) + 1}-{nonce}", nonce, ""):
        say_all(stage, Claim(stage.run, fence, stage.claim.lane, ""), "")


def test_a_worker_that_names_a_superseded_attempt_is_told_to_kill_it(make_stage: MakeStage) -> None:
    stage = make_stage()
    then(lives.running, ways.forget)(stage)
    old = stage.claim
    stage.take("w2")

    with stage.unchanged():
        beat = stage.lease("w1").heartbeat([old])

    assert [(claim.id, claim.fence) for claim in beat.fenced_claims] == [(old.id, old.fence)]


def test_a_worker_that_claims_the_run_again_is_told_to_kill_the_attempt_it_forgot(make_stage: MakeStage) -> None:
    stage = make_stage()
    then(lives.running, ways.forget)(stage)
    old = stage.claim
    stage.take("w1", start=True)

    beat = stage.lease("w1").heartbeat([old])

    assert beat.fenced_claims == [old]
    assert stage.lease("w1").heartbeat([stage.claim]).fenced_claims == []
    say_all(stage, old, "")


LOST: dict[str, tuple[Callable[[WorkerLease], object], type[AgentqError] | None]] = {
    "beats": (WorkerLease.heartbeat, Evicted),
    "claims": (lambda lease: lease.claim(1), Evicted),
    "adopts": (lambda lease: lease.adopt(0, []), Evicted),
    "drains": (WorkerLease.drain, NotFound),
    # It wanted to be gone, and is.
    "leaves": (WorkerLease.deregister, None),
}


@pytest.mark.parametrize("verb", LOST)
def test_a_worker_that_was_declared_lost_is_refused_until_it_registers(verb: str, make_stage: MakeStage) -> None:
    stage = make_stage()
    lives.running(stage)
    lease = stage.lease("w1")
    stage.lose("w1")
    say, expected = LOST[verb]

    with stage.unchanged():
        assert refusal_of(say, lease) is expected

    assert lease.register() == []
    assert [claim.id for claim in lease.claim(1)] == [stage.run]


def refusal_of(say: Callable[[WorkerLease], object], lease: WorkerLease) -> type[AgentqError] | None:
    try:
        say(lease)
    except AgentqError as error:
        return type(error)
    return None
