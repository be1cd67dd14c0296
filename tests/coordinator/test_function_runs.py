"""Function runs: their lanes, their short form, and the one call that ends many and brings the next."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from support.concurrency import running
from support.servers import until
from support.world import World

from agentq.coordinator.bounds import ARGUMENTS_BYTES, EVENTS_PER_ENTRY, LOSSES_BEFORE_START
from agentq.coordinator.errors import Fenced, Invalid, NotFound
from agentq.coordinator.events.stream import STREAM_START, PartitionEvents
from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.model.spec import Outcome, RunSpec, is_function_lane, parse_spec
from agentq.coordinator.runs.function_submitter import CALLS_PER_BATCH, FunctionSubmitter
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.workers.lease import FunctionOutcome, WorkerLease

MakeWorld = Callable[..., World]
CALL = RunSpec(kind="function", function="shop.prices:total")


def call(world: World, *args: int, **fields: object) -> str:
    spec: dict[str, object] = {"kind": "function", "function": "shop.prices:total", "args": args}
    return world.queue.submit(RunSpec.checked(**spec | fields)).id


def ended(claims: list[Claim], class_: str = "ok") -> list[FunctionOutcome]:
    return [FunctionOutcome(claim, class_, Outcome.model_validate({"class": class_}).to_wire()) for claim in claims]


# ---- on the wire


@pytest.mark.parametrize(
    ("fields", "wire"),
    [
        ({}, "shop.prices:total[]"),
        ({"args": (1, "a[{", None)}, 'shop.prices:total[1,"a[{",null]'),
        ({"kwargs": {"a": [1], "b": {"c": 2}}}, 'shop.prices:total{"a":[1],"b":{"c":2}}'),
        ({"args": (1,), "queue": "q", "priority": 9, "demands": {"gpu": "1"}}, "shop.prices:total[1]"),
    ],
)
def test_a_call_and_nothing_more_is_short_on_the_wire_and_comes_back_whole(
    fields: dict[str, object], wire: str
) -> None:
    spec = RunSpec.model_validate({"kind": "function", "function": "shop.prices:total"} | fields)

    assert spec.to_wire().decode() == wire
    assert parse_spec(wire, spec.lane) == spec


@pytest.mark.parametrize("fields", [{"timeout_ms": 5}, {"args": (1,), "kwargs": {"a": 1}}, {"fair_key": "ann"}])
def test_a_call_with_more_to_say_is_json_like_all_others(fields: dict[str, object]) -> None:
    spec = RunSpec.model_validate({"kind": "function", "function": "shop.prices:total"} | fields)

    assert spec.to_wire().startswith(b'{"v":1,')
    assert parse_spec(spec.to_wire().decode(), spec.lane) == spec


def test_functions_wait_in_lanes_of_their_own() -> None:
    lanes = [RunSpec.model_validate({"kind": "function", "function": "a:b", "queue": "f", **more}).lane for more in (
        {}, {"fair_key": "ann"}, {"demands": {"f": "1"}},
    )]  # fmt: skip

    assert lanes == ["f:5f:", "f:5f~:", "f:5f:f=1"]
    assert all(map(is_function_lane, lanes))
    assert not is_function_lane(RunSpec(kind="command", argv=["f"], queue="f", fair_key="f").lane)


# ---- many at once


def test_calls_that_are_put_together_from_text_are_what_a_spec_would_be(world: World) -> None:
    calls = FunctionSubmitter(world.queue, CALL)
    texts = ["[1,2]", '{"price":3}'] * CALLS_PER_BATCH

    ids = [receipt.id for receipt in calls.submit_many(texts)]

    assert len(set(ids)) == len(texts)
    assert world.get(ids[0]).spec == CALL.model_copy(update={"args": (1, 2)})
    assert world.get(ids[-1]).spec == CALL.model_copy(update={"kwargs": {"price": 3}})
    assert world.get(calls.submit("[7]").id).spec.args == (7,)


def test_calls_keep_what_else_their_template_says(world: World) -> None:
    template = CALL.model_copy(update={"timeout_ms": 5, "priority": 7, "limits": {"smtp": 2}})
    template = RunSpec.model_validate(template.model_dump(exclude_defaults=True))

    run = FunctionSubmitter(world.queue, template).submit('{"a":1}').id

    assert world.get(run).spec == template.model_copy(update={"kwargs": {"a": 1}})


def test_a_call_with_too_much_to_say_or_a_template_with_arguments_is_refused(world: World) -> None:
    with pytest.raises(Invalid, match="Pass large input as a file"):
        FunctionSubmitter(world.queue, CALL).submit(f'["{"ä" * (ARGUMENTS_BYTES // 2)}"]')
    with pytest.raises(Invalid, match="without arguments"):
        FunctionSubmitter(world.queue, CALL.model_copy(update={"args": (1,)}))
    with pytest.raises(Invalid, match="without arguments"):
        FunctionSubmitter(world.queue, RunSpec(kind="command", argv=["true"]))

    assert world.events() == []


def test_a_call_sent_twice_with_the_same_id_is_one_run(world: World) -> None:
    calls, run = FunctionSubmitter(world.queue, CALL), new_run_id()
    assert calls.submit("[1]", run_id=run).id == run

    with world.unchanged():
        assert calls.submit("[1]", run_id=run).id == run


# ---- claims


def test_a_worker_claims_functions_and_what_takes_a_slot_by_two_numbers(world: World) -> None:
    commands, functions = [world.submit() for _ in range(3)], [call(world, n) for n in range(5)]
    worker = world.worker("w1")

    assert [claim.id for claim in worker.claim(1)] == commands[:1]
    assert [claim.id for claim in worker.claim(0, 2)] == functions[:2]
    assert {claim.id for claim in worker.claim(9, 9)} == {*commands[1:], *functions[2:]}


def test_urgent_calls_come_first_and_others_do_not_starve(world: World) -> None:
    low, high = [call(world, n, priority=1) for n in range(5)], [call(world, n, priority=9) for n in range(50)]

    claims = [claim.id for claim in world.worker("w1").claim(0, 20)]

    assert set(claims) == {*low[:2], *high[:18]}


def test_an_exchange_tells_ends_and_brings_as_many_as_it_asks_for(world: World) -> None:
    runs = [call(world, n) for n in range(7)]
    worker = world.worker("w1")
    claims = worker.claim(0, 3)

    refusals, more = worker.exchange([*ended(claims[:2]), *ended(claims[2:], "rejected")], 2)

    assert refusals == [None] * 3
    assert world.states(runs) == ["completed"] * 2 + ["failed"] + ["claimed"] * 2 + ["pending"] * 2
    assert [claim.id for claim in more] == runs[3:5]
    assert worker.exchange(ended(more))[1] == []


def test_an_exchange_tells_of_each_end_what_was_refused(world: World) -> None:
    worker = world.worker("w1")
    runs = [call(world, n, retry={"failures": 1}) for n in range(3)]
    claims = worker.claim(0, 3)
    world.queue.release(claims[1])
    unknown = claims[0]._replace(id=new_run_id())

    refusals, _ = worker.exchange([*ended(claims[:2]), *ended([unknown]), *ended(claims[2:], "exit")])

    assert [type(refusal) for refusal in refusals] == [type(None), Fenced, NotFound, type(None)]
    assert world.states(runs) == ["completed", "pending", "scheduled"]


def test_an_exchange_sent_again_after_a_lost_reply_gives_the_same_runs(world: World) -> None:
    [call(world, n) for n in range(6)]
    worker = world.worker("w1")
    claims = worker.claim(0, 2)
    (partition_lease,) = worker._partition_leases
    nonce = partition_lease.exchanges[0]
    first = worker.exchange(ended(claims), 2)
    partition_lease.exchanges[0] = nonce

    with world.unchanged():
        assert worker.exchange(ended(claims), 2) == first


def test_a_worker_that_may_not_claim_tells_its_ends_all_the_same(world: World) -> None:
    runs = [call(world, n) for n in range(2)]
    worker = world.worker("w1")
    claims = worker.claim(0, 1)
    worker.drain()

    assert worker.exchange(ended(claims), 5) == ([None], [])
    assert world.states(runs) == ["completed", "pending"]


def test_runs_of_all_partitions_are_exchanged(make_world: MakeWorld) -> None:
    world = make_world(partitions=3)
    ids = {receipt.id for _ in range(20) for receipt in FunctionSubmitter(world.queue, CALL).submit_many(["[1]"] * 2)}
    worker, seen = world.worker("w1"), set[str]()
    claims = worker.claim(0, 7)

    while claims:
        seen |= {claim.id for claim in claims}
        refusals, claims = worker.exchange(ended(claims), 7)
        assert not any(refusals)

    assert seen == ids
    assert {each.state.value for each in world.records.all()} == {"completed"}


def test_a_claim_sent_along_with_a_blocking_read_takes_what_that_brings(world: World) -> None:
    worker, reader = world.worker("w1"), world.store.connection.another()
    first = call(world, 1)
    worker.exchange(ended(worker.claim(0, 1)))
    found = list[Claim]()

    def block(_: threading.Event) -> None:
        while not found:  # an order, as that there is a new lane, ends a wait, too
            found.extend(worker.watch(reader, 0, 5, 10_000).claims)

    with running(block):
        until(lambda: int(world.store.connection.command("INFO", "clients").count("blocked_clients:1")), "the read")
        run = call(world, 2)
        until(lambda: bool(found), "the claim")
    reader.close()

    assert [claim.id for claim in found] == [run] != [first]
    assert world.state(run) == "claimed"


# ---- their events


def test_what_happens_to_many_at_once_is_told_of_each_in_order_and_can_be_followed_from_any(world: World) -> None:
    many = 3 * EVENTS_PER_ENTRY + 1
    ids = [receipt.id for receipt in FunctionSubmitter(world.queue, CALL).submit_many(["[1]"] * many)]
    events = PartitionEvents(world.store)

    told = list(events.replay())

    assert [event.run for event in told] == ids
    assert int(world.store.connection.command("XLEN", events.key)) == 4
    assert len({event.id for event in told}) == many
    assert {event.at_ms for event in told} == {int(event.id.partition("-")[0]) for event in told}
    for place in (0, 1, EVENTS_PER_ENTRY - 1, EVENTS_PER_ENTRY, many - 2):
        assert [event.run for event in events.replay(told[place].id)] == ids[place + 1 :]
        assert events.follow(told[place].id, 10)[0].run == ids[place + 1]
    assert events.last_id() == told[-1].id
    assert not events.missed(told[3].id)
    events.close()


def test_events_of_one_run_never_overtake_each_other(world: World) -> None:
    """Though those of several runs are gathered: what ends in a call and what that lets go are told in between."""
    first = call(world, 1)
    after = [call(world, n, after=[first]) for n in range(3)]
    worker = world.worker("w1")

    worker.exchange(ended(worker.claim(0, 1)))
    claims = worker.claim(0, 5)

    assert sorted(claim.id for claim in claims) == sorted(after)
    for run in after:
        assert world.event_names(run) == ["submitted", "unblocked", "claimed"]
    names = [(event.event, event.run) for event in PartitionEvents(world.store).replay(STREAM_START)]
    assert names.index(("completed", first)) < min(names.index(("unblocked", run)) for run in after)


# ---- losses


def lost(world: World, worker: WorkerLease, way: str) -> WorkerLease:
    """Its runs are taken from a worker; returns the next one."""
    if way == "started again":
        world.pass_ms(world.settings.lease_ms + 1)
        return world.worker(worker.identity.id)
    assert world.watch_ms(world.lost_after_ms() + world.settings.reap_grace_ms) == [worker.identity.id]
    return world.worker(f"{worker.identity.id}+")


@pytest.mark.parametrize("way", ["reaped", "started again"])
def test_a_call_that_was_not_said_to_have_begun_goes_on_at_once_at_no_cost_to_its_crash_budget(
    world: World, way: str
) -> None:
    waiting, begun = (call(world, n, retry={"crashes": 1}) for n in range(2))
    worker = world.worker("w1")
    for crash in range(2):
        claims = {claim.id: claim for claim in worker.claim(0, 2)}
        world.queue.start([claims[begun]])
        worker = lost(world, worker, way)
        assert (world.state(waiting), world.get(waiting).crashes) == ("pending", 0)
        assert world.state(begun) == ("failed" if crash else "pending")


def test_a_call_that_ends_every_worker_before_it_is_said_to_have_begun_ends_too(world: World) -> None:
    run, worker = call(world), world.worker("w")
    for _ in range(LOSSES_BEFORE_START + 1):
        assert [claim.id for claim in worker.claim(0, 1)] == [run]
        worker = lost(world, worker, "reaped")

    assert (world.state(run), world.get(run).crashes) == ("failed", 0)


@pytest.mark.parametrize("retry", [{"crashes": 0}, {"final": ["lost"]}])
def test_a_call_that_may_not_be_made_twice_is_not_even_if_it_may_not_have_begun(
    world: World, retry: dict[str, object]
) -> None:
    run = call(world, retry=retry)
    worker = world.worker("w1")
    worker.claim(0, 1)

    lost(world, worker, "reaped")

    assert world.state(run) == "failed"
