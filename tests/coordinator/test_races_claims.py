"""Races for the same runs, keys and lanes. R-numbers are those of actors-and-races.md."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
from support.concurrency import ThreadBarrier, outcome_of, running
from support.servers import until
from support.world import World

from agentq.coordinator.duties.janitor import Janitor
from agentq.coordinator.errors import AgentqError, Duplicate
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import Outcome, RetryPolicy, RunSpec
from agentq.coordinator.runs.verbs import Claim, SubmitReceipt
from agentq.coordinator.storage.connection import Connection
from agentq.coordinator.storage.keys import CONSUMER_GROUP
from agentq.coordinator.workers.lease import WorkerLease

SPEC = RunSpec(kind="command", argv=["true"])
BLOCK_MS = 60_000
"""Longer than all of a test takes: what comes before its half was told of."""


def next_claims(world: World, lease: WorkerLease, reader: Connection) -> list[Claim]:
    """What a worker with one free slot does: claim, or else block on its lanes and inbox until there is something."""
    claims = lease.claim(1)
    if claims:
        return claims
    inbox = world.store.key(0, "worker_inbox", lease.identity.id)
    keys: dict[str, str] = {world.store.key(0, "lane", lane): lane for lane in lease.lanes(0)} | {inbox: ""}
    read = ("XREADGROUP", "GROUP", CONSUMER_GROUP, lease.identity.id, "COUNT", 1, "BLOCK", BLOCK_MS, "STREAMS")
    reply = reader.block(*read, *keys, *(">" for _ in keys), timeout_ms=BLOCK_MS)
    entries = [(keys[key], entry) for key, items in reply or () for entry, _ in items if key != inbox]
    return lease.adopt(0, entries, 1) if entries else lease.claim(1)


def test_slots_are_derived_from_who_holds_what_after_any_history(world: World) -> None:
    """R10: whatever is said, twice or in vain, the holders come to nothing when the runs do."""
    chance = random.Random(10)
    leases = [world.worker(f"w{number}") for number in range(3)]
    runs: list[str] = []
    claims: list[Claim] = []
    for step in range(400):
        verb = chance.choice(("submit", "claim", "finish", "fail", "release", "cancel", "requeue", "defer"))
        if verb == "submit":
            runs.append(world.submit(retry=RetryPolicy(failures=1, delay_ms=1)))
        elif verb == "claim":
            claims += chance.choice(leases).claim(2)
        elif claims:
            claim, limit = chance.choice(claims), Outcome.model_validate({"class": "limit"})
            acts: dict[str, Callable[[], object]] = {
                "finish": partial(world.queue.finish, [(claim, Outcome())]),
                "fail": partial(world.queue.fail, claim, Outcome.model_validate({"class": "exit"})),
                "release": partial(world.queue.release, claim),
                "defer": partial(world.queue.defer, claim, world.now_ms, limit),
                "cancel": partial(world.queue.cancel, chance.choice(runs)),
                "requeue": partial(world.queue.requeue, chance.choice(runs), operation="once"),
            }
            for _ in range(2):
                outcome_of(acts[verb])()
        if step % 20 == 0:
            world.check()

    for lease in leases:
        lease.deregister()
    for run in runs:
        outcome_of(partial(world.queue.cancel, run))()
    assert all(not snapshot.of("worker_runs") for snapshot in world.snapshots())
    assert set(world.records.count()["default"]) <= {State.COMPLETED, State.FAILED, State.CANCELLED}


def test_an_order_that_is_given_right_after_a_worker_registered_reaches_it(world: World) -> None:
    """R19: its inbox is there before anyone can give it anything, and is read from the beginning."""
    lease = world.worker("w1")
    run = world.submit(queue="default")
    (claim,) = lease.claim(1)
    world.queue.cancel(run)

    orders = lease.heartbeat([claim]).orders

    assert [(order.order, order.run, order.detail) for order in orders] == [
        ("lanes", "", "default:5:"),
        ("stop", run, "cancelled on request"),
    ]


def test_no_run_is_left_beside_a_free_slot(world: World) -> None:
    """R20: a worker that registers, comes back, or ends a run finds what waited in its very next call."""
    first, second, third = (world.submit() for _ in range(3))
    lease = world.worker("w1")
    (claim,) = lease.claim(1)
    assert claim.id == first
    world.queue.finish([(claim, Outcome())])
    assert [claim.id for claim in lease.claim(1)] == [second]

    world.watch_ms(world.lost_after_ms())
    lease.register()
    assert [claim.id for claim in lease.claim(5)] == [third, second]


def test_a_lane_that_was_opened_after_the_last_look_is_served_at_once(world: World) -> None:
    """R20."""
    lease = world.worker("w1", labels={"gpu": "h100"})
    assert lease.claim(1) == []
    for fields in ({"priority": 9}, {"demands": {"gpu": "h100"}}, {"priority": 0}):
        run = world.submit(**fields)

        assert [claim.id for claim in lease.claim(1)] == [run]


def test_a_burst_is_claimed_once_and_nobody_gets_more_than_it_asked_for(world: World) -> None:
    """R35: eight workers, and a ninth thread that submits while they claim."""
    leases = [world.worker(f"w{number}") for number in range(8)]
    submitted: list[str] = []
    taken: list[str] = []

    def take(lease: WorkerLease, chance: random.Random) -> None:
        mine: list[str] = []
        while len(mine) < 40:
            count = min(chance.randint(1, 7), 40 - len(mine))
            claims = lease.claim(count)
            assert len(claims) <= count
            mine += [claim.id for claim in claims]
        taken.extend(mine)

    def burst() -> None:
        for _ in range(8):
            submitted.extend(receipt.id for receipt in world.queue.submit_many([SPEC] * 40))

    with ThreadBarrier(9) as threads:
        for number in range(5):
            acts = [partial(take, lease, random.Random(number + place)) for place, lease in enumerate(leases)]
            threads.at_once(*acts, burst)

    assert Counter(taken) == Counter(submitted)
    assert {len(record.runs) for record in world.records.workers()} == {200}


@pytest.mark.full("takes 2 s")
def test_a_worker_that_waits_is_woken_by_each_run_wherever_it_is_submitted(world: World) -> None:
    """R36, R45: what comes between its last look and its sleep ends the sleep; so does a lane that it does not know."""
    lease, reader = world.worker("w1"), world.store.connection.another()
    chance, runs, claimed = random.Random(36), 150, list[str]()

    def work(stop: threading.Event) -> None:
        while len(claimed) < runs and not stop.is_set():
            claims = next_claims(world, lease, reader)
            claimed.extend(claim.id for claim in claims)
            world.queue.finish([(claim, Outcome()) for claim in claims])

    with running(work):
        for _ in range(runs):
            run = world.submit(priority=chance.randint(0, 9))
            until(lambda run=run: run in claimed[-1:], "the run to be claimed", BLOCK_MS / 2000)  # type: ignore[misc]
    reader.close()


def test_many_waiting_workers_share_what_comes_and_each_run_begins_once(world: World) -> None:
    """R36, R45."""
    leases = [world.worker(f"w{number}") for number in range(4)]
    readers = [world.store.connection.another() for _ in leases]
    runs, claimed, over = [world.submit() for _ in range(10)], list[str](), threading.Event()

    def work(lease: WorkerLease, reader: Connection, _: threading.Event) -> None:
        while not over.is_set():
            claims = next_claims(world, lease, reader)
            claimed.extend(claim.id for claim in claims)
            assert len(claims) <= 1
            world.queue.finish([(claim, Outcome()) for claim in claims])

    with running(*map(partial, [work] * 4, leases, readers)):
        runs += [world.submit(priority=number % 3) for number in range(200)]
        until(lambda: len(claimed) >= len(runs), "all runs to be claimed", BLOCK_MS / 2000)
        over.set()
        for reader in readers:
            reader.unblock()

    assert Counter(claimed) == Counter(runs)
    for reader in readers:
        reader.close()


def test_closing_idle_lanes_never_drops_a_run(world: World) -> None:
    """R37: the janitor closes every lane the moment it is empty, while runs come and go in it."""
    janitor, runs, done = Janitor(world.store, idle_ms=0), list[str](), list[str]()
    leases = [world.worker(f"w{number}") for number in range(2)]

    def close(stop: threading.Event) -> None:
        while not stop.is_set():
            janitor.run_once(0)

    def work(lease: WorkerLease, stop: threading.Event) -> None:
        while not stop.is_set():
            claims = lease.claim(3)
            world.queue.finish([(claim, Outcome()) for claim in claims])
            done.extend(claim.id for claim in claims)

    with running(close, *(partial(work, lease) for lease in leases)):
        for number in range(300):
            runs.append(world.submit(priority=number % 3, queue="default"))
            if number % 10 == 0:
                until(lambda: len(done) == len(runs), "all runs to be done")
        until(lambda: len(done) == len(runs), "all runs to be done")

    assert sorted(done) == sorted(runs)
    assert set(world.records.count()["default"]) == {State.COMPLETED}


@pytest.mark.parametrize("if_live", ["return", "reject", "replace"])
def test_one_dedupe_key_has_one_live_run_however_many_submit_at_once(world: World, if_live: str) -> None:
    """R38: and whoever came second knows which."""
    spec = RunSpec.checked(kind="command", argv=["true"], dedupe_key="nightly", if_live=if_live)
    with ThreadBarrier(8) as threads:
        for _ in range(20):
            receipts = threads.at_once(*[outcome_of(partial(world.queue.submit, spec))] * 8)

            live = [run.id for run in world.records.page().runs if run.state is State.PENDING]
            assert len(live) == 1
            winners = [receipt.id for receipt in receipts if isinstance(receipt, SubmitReceipt) and receipt.created]
            losers = [receipt for receipt in receipts if not isinstance(receipt, SubmitReceipt) or not receipt.created]
            assert live[0] in winners
            if if_live == "replace":
                assert len(winners) == 8
            elif if_live == "return":
                assert losers == [SubmitReceipt(live[0], created=False)] * 7
            else:
                assert [(type(loser), live[0] in str(loser)) for loser in losers] == [(Duplicate, True)] * 7
            world.queue.cancel(live[0])


def test_an_end_and_a_new_submit_with_its_key_at_the_same_moment_leave_one_live_run_or_none(world: World) -> None:
    """R38: destroy and recreate."""
    spec = RunSpec.checked(kind="command", argv=["true"], dedupe_key="nightly")
    with ThreadBarrier(3) as threads:
        for _ in range(50):
            before = world.queue.submit(spec).id
            acts = [partial(world.queue.submit, spec)] * 2
            first, second, _ = threads.at_once(*acts, partial(world.queue.cancel, before))
            assert isinstance(first, SubmitReceipt)
            assert isinstance(second, SubmitReceipt)

            made = [receipt.id for receipt in (first, second) if receipt.created]
            assert len(made) <= 1
            assert {first.id, second.id} <= {before, *made}
            for run in made:
                assert world.state(run) == "pending"
                world.queue.cancel(run)


def test_an_ended_run_takes_its_key_back_only_if_it_is_free(world: World) -> None:
    """R38."""
    old, other = world.submit(dedupe_key="k"), ""
    world.queue.cancel(old)
    other = world.submit(dedupe_key="k")

    with world.unchanged(), pytest.raises(AgentqError, match=other):
        world.queue.requeue(old)

    world.queue.cancel(other)
    assert world.queue.requeue(old) is State.PENDING
    assert world.submit(dedupe_key="k") == old
