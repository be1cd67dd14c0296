"""How each verb comes to be said: by a client, by the worker that holds the run, by time, or as part of another verb.

Each way can be gone in any state of a run. What would never happen to a run in its state is made to happen `late`: an
entry of it stands in the lane, a timer of it rings, a worker is listed as its holder, a parent tells it once more. What
is planted so must be gone afterwards, that the whole store can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from conformance.lives import LIMIT
from conformance.stage import COMMAND, Stage

from agentq.coordinator.bounds import START_DEADLINE_MS
from agentq.coordinator.errors import AgentqError, refusal_error
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, OutcomeClass, State
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.workers.lease import replace_worker

Say = Callable[[Stage], object]


@dataclass(frozen=True, slots=True)
class Way:
    """One way in which a verb comes to be said."""

    name: str
    verb: str
    say: Say
    late: Say
    """The same, of a run that nothing would say it of."""
    again: Say | None = None
    """Once more, with the same arguments; None if by the same words."""

    @property
    def names_the_run(self) -> bool:
        """Whether somebody is answered about the run; duties and scripts take what they find."""
        return self.say is self.late

    @property
    def shows_a_fence(self) -> bool:
        return self.names_the_run and self.verb in FENCED


FENCED = {"start", "report", "finish", "fail", "defer", "release", "park"}


# ---- clients


def submit(stage: Stage) -> object:
    return stage.queue.submit(stage.spec, run_id=stage.run)


def submit_changed(stage: Stage) -> object:
    return stage.queue.submit(RunSpec.checked(**COMMAND | {"argv": ["false"]}), run_id=stage.run)


def cancel(stage: Stage) -> object:
    return stage.queue.cancel(stage.run, "not wanted any more")


def wake(stage: Stage) -> object:
    return stage.queue.wake(stage.run)


def signal(stage: Stage) -> object:
    return stage.queue.signal(stage.run, "go", {"how": "fast"}, operation="said-once")


def approve(stage: Stage) -> object:
    return stage.queue.approve(stage.run, "well done", operation="approved-once")


def requeue(stage: Stage) -> object:
    return stage.queue.requeue(stage.run, operation="once-more")


def room_comes(stage: Stage) -> None:
    stage.world.store.call("limit/block_until", stage.partition, LIMIT, 0, "")


def look_for_room(stage: Stage) -> None:
    assert stage.world.store.call("repair/limit", stage.partition, LIMIT) == 0


def move_queue(stage: Stage) -> None:
    stage.world.queues.move("default", "elsewhere")


def move_queue_again(stage: Stage) -> None:
    assert stage.world.queues.move("default", "elsewhere") == 0


# ---- the worker that holds it


def start(stage: Stage) -> None:
    told(stage.queue.start([stage.claim]))


def report(stage: Stage) -> None:
    stage.queue.report(stage.claim, 1, {"percent": 50})


def finish(stage: Stage) -> None:
    told(stage.queue.finish([(stage.claim, Outcome(exit_code=0, result=42))]))


def fail(class_: OutcomeClass) -> Say:
    return lambda stage: stage.fail(class_)


def defer(stage: Stage) -> object:
    return stage.defer()


def back_off(stage: Stage) -> object:
    """A limit that does not say when it ends."""
    return stage.queue.defer(stage.claim, None, Outcome(class_=OutcomeClass.LIMIT))


def release(stage: Stage) -> object:
    return stage.queue.release(stage.claim, "draining")


def park(alarm_ms: int | None = None) -> Say:
    return lambda stage: stage.park(alarm_ms)


def park_for(**wait: object) -> Say:
    """Wait for something that is not there, or that is."""
    return lambda stage: stage.park_for(**wait)


def told(results: list[AgentqError | None]) -> None:
    """Raise what a call for many runs refused to its only one."""
    (refused,) = results
    if refused is not None:
        raise refused


# ---- a worker that wants work: by the lane, or by what a blocking read delivered


def claim(stage: Stage) -> object:
    words = ("w2", stage.epoch("w2"), "nonce-of-claim", 10, 0, "", stage.lane())
    return stage.world.store.call("worker/claim", stage.partition, *words)


def read(stage: Stage) -> None:
    """A blocking read brings what is in the lane."""
    lane = stage.key("lane", stage.lane())
    stage.plant("XREADGROUP", "GROUP", "workers", "w2", "COUNT", 10, "STREAMS", lane, ">")


def claim_fresh(stage: Stage) -> object:
    epoch = stage.epoch("w2")
    read(stage)
    words = ("w2", epoch, "nonce-of-claim", 10, 0, "fresh", stage.lane())
    return stage.world.store.call("worker/claim", stage.partition, *words)


def adopt(stage: Stage) -> object:
    lease, epoch = stage.lease("w2"), stage.epoch("w2")
    read(stage)
    entries = [word for entry in lease.pending(stage.partition) for word in entry]
    return stage.world.store.call(
        "worker/claim_delivered", stage.partition, "w2", epoch, "nonce-of-adopt", 100, 0, *entries
    )


def exchange(class_: str) -> Say:
    """The worker tells an end, as one among many, and asks for nothing more."""

    def say(stage: Stage) -> object:
        outcome = Outcome(class_=OutcomeClass(class_)).to_wire()
        words = ("w1", "0", 0, "", 0, "0.5", "", stage.run, stage.claim.fence, class_, outcome, "")
        _, _, count, *answers = stage.world.store.call("worker/finish_and_claim", stage.partition, *words)
        assert len(answers) == 2 * count
        answer = answers[1] if answers else "ok"
        told([refusal_error(answer, stage.run)])
        return State(answer.removeprefix("ok ")) if answers else None

    return say


def exchange_for_more(stage: Stage) -> object:
    """The worker has nothing to tell, and asks for a run."""
    words = ("w2", stage.epoch("w2"), 0, "nonce-of-exchange", 10, "0.5", stage.lane())
    word, revision, answers, *claimed = stage.world.store.call("worker/finish_and_claim", stage.partition, *words)
    assert answers == 0
    return [word, revision, *claimed]


def with_stray_entry(take: Say) -> Say:
    """An entry stands in the lane that is not, or no longer, the run's home."""

    def late(stage: Stage) -> None:
        if stage.present() != "pending":
            stage.plant("XADD", stage.key("lane", stage.spec.lane), "*", "run", stage.run)
        reply = take(stage)
        assert isinstance(reply, list)
        assert reply[0] == "ok"
        assert len(reply) == 2, "somebody was given the run"

    return late


