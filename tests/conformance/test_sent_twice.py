"""Every call can be sent twice: a reply that was lost looks like a call that was lost.

The verbs of a run, each in every state, are in `test_every_state_every_verb`; here are whole lives, workers' calls,
and calls for many runs at once.
"""

from __future__ import annotations

from types import NoneType

import pytest
from conformance import lives
from conformance.stage import COMMAND, MakeStage, Stage
from conformance.variants import VARIANTS, Variant
from support.world import World

from agentq.coordinator.errors import Draining, Duplicate, Fenced, NotFound
from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.runs.verbs import Claim, SubmitReceipt
from agentq.coordinator.workers.lease import WorkerLease, order_drain


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_a_life_of_which_every_reply_was_lost_once_is_the_same_life(
    variant: Variant, world: World, repeating_world: World
) -> None:
    events = []
    for each in (world, repeating_world):
        stage = Stage(each, children=1)
        variant.build(stage)
        ids = {stage.run: "run", **dict.fromkeys(stage.children, "child")}
        told = [event for event in stage.events() if event.run in ids]
        events.append([(ids[event.run], event.event, event.state, event.attempt, event.worker) for event in told])
        assert stage.present() == (variant.state or "none")

    assert events[0] == events[1]


# ---- many runs in one call


def command(**fields: object) -> RunSpec:
    return RunSpec.checked(**COMMAND, **fields)


def test_many_submits_sent_again_find_what_they_made(make_stage: MakeStage) -> None:
    stage = make_stage()
    key = stage.key_at_home("taken")
    stage.submit(dedupe_key=key)
    ids = [new_run_id(stage.partition) for _ in range(6)]
    specs = [
        command(),
        command(after=[ids[0]]),
        command(after=[new_run_id(stage.partition)]),
        command(dedupe_key=key),
        command(dedupe_key=key, if_live="reject"),
        command(dedupe_key=stage.key_at_home("new"), delay_ms=10),
    ]

    first = list(stage.queue.submit_many(specs, run_ids=ids))
    with stage.unchanged():
        again = list(stage.queue.submit_many(specs, run_ids=ids))

    assert told(again) == told(first)
    assert [receipt.created for receipt in first] == [True, True, False, False, False, True]
    assert [type(receipt.refused) for receipt in first[2:5]] == [NotFound, NoneType, Duplicate]
    assert first[3].id == stage.run


def told(receipts: list[SubmitReceipt]) -> list[tuple[str, bool, str]]:
    return [(receipt.id, receipt.created, str(receipt.refused)) for receipt in receipts]


def test_a_run_that_is_named_twice_in_one_call_goes_along_once(make_stage: MakeStage) -> None:
    stage = make_stage(children=1)
    lives.claimed(stage)
    claim, outcome = stage.claim, Outcome()

    assert stage.queue.start([claim, claim]) == [None, None]
    assert stage.queue.finish([(claim, outcome), (claim, outcome)]) == [None, None]

    assert [event.event for event in stage.events() if event.run == stage.run][2:] == ["started", "completed"]


def test_each_of_many_is_answered_for_itself(make_stage: MakeStage) -> None:
    stage = make_stage()
    lives.claimed(stage)
    stranger = Claim(new_run_id(stage.partition), "1-nobody", "", "")
    former = Claim(stage.run, "0-before", "", "")

    started = stage.queue.start([stranger, stage.claim, former])
    finished = stage.queue.finish([(claim, Outcome()) for claim in (former, stage.claim, stranger)])

    assert [type(each) for each in started] == [NotFound, NoneType, Fenced]
    assert [type(each) for each in finished] == [Fenced, NoneType, NotFound]


def test_a_report_of_an_old_number_changes_nothing(make_stage: MakeStage) -> None:
    stage = make_stage()
    lives.running(stage)
    stage.queue.report(stage.claim, 2, {"percent": 20})

    with stage.unchanged():
        stage.queue.report(stage.claim, 2, {"percent": 20})
        stage.queue.report(stage.claim, 1, {"percent": 10})
    stage.queue.report(stage.claim, 10, {"percent": 90})

    assert stage.world.get(stage.run).progress == {"percent": 90}


def test_a_requeue_sent_again_when_the_run_has_gone_on_changes_nothing(make_stage: MakeStage) -> None:
    stage = make_stage()
    lives.failed(stage)
    assert stage.queue.requeue(stage.run, operation="op-1") == State.PENDING

    for step in (lives.nothing, lives.take, Stage.start, Stage.finish):
        step(stage)
        with stage.unchanged():
            assert stage.queue.requeue(stage.run, operation="op-1") == stage.present()

    assert stage.queue.requeue(stage.run, operation="op-2") == State.PENDING


