"""What goes wrong in the system that runners speak to today, and does not here: the list in runner-protocol.md.

Here stands what concerns runs and workers in the core. Sessions (10 to 12: callbacks, resuming, a busy session), start
hooks (2), processes (13, 15) and what a spec may name (17, 18) come with the parts that know of them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.lossy_proxy import Proxy
from support.servers import Server
from support.world import World

from agentq.coordinator.duties.reaper import Reaper
from agentq.coordinator.errors import AgentqError, Duplicate, Evicted, Fenced, Refused
from agentq.coordinator.events.stream import PartitionEvents
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import Outcome, RetryPolicy
from agentq.coordinator.runs.queries import RunFilter, RunQueries
from agentq.coordinator.runs.verbs import Claim, RunVerbs
from agentq.coordinator.storage.connection import Connection
from agentq.coordinator.storage.scripts import SCRIPTS, ScriptSet
from agentq.coordinator.storage.store import NamespaceStore
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease

DAY_MS = 86_400_000
EXIT = Outcome.model_validate({"class": "exit", "exit_code": 1})
OTHERS = (lambda queue, claim: queue.fail(claim, EXIT), lambda queue, claim: queue.finish([(claim, Outcome())])[0])
Say = Callable[[RunVerbs, Claim], object]


def afresh(world: World) -> NamespaceStore:
    """The same namespace in the eyes of a program that has just started: no object of the old one is used."""
    return NamespaceStore(world.store.connection.another(), world.store.keyspace, clock=lambda: world.now_ms)


def word(act: Callable[[], object]) -> str:
    """The name of what is said to be wrong: raised, or told of a run in a batch."""
    try:
        told = act()
    except AgentqError as refused:
        told = refused
    return type(told).__name__


# 1: lost claim


def test_a_claim_whose_reply_was_lost_is_answered_again_with_the_same_runs(world: World, valkey: Server) -> None:
    """Defect 1."""
    world.worker("w0").claim(1)  # the server knows the script from now on, so that the lost call takes effect
    runs = [world.submit() for _ in range(5)]
    with Proxy(valkey, ScriptSet().source(SCRIPTS["worker/claim"]).sha.encode()) as proxy:
        store = NamespaceStore(Connection(proxy.url), world.store.keyspace, clock=lambda: world.now_ms)
        lease = WorkerLease(store, WorkerIdentity(id="w1", queues=("default",)), world.settings)
        lease.register()

        claims = lease.claim(3)

        assert proxy.lost == 1
        store.connection.close()
    assert [claim.id for claim in claims] == runs[:3]
    assert world.states(runs) == ["claimed"] * 3 + ["pending"] * 2
    assert [world.get(run).attempt for run in runs[:3]] == [1, 1, 1]


def test_a_claim_that_its_worker_never_heard_of_goes_elsewhere_at_no_cost(world: World) -> None:
    """Defect 1."""
    run = world.submit()
    deaf = world.worker("w1")
    deaf.claim(1)

    deaf.heartbeat([])
    world.pass_ms(world.settings.forget_ms)
    deaf.heartbeat([])

    (claim,) = world.worker("w2").claim(1)
    assert claim.id == run
    assert (world.get(run).failures, world.get(run).crashes) == (0, 0)
    assert world.event_names(run) == ["submitted", "claimed", "released", "claimed"]


def test_a_claim_of_a_worker_that_vanished_goes_elsewhere(world: World) -> None:
    """Defect 1."""
    claim = world.held("w1")

    assert world.watch_ms(world.lost_after_ms()) == ["w1"]

    assert [again.id for again in world.worker("w2").claim(5)] == [claim.id]


# 3: stop of a later attempt


def test_a_stop_reaches_the_worker_of_the_present_attempt_and_no_other(world: World) -> None:
    """Defect 3."""
    run, before = world.submit(retry=RetryPolicy(failures=1, delay_ms=1)), world.worker("w1")
    (first,) = before.claim(1)
    world.queue.fail(first, EXIT)
    world.pass_ms(10)
    world.tick()
    lease = world.worker("w2")
    (second,) = lease.claim(1)
    world.queue.start([second])

    assert world.queue.cancel(run) is State.RUNNING

    assert [order for order in before.heartbeat().orders if order.order == "stop"] == []
    (order,) = [order for order in lease.heartbeat([second]).orders if order.order == "stop"]
    assert (order.run, order.fence) == (second.id, second.fence)
    assert world.queue.fail(second, Outcome(class_=OutcomeClass.CANCELLED)) is State.CANCELLED


# 4: lost runner, lying API


def test_all_ways_to_look_agree_the_moment_a_worker_is_lost(world: World) -> None:
    """Defect 4: there is one place where the state stands, and nothing that could be out of date."""
    claim = world.held("w1", started=True, retry=RetryPolicy(crashes=0))
    world.watch_ms(world.lost_after_ms())

    for records in (world.records, RunQueries(afresh(world))):
        run = records.get(claim.id)
        assert (run.state, run.outcome and run.outcome.class_) == (State.FAILED, OutcomeClass.LOST)
        assert [each.state for each in records.page().runs] == [State.FAILED]
        assert records.page(RunFilter(states=(State.RUNNING,))).runs == []
        assert records.count() == {"default": {State.FAILED: 1}}
        assert records.workers() == []


# 5: state guard and ownership


@pytest.mark.parametrize("late", OTHERS, ids=["fail", "finish"])
def test_what_is_said_after_the_end_changes_nothing(world: World, late: Say) -> None:
    """Defect 5."""
    finished, stopped = world.held("w1", started=True), world.held("w2", started=True)
    world.queue.finish([(finished, Outcome())])
    world.queue.cancel(stopped.id)
    world.queue.fail(stopped, Outcome(class_=OutcomeClass.CANCELLED))

    with world.unchanged():
        said = [word(lambda claim=claim: late(world.queue, claim)) for claim in (finished, stopped)]  # type: ignore[misc]

    assert set(said) <= {"WrongState", "NoneType", "State"}
    assert world.states([finished.id, stopped.id]) == ["completed", "cancelled"]


@pytest.mark.parametrize("say", OTHERS, ids=["fail", "finish"])
def test_nobody_can_end_the_run_of_another_worker(world: World, say: Say) -> None:
    """Defect 5: what counts is the fence, which only the worker that claimed the run has seen."""
    claim = world.held("w1", started=True)
    guesses = [f"{number}-{nonce}" for number in (0, 1, 2) for nonce in ("", "w2", claim.fence[2:-1])]

    with world.unchanged():
        for fence in ["", *guesses]:
            assert word(lambda fence=fence: say(world.queue, claim._replace(fence=fence))) == "Fenced"  # type: ignore[misc]


@pytest.mark.parametrize("say", OTHERS, ids=["fail", "finish"])
def test_a_superseded_attempt_is_refused_by_name(world: World, say: Say) -> None:
    """Defect 5."""
    old = world.held("w1", started=True)
    world.watch_ms(world.lost_after_ms())
    (new,) = world.worker("w2").claim(1)

    with world.unchanged():
        assert word(lambda: say(world.queue, old)) == "Fenced"

    assert world.queue.finish([(new, Outcome())]) == [None]


# 6: a restart of the coordinator


def test_a_restart_of_the_coordinator_is_noticed_by_nobody(world: World) -> None:
    """Defect 6: it keeps nothing that is not in the store, so that workers neither register again nor lose a run."""
    lease = world.worker("w1")
    running, waiting = world.submit(), world.submit()
    (claim,) = lease.claim(1)
    store = afresh(world)
    reaper = Reaper(store, world.settings, server="server-1")

    assert reaper.reap(0).lost == []
    assert lease.heartbeat([claim]).fenced_claims == []
    assert RunVerbs(store).start([claim]) == [None]
    assert RunVerbs(store).finish([(claim, Outcome())]) == [None]
    assert [again.id for again in lease.claim(5)] == [waiting]
    assert RunQueries(store).get(running).state is State.COMPLETED


def test_a_worker_whose_own_program_restarted_takes_up_its_lease_with_its_epoch(world: World) -> None:
    """Defect 6: a worker that kept its epoch comes back to its runs, whatever objects it lost."""
    lease = world.worker("w1")
    run = world.submit()
    (claim,) = lease.claim(1)
    world.pass_ms(world.settings.lease_ms - 1)

    assert lease.register() == [(run, claim.fence)]


# 7: a crashed runner comes back at once


def test_a_crashed_worker_comes_back_at_once_under_a_new_id(world: World) -> None:
    """Defect 7: an id is a process's, so nothing has to run out first; its old runs come back after the lease."""
    lost = world.held("w-1", started=True)
    waiting = world.submit()

    successor = world.worker("w-2")

    assert [claim.id for claim in successor.claim(5)] == [waiting]
    world.pass_ms(world.settings.heartbeat_ms)
    successor.heartbeat()
    assert world.state(lost.id) == "running", "nobody can know yet that it is not"