# ---- time, and other runs


def come(stage: Stage) -> None:
    stage.come()


def ring_for_nothing(stage: Stage) -> None:
    """A timer rings that is not the run's own. An ended run has one, which must not ring before it is due."""
    if stage.present() not in TERMINAL_STATES and stage.timer() is None:
        stage.plant("ZADD", stage.key("timers"), stage.world.now_ms, stage.run)
        stage.come()
    stage.tick()


def parents_complete(stage: Stage) -> None:
    for parent in stage.parents:
        told(stage.queue.finish([(parent, Outcome(exit_code=0))]))


def parents_fail(stage: Stage) -> None:
    for parent in stage.parents:
        stage.queue.fail(parent, Outcome(class_=OutcomeClass.REJECTED))


def children_end(stage: Stage) -> None:
    """The runs that it submitted, and that it may wait for."""
    for child in stage.own_children:
        stage.queue.cancel(child)


def turns_end(stage: Stage) -> None:
    """Of the turns of its session, those before it."""
    for rival in stage.rivals:
        stage.queue.cancel(rival)


def told_late(ending: str) -> Say:
    """A run that ended long ago tells this one how, as after a crash of whoever told it first."""

    def late(stage: Stage) -> None:
        ended = stage.neighbours[ending]
        stage.plant("ZADD", stage.key("dependents", ended), 0, stage.run)
        stage.plant("ZADD", stage.key("dependents_to_notify"), stage.world.now_ms, ended)
        assert stage.world.store.call("duty/notify_dependents", stage.partition) == 0

    return late


# ---- what becomes of the worker that holds it


def reap(stage: Stage) -> None:
    stage.lose("w1")


def reap_again(stage: Stage) -> None:
    assert stage.world.reap() == []


def forget(stage: Stage) -> None:
    stage.forget("w1")


def beat_again(stage: Stage) -> None:
    stage.lease("w1").heartbeat([])


def never_begin(stage: Stage, worker: str = "w1") -> None:
    """The worker lives, knows of its run, and does not start it."""
    stage.lease(worker)
    # A heartbeat after a long gap judges nobody by what the clock says.
    stage.world.pass_ms(START_DEADLINE_MS - 1)
    stage.beat(worker)
    stage.world.pass_ms(1)
    stage.beat(worker)


