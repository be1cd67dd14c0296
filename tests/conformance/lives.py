"""How a run comes into each variant of a state: short lives, told in legal verbs."""

from __future__ import annotations

from collections.abc import Callable

from conformance.stage import Stage

from agentq.coordinator.bounds import KEEP_MS_MIN
from agentq.coordinator.model.lifecycle import OutcomeClass

Build = Callable[[Stage], object]

LIMIT = "some:limit"
RETRY = {"failures": 1, "crashes": 2, "deferrals": 1}


def then(*steps: Build) -> Build:
    """One step after the other."""

    def build(stage: Stage) -> None:
        for step in steps:
            step(stage)

    return build


def nothing(_: Stage) -> None:
    """No step at all."""


def submitted(**fields: object) -> Build:
    return lambda stage: stage.submit(**fields)


# ---- not there


def unborn(**fields: object) -> Build:
    return lambda stage: stage.imagine(**fields)


def unborn_behind(stage: Stage) -> None:
    stage.imagine(after=stage.add_parents())


def forgotten(stage: Stage) -> None:
    stage.submit(keep_ms=KEEP_MS_MIN)
    stage.take()
    stage.finish()
    stage.come()


# ---- waiting for others


def imagined_turn(stage: Stage) -> None:
    stage.imagine(**stage.as_turn())


def turn(**fields: object) -> Build:
    return lambda stage: stage.submit(**stage.as_turn() | fields)


def rival(stage: Stage) -> None:
    stage.add_rival()


def rivals_end(stage: Stage) -> None:
    for run in stage.rivals:
        stage.queue.cancel(run)


def turn_on_others(stage: Stage) -> None:
    """A turn that waits for a run, too."""
    stage.submit(**stage.as_turn(), after=stage.add_parents())


def blocked(parents: int = 1, **fields: object) -> Build:
    return lambda stage: stage.submit(after=stage.add_parents(parents), **fields)


def shut_out(stage: Stage) -> None:
    """The limit that it needs room under lets nobody in."""
    stage.world.limits.shut(LIMIT, stage.world.now_ms + 3_600_000, "for a while")


def limited(**fields: object) -> Build:
    return then(shut_out, submitted(limits={LIMIT: 1}, **fields))


def held_up(stage: Stage) -> None:
    """There was room when it was submitted, and none when it was claimed."""
    stage.submit(limits={LIMIT: 1})
    shut_out(stage)


def held_up_and_claimed(stage: Stage) -> None:
    held_up(stage)
    assert stage.lease("w0").claim(1) == []


def unborn_and_shut_out(stage: Stage) -> None:
    shut_out(stage)
    stage.imagine(limits={LIMIT: 1})


def open_gate(stage: Stage) -> None:
    stage.world.limits.open(LIMIT)


def one_parent_ends(stage: Stage) -> None:
    stage.end_parent()


def dependency_failed(stage: Stage) -> None:
    stage.end_parent(OutcomeClass.EXIT)


# ---- held


def claimed(stage: Stage) -> None:
    stage.submit(retry=RETRY)
    stage.take()


def claimed_on_the_last_crash(stage: Stage) -> None:
    """Two crashes are allowed, and the second has happened."""
    lost_once(stage)
    stage.take("w0")
    stage.lose("w0")
    stage.come()
    stage.take()


def claimed_on_the_second_crash(stage: Stage) -> None:
    lost_once(stage)
    stage.take()


def claimed_on_the_last_failure(stage: Stage) -> None:
    retried(stage)
    stage.come()
    stage.take()


def claimed_on_the_last_deferral(stage: Stage) -> None:
    deferred(stage)
    stage.come()
    stage.take()


def started(build: Build) -> Build:
    return then(build, Stage.start)


def stopping(build: Build) -> Build:
    """A stop was ordered, and is not yet confirmed."""
    return then(build, cancel)


def wanted(build: Build) -> Build:
    return then(build, wake)


running = started(claimed)


# ---- let go


def retried(stage: Stage) -> None:
    claimed(stage)
    stage.fail()


def deferred(stage: Stage) -> None:
    claimed(stage)
    stage.defer()


def released(stage: Stage) -> None:
    claimed(stage)
    stage.queue.release(stage.claim)


def lost_once(stage: Stage) -> None:
    claimed(stage)
    stage.lose()


def lost_twice(stage: Stage) -> None:
    lost_once(stage)
    stage.take()
    stage.lose()


def asleep(stage: Stage) -> None:
    running(stage)
    stage.park()


def asleep_until(stage: Stage) -> None:
    running(stage)
    stage.park(5_000)


def asleep_for(**wait: object) -> Build:
    def build(stage: Stage) -> None:
        running(stage)
        stage.park_for(**wait)

    return build


def asleep_for_children(stage: Stage) -> None:
    running(stage)
    stage.add_own_children()
    stage.park_for(children="all")


def signalled(build: Build) -> Build:
    """A signal came before it was waited for."""
    return then(build, lambda stage: stage.queue.signal(stage.run, "go", operation="early"))


def delivered(stage: Stage) -> None:
    """A blocking read has delivered the entry to w2, which has not adopted it."""
    stage.submit()
    stage.lease("w2")
    lane = stage.key("lane", stage.spec.lane)
    stage.plant("XREADGROUP", "GROUP", "workers", "w2", "COUNT", 1, "STREAMS", lane, ">")


def adopted(stage: Stage) -> None:
    """What w2 does with what was delivered to it, whatever has become of the run."""
    stage.lease("w2").adopt(stage.partition, stage.lease("w2").pending(stage.partition))


def out_of_patience(stage: Stage) -> None:
    """Its time is over, and no duty has come by yet."""
    stage.submit(expires_ms=1000)
    stage.world.pass_ms(1000)


# ---- ended


def completed(stage: Stage) -> None:
    running(stage)
    stage.finish()


def failed(stage: Stage) -> None:
    running(stage)
    stage.fail(OutcomeClass.REJECTED)


def deferred_too_often(stage: Stage) -> None:
    claimed_on_the_last_deferral(stage)
    stage.defer()


def lost_for_good(stage: Stage) -> None:
    claimed_on_the_last_crash(stage)
    stage.lose()


def stop_confirmed(stage: Stage) -> None:
    stopping(running)(stage)
    stage.fail(OutcomeClass.CANCELLED)


# ---- single steps


def take(stage: Stage) -> None:
    stage.take()


def come(stage: Stage) -> None:
    stage.come()


def cancel(stage: Stage) -> None:
    stage.queue.cancel(stage.run)


def wake(stage: Stage) -> None:
    stage.queue.wake(stage.run)


def requeue(stage: Stage) -> None:
    stage.queue.requeue(stage.run)


def finish(stage: Stage) -> None:
    stage.finish()


def lose(stage: Stage) -> None:
    stage.lose()
