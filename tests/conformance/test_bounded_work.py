"""What can be large goes in chunks; what is left stands in the store, so that a crash between two loses nothing."""

from __future__ import annotations

from collections import Counter

import pytest
from conformance.stage import COMMAND, MakeStage, Stage

from agentq.coordinator.bounds import DEPENDENTS_PER_CALL, SWEEP_PER_CALL, TICK_PER_CALL
from agentq.coordinator.errors import TryLater
from agentq.coordinator.events.stream import Event
from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import RunSpec

MANY = 2 * SWEEP_PER_CALL + 50
TIMERS = 2 * TICK_PER_CALL + 200


def submit_many(stage: Stage, count: int, **fields: object) -> list[str]:
    """Many runs in the stage's partition."""
    ids = [new_run_id(stage.partition) for _ in range(count)]
    specs = [RunSpec.checked(**COMMAND, **fields)] * count
    assert all(receipt.created for receipt in stage.queue.submit_many(specs, run_ids=ids))
    return ids


def submit_chain(stage: Stage, first: str, count: int) -> list[str]:
    """Runs of which each waits for the one before."""
    ids = [new_run_id(stage.partition) for _ in range(count)]
    specs = [RunSpec.checked(**COMMAND, after=[parent]) for parent in (first, *ids[:-1])]
    assert all(receipt.created for receipt in stage.queue.submit_many(specs, run_ids=ids))
    return ids


def told(stage: Stage, since: int, name: str) -> list[str]:
    """The runs of the events since, all of which have that name."""
    events = stage.events(since)
    assert {event.event for event in events} <= {name}
    return [event.run for event in events]


def call(stage: Stage, script: str, *words: str | int) -> object:
    return stage.world.store.call(script, stage.partition, *words)


# ---- dependents


@pytest.mark.parametrize(
    ("ending", "event"), [(OutcomeClass.OK, "unblocked"), (OutcomeClass.REJECTED, "skipped")], ids=["ok", "failed"]
)
def test_each_of_many_dependents_is_told_once_though_whoever_tells_them_crashes(
    ending: OutcomeClass, event: str, make_stage: MakeStage
) -> None:
    stage = make_stage()
    stage.submit(queue="parents")
    children = submit_many(stage, MANY, after=[stage.run])
    stage.take_from("parents")
    since = len(stage.events()) + 1

    stage.finish() if ending is OutcomeClass.OK else stage.fail(ending)
    assert len(told(stage, since, event)) == DEPENDENTS_PER_CALL
    stage.world.check()
    with pytest.raises(TryLater), stage.unchanged():
        stage.queue.requeue(stage.run)

    assert call(stage, "duty/notify_dependents") == 1
    assert len(told(stage, since, event)) == 2 * DEPENDENTS_PER_CALL
    stage.tick()
    assert sorted(told(stage, since, event)) == sorted(children)
    with stage.unchanged():
        stage.tick()