def test_a_stop_is_ordered_once_and_keeps_its_first_deadline(make_stage: MakeStage) -> None:
    stage = make_stage()
    lives.running(stage)
    stage.queue.cancel(stage.run, stop_ms=5_000)

    with stage.unchanged():
        stage.queue.cancel(stage.run, stop_ms=1)

    assert [order.order for order in stage.lease("w1").heartbeat([stage.claim]).orders] == ["stop"]


# ---- workers


def test_a_claim_sent_again_gives_what_is_still_held_of_the_same_runs(make_stage: MakeStage) -> None:
    stage = make_stage()
    ids = [stage.submit_other(priority=priority) for priority in (1, 5, 5, 9)]
    words = ("w1", stage.epoch("w1"), "nonce", 3, 0, "", "default:9:", "default:5:", "default:1:")

    first = stage.world.store.call("worker/claim", stage.partition, *words)
    with stage.unchanged():
        assert stage.world.store.call("worker/claim", stage.partition, *words) == first

    claims = [Claim(*first[at : at + 4]) for at in range(2, len(first), 4)]
    assert [claim.id for claim in claims] == [ids[3], *ids[1:3]]
    stage.queue.finish([(claims[0], Outcome())])
    with stage.unchanged():
        rest = stage.world.store.call("worker/claim", stage.partition, *words)
    assert rest == [*first[:2], *first[6:]]


def test_a_registration_sent_again_keeps_epoch_and_runs(make_stage: MakeStage) -> None:
    stage = make_stage()
    store, identity = stage.world.store, stage.lease("w9").identity.model_copy(update={"id": "w1"})
    words = ("w1", "0", "operation", 30_000, "0.5", identity.model_dump_json())

    epochs = [store.call("worker/register", partition, *words)[1] for partition in store.partitions()]
    stage.leases["w1"] = WorkerLease(store, identity, stage.world.settings)
    stage.leases["w1"].go_on(epochs)
    stage.submit()
    claim = stage.take()
    with stage.unchanged():
        again = store.call("worker/register", stage.partition, *words)

    assert (again[:3], again[4:]) == (["ok", epochs[stage.partition], 1], [claim.id, claim.fence])


def test_another_process_with_the_name_of_a_live_worker_is_refused(make_stage: MakeStage) -> None:
    stage = make_stage()
    lives.running(stage)

    with stage.unchanged(), pytest.raises(Duplicate):
        stage.world.worker("w1")


def test_a_worker_that_comes_back_in_time_keeps_its_runs(make_stage: MakeStage) -> None:
    stage = make_stage()
    lives.running(stage)
    stage.world.pass_ms(stage.world.settings.lease_ms + 1)

    for _ in range(2):
        assert stage.lease("w1").register() == [(stage.run, stage.claim.fence)]

    assert stage.lease("w1").heartbeat([stage.claim]).fenced_claims == []


def test_a_heartbeat_sent_again_changes_nothing_and_brings_the_same_orders(make_stage: MakeStage) -> None:
    stage = make_stage()
    lives.stopping(lives.running)(stage)
    lease = stage.lease("w1")
    beat = lease.heartbeat([])

    with stage.unchanged():
        assert lease.heartbeat([]) == beat
    lease.heartbeat([stage.claim], beat.orders)
    with stage.unchanged():
        assert lease.heartbeat([stage.claim], beat.orders).orders == []


def test_a_drain_sent_again_orders_nothing_twice(make_stage: MakeStage) -> None:
    stage = make_stage()
    lives.running(stage)
    lease = stage.lease("w1")
    lease.drain()

    with stage.unchanged():
        lease.drain()
        order_drain(stage.world.store, stage.partition, "w1", "by an operator")

    assert lease.heartbeat([stage.claim]).draining
    with stage.unchanged(), pytest.raises(Draining):
        lease.claim(1)


def test_leaving_twice_hands_back_once(make_stage: MakeStage) -> None:
    stage = make_stage()
    lives.running(stage)
    stage.lease("w1").deregister()

    with stage.unchanged():
        stage.lease("w1").deregister()

    assert stage.world.event_names(stage.run)[-1] == "released"
    assert stage.world.get(stage.run).crashes == 0