def test_a_crashed_worker_comes_back_under_its_old_id_when_its_lease_is_over(world: World) -> None:
    """Defect 7: not before, as the other may live, and without waiting for a reaper; its old runs go on at once."""
    lost = world.held("w1", started=True)
    with pytest.raises(Duplicate, match="worker w1 is refused: another one has its id or key"):
        world.worker("w1")
    world.pass_ms(world.settings.lease_ms)

    successor = world.worker("w1")

    assert [claim.id for claim in successor.claim(5)] == [lost.id]
    with pytest.raises(Fenced):
        world.queue.fail(lost, EXIT)


def test_a_late_heartbeat_of_the_old_process_does_not_share_the_id_of_the_new_one(world: World) -> None:
    """Defect 7."""
    old = world.worker("w1")
    world.pass_ms(world.settings.lease_ms)
    new = world.worker("w1")

    with pytest.raises(Evicted):
        old.heartbeat()
    with pytest.raises(Evicted):
        old.claim(1)
    assert new.heartbeat().orders == []


# 8: first in, first out


def test_order_survives_a_restart_of_everything(durable: Server) -> None:
    """Defect 8: the order is that of the stream, which is on disk; a killed server reads it again as it was."""
    connection = Connection(durable.url)
    world = World(connection)
    runs = [world.submit(argv=["echo", str(number)]) for number in range(20)]
    before = [claim.id for claim in world.worker("w1").claim(5)]

    durable.stop()
    durable.start()

    again = Connection(durable.url)
    lease = WorkerLease(
        NamespaceStore(again, world.store.keyspace), WorkerIdentity(id="w2", queues=("default",)), world.settings
    )
    lease.register()
    assert before + [claim.id for _ in range(3) for claim in lease.claim(5)] == runs
    world.check()
    connection.close()
    again.close()