def test_a_long_chain_is_skipped_link_by_link(make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.submit(queue="parents")
    chain = submit_chain(stage, stage.run, MANY)
    since = len(stage.events()) + 1

    stage.queue.cancel(stage.run)
    assert told(stage, since, "skipped") == chain[:DEPENDENTS_PER_CALL]
    stage.world.check()
    assert call(stage, "duty/notify_dependents") == 1
    assert told(stage, since, "skipped") == chain[: 2 * DEPENDENTS_PER_CALL]
    stage.tick()

    assert told(stage, since, "skipped") == chain


def test_a_tree_is_skipped_to_its_leaves(make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.submit(queue="parents")
    branches = submit_many(stage, 30, after=[stage.run])
    leaves = [leaf for branch in branches for leaf in submit_many(stage, 15, after=[branch])]
    since = len(stage.events()) + 1

    stage.queue.cancel(stage.run)
    assert len(told(stage, since, "skipped")) == DEPENDENTS_PER_CALL
    stage.tick()

    assert sorted(told(stage, since, "skipped")) == sorted([*branches, *leaves])


def test_those_who_end_while_others_are_told_are_told_of_too(make_stage: MakeStage) -> None:
    """A large family in the settler's hands does not make a small one wait for ever."""
    stage = make_stage()
    stage.submit(queue="parents")
    submit_many(stage, MANY, after=[stage.run])
    other = stage.submit_other(queue="parents")
    child = stage.submit_other(after=[other])
    stage.queue.cancel(stage.run)

    stage.queue.cancel(other)

    assert stage.world.state(child) == "skipped"


def test_dependents_are_told_even_if_the_run_vanishes_meanwhile(make_stage: MakeStage) -> None:
    """Deleted by hand, or kept for no time while no duty ran."""
    stage = make_stage()
    stage.submit(queue="parents")
    children = submit_many(stage, MANY, after=[stage.run])
    since = len(stage.events()) + 1
    stage.queue.cancel(stage.run)
    stage.plant("DEL", stage.key("run", stage.run))
    stage.plant("ZREM", stage.key("index", "parents", "cancelled"), stage.run)
    stage.plant("ZREM", stage.key("states", "cancelled"), stage.run)

    stage.tick()

    assert Counter(told(stage, since, "skipped")) == Counter(children)
    # What stands for the run elsewhere goes in its own time; not what this is about.
    stage.plant("ZREM", stage.key("timers"), stage.run)


# ---- a worker's runs


def test_a_lost_worker_with_many_runs_is_swept_in_chunks(make_stage: MakeStage) -> None:
    stage, since = hold_many(make_stage)
    reap = ("server-1", 15_000, 30_000, 2_500, "0.5")
    for pause_ms in (0, 15_000, 15_000):
        stage.world.pass_ms(pause_ms)
        call(stage, "duty/reap_workers", *reap)
    stage.world.pass_ms(2_500)

    swept = [call(stage, "duty/reap_workers", *reap) for _ in range(3)]

    assert [reply[2:4] for reply in swept if isinstance(reply, list)] == [
        [SWEEP_PER_CALL, 1],
        [SWEEP_PER_CALL, 1],
        [50, 0],
    ]
    assert Counter(told(stage, since, "lost")) == Counter(stage.children)
    with stage.unchanged():
        assert call(stage, "duty/reap_workers", *reap) == [0, 0, 0, 0, "0"]


def hold_many(make_stage: MakeStage) -> tuple[Stage, int]:
    """A worker with many runs, and the number of events so far."""
    stage = make_stage()
    stage.children = submit_many(stage, MANY)
    assert len(stage.lease("w1").claim(MANY)) == MANY
    return stage, len(stage.events())


def test_an_ousted_worker_with_many_runs_loses_them_in_chunks(make_stage: MakeStage) -> None:
    """If whoever ousts it dies in between, the next reap goes on, without a mark or a grace."""
    stage, since = hold_many(make_stage)
    words = ("w1", stage.epoch("w1"), "0.5", "its process is dead")

    assert call(stage, "worker/evict", *words) == "releasing_runs"
    assert len(told(stage, since, "lost")) == SWEEP_PER_CALL
    stage.world.check()
    assert stage.world.reap() == ["w1"]

    assert Counter(told(stage, since, "lost")) == Counter(stage.children)
    with stage.unchanged():
        assert call(stage, "worker/evict", *words) == "ok"


def test_a_worker_that_leaves_hands_many_runs_back_in_chunks(make_stage: MakeStage) -> None:
    stage, since = hold_many(make_stage)
    words = ("w1", stage.epoch("w1"))

    assert call(stage, "worker/deregister", *words) == "releasing_runs"
    assert len(told(stage, since, "released")) == SWEEP_PER_CALL
    stage.world.check()
    stage.lease("w1").deregister()

    assert Counter(told(stage, since, "released")) == Counter(stage.children)


def test_a_worker_that_was_started_again_gives_up_many_runs_in_chunks(make_stage: MakeStage) -> None:
    stage, since = hold_many(make_stage)
    stage.world.pass_ms(stage.world.settings.lease_ms)
    identity = stage.lease("w1").identity.model_dump_json()

    assert call(stage, "worker/register", "w1", "0", "operation", 30_000, "0.5", identity) == "releasing_runs"
    assert len(told(stage, since, "lost")) == SWEEP_PER_CALL
    del stage.leases["w1"]
    stage.lease("w1")

    assert Counter(told(stage, since, "lost")) == Counter(stage.children)
    assert len(stage.lease("w1").claim(MANY)) == MANY


def test_a_worker_learns_in_one_beat_of_everything_that_it_lost(make_stage: MakeStage) -> None:
    stage, _ = hold_many(make_stage)
    lease = stage.lease("w1")
    former = [stage.claim_of(run) for run in stage.children]
    stage.lose("w1")
    lease.register()

    strangers = [stage.claim_of(new_run_id(stage.partition)) for _ in range(4_000)]
    with stage.unchanged():
        beat = lease.heartbeat([*former, *strangers])

    assert beat.fenced_claims == [*former, *strangers]


def test_many_orders_come_a_hundred_at_a_time_until_they_are_applied(make_stage: MakeStage) -> None:
    stage, _ = hold_many(make_stage)
    lease, held = stage.lease("w1"), [stage.claim_of(run) for run in stage.children]
    for run in stage.children:
        stage.queue.cancel(run)

    beat, stopped = lease.heartbeat(held), []
    while beat.orders:
        assert len(beat.orders) <= 100
        stopped += [order.run for order in beat.orders]
        beat = lease.heartbeat(held, beat.orders)

    assert stopped == stage.children


def test_many_workers_that_die_together_are_lost_together(make_stage: MakeStage) -> None:
    stage = make_stage()
    names = [f"w{number}" for number in range(120)]
    for name in names:
        stage.lease(name)
    stage.submit()
    stage.take(names[-1])

    lost = stage.world.watch_ms(stage.world.lost_after_ms())

    assert {*lost} == {*names}
    assert stage.present() == "pending"


# ---- time


def test_many_timers_ring_in_chunks(make_stage: MakeStage) -> None:
    stage = make_stage()
    late = submit_many(stage, TIMERS - 400, expires_ms=1000)
    due = submit_many(stage, 400, delay_ms=1000)
    since = len(stage.events())
    stage.world.pass_ms(1000)

    rung = [call(stage, "duty/run_timers") for _ in range(4)]

    assert [reply[0] for reply in rung if isinstance(reply, list)] == [TICK_PER_CALL, TICK_PER_CALL, 200, 0]
    assert by_name(stage.events(since)) == {"failed": {*late}, "promoted": {*due}}
    assert len(stage.events(since)) == TIMERS


def by_name(events: list[Event]) -> dict[str, set[str]]:
    names: dict[str, set[str]] = {}
    for event in events:
        names.setdefault(event.event, set()).add(event.run)
    return names


def test_a_round_of_the_promoter_does_all_that_is_due(make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.submit(expires_ms=1000)
    children = submit_many(stage, MANY, after=[stage.run])
    others = submit_many(stage, TICK_PER_CALL, delay_ms=1000)
    since = len(stage.events())
    stage.world.pass_ms(1000)

    stage.tick()

    assert by_name(stage.events(since)) == {"failed": {stage.run}, "skipped": {*children}, "promoted": {*others}}
    assert len(stage.events(since)) == 1 + MANY + TICK_PER_CALL


def test_a_claim_looks_past_many_entries_that_stand_for_nothing(make_stage: MakeStage) -> None:
    stage = make_stage()
    for run in submit_many(stage, MANY):
        stage.queue.cancel(run)
    stage.submit()

    assert [claim.id for claim in stage.lease("w1").claim(1)] == [stage.run]
    assert stage.size("XLEN", "lane", stage.spec.lane) == 1