def restart(stage: Stage, worker: str = "w1") -> None:
    """A new process with the name of one that died comes before the reaper does."""
    stage.world.pass_ms(stage.world.settings.lease_ms)
    del stage.leases[worker]
    stage.lease(worker)


def register_again(stage: Stage) -> None:
    assert stage.leases["w1"].register() == []


def be_ousted(stage: Stage, worker: str = "w1") -> None:
    """Another process on its host has seen that its process is dead."""
    stage.lease(worker)
    for record in stage.world.records.workers():
        if record.id == worker:
            replace_worker(stage.world.store, record.partition, worker, record.epoch, "its process is dead")
    del stage.leases[worker]


def oust_again(stage: Stage) -> None:
    epoch = str(stage.about("w1", "epoch"))
    assert stage.world.store.call("worker/evict", stage.partition, "w1", epoch, "0.5", "its process is dead") == "ok"


def leave(stage: Stage, worker: str = "w1") -> None:
    stage.lease(worker).deregister()


def by_wrong_holder(act: Callable[[Stage, str], None]) -> Say:
    """It becomes of a worker that is listed as the run's holder, and is not."""

    def late(stage: Stage) -> None:
        stage.lease("w9")
        stage.plant("HSET", stage.key("worker_runs", "w9"), stage.run, stage.claim.fence)
        act(stage, "w9")
        if "w9" in stage.leases:
            stage.leases.pop("w9").deregister()

    return late


def _way(name: str, verb: str, say: Say, late: Say | None = None, again: Say | None = None) -> Way:
    return Way(name, verb, say, late or say, again)


WAYS = {
    way.name: way
    for way in (
        _way("submit", "submit", submit),
        _way("submit changed", "submit", submit_changed),
        _way("cancel", "cancel", cancel),
        _way("wake", "wake", wake),
        _way("signal", "signal", signal, again=signal),
        _way("approve", "signal", approve, again=approve),
        _way("children end", "wake", children_end, lambda _: None),
        _way("requeue", "requeue", requeue),
        _way("turns before it end", "unblock", turns_end, lambda _: None),
        _way("claim", "claim", claim, with_stray_entry(claim)),
        _way("claim: fresh", "claim", claim_fresh, with_stray_entry(claim_fresh)),
        _way("adopt", "claim", adopt, with_stray_entry(adopt)),
        _way("exchange: more", "claim", exchange_for_more, with_stray_entry(exchange_for_more)),
        _way("exchange: finish", "finish", exchange("ok")),
        _way("exchange: fail", "fail", exchange("exit")),
        _way("exchange: fail for good", "fail", exchange("rejected")),
        _way("start", "start", start),
        _way("report", "report", report),
        _way("finish", "finish", finish),
        _way("fail", "fail", fail(OutcomeClass.EXIT)),
        _way("fail for good", "fail", fail(OutcomeClass.REJECTED)),
        _way("fail to spawn", "fail", fail(OutcomeClass.SPAWN)),
        _way("give up", "fail", fail(OutcomeClass.CANCELLED)),
        _way("defer", "defer", defer),
        _way("back off", "defer", back_off),
        _way("release", "release", release),
        _way("park", "park", park()),
        _way("park with alarm", "park", park(5_000)),
        _way("park past alarm", "park", park(0)),
        _way("park for a signal", "park", park_for(signals=("go",))),
        _way("park for no children", "park", park_for(children="all")),
        _way("time comes", "promote", come, ring_for_nothing, Stage.tick),
        _way("room comes", "unblock", room_comes, look_for_room, look_for_room),
        _way("its queue is moved", "transfer", move_queue, lambda stage: move_queue(stage), move_queue_again),
        _way("parents complete", "unblock", parents_complete, told_late("completed")),
        _way("parents fail", "skip", parents_fail, told_late("failed")),
        _way("reap", "lose", reap, by_wrong_holder(Stage.lose), reap_again),
        _way("forget", "lose", forget, by_wrong_holder(Stage.forget), beat_again),
        _way("never begin", "lose", never_begin, by_wrong_holder(never_begin), lambda stage: stage.beat("w1")),
        _way("restart", "lose", restart, by_wrong_holder(restart), register_again),
        _way("be ousted", "lose", be_ousted, by_wrong_holder(be_ousted), oust_again),
        _way("leave", "release", leave, by_wrong_holder(leave)),
    )
}