# 9: nothing expires unasked


def test_a_run_that_nobody_claims_waits_for_ever(world: World) -> None:
    """Defect 9."""
    runs = [world.submit(), world.submit(demands={"gpu": "h100"}), world.submit(plan="p", session="s")]

    for _ in range(10):
        world.pass_ms(365 * DAY_MS)
        world.tick()
        world.reap()

    assert world.states(runs) == ["pending"] * 3


def test_a_run_that_was_given_a_time_limit_ends_by_name_with_all_that_depends_on_it(world: World) -> None:
    """Defect 9: there the session stays pending for ever, and nobody is told."""
    run = world.submit(expires_ms=300_000)
    dependent = world.submit(after=[run])
    world.pass_ms(300_000)
    world.tick()

    ended = world.get(run)
    assert (ended.state, ended.outcome and ended.outcome.error) == (State.FAILED, "not started in time")
    assert world.state(dependent) == "skipped"


# 14: cap


def test_a_worker_gets_no_more_runs_than_it_asked_for(world: World) -> None:
    """Defect 14: forty runs at once on one runner."""
    for number in range(40):
        world.submit(priority=number % 10, queue="default" if number % 2 else "other")
    lease = world.worker("w1", "default", "other")

    for count in (1, 3, 0, 7):
        assert len(lease.claim(count)) == count
    assert len(world.records.workers()[0].runs) == 11


# 16: events


def test_events_are_replayed_whole_and_from_any_id(world: World) -> None:
    """Defect 16: there the first hundred come back, whatever the client has seen."""
    runs = [world.submit() for _ in range(350)]
    events = PartitionEvents(world.store)

    everything = list(events.replay())
    assert [event.run for event in everything] == runs
    for place in (0, 99, 100, 250, 349):
        assert list(events.replay(everything[place].id)) == everything[place + 1 :]
    assert not events.missed(everything[0].id)


def test_a_wrong_verb_is_refused_with_what_is_the_case(world: World) -> None:
    """Defect 5: there everything is answered with 200."""
    run = world.submit()
    with pytest.raises(Refused, match=f"run {run} is pending"):
        world.queue.requeue(run)
