"""Conversations: what attempts of agents begin from and tell, and where those after them go."""

from __future__ import annotations

import random

import pytest
from coordinator.test_sessions import claim, lease, turn
from support.repeating_connection import Repeating
from support.servers import Server
from support.world import World

from agentq.coordinator.bounds import TRANSCRIPT_BYTES
from agentq.coordinator.errors import Fenced, NotFound, TryLater, WrongState
from agentq.coordinator.model.agent_options import AgentBudgets
from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import AgentSpending, Outcome, RetryPolicy
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.sessions.conversations import AgentConversations, TranscriptTooLarge
from agentq.coordinator.sessions.verbs import Sessions

EXIT = Outcome(class_=OutcomeClass.EXIT)


@pytest.fixture
def talk(world: World) -> AgentConversations:
    return AgentConversations(world.store)


def alone(world: World, **fields: object) -> str:
    """A run of an agent without a session."""
    return turn(world, None, **({"retry": RetryPolicy(failures=5)} | fields))


def fail(world: World, held: Claim) -> None:
    """The attempt fails, and the next one is there to be claimed."""
    assert world.queue.fail(held, EXIT, delay_ms=0) == "scheduled"
    world.tick()


# ---- what an attempt begins from


def test_the_first_attempt_begins_from_nothing_and_the_next_from_what_was_bound(
    world: World, talk: AgentConversations
) -> None:
    run = alone(world)
    first = claim(lease(world, host="alpha"))
    begins = talk.open(first)
    assert (begins.agent_session, begins.host, begins.totals, begins.budgets) == (None, None, {}, None)
    assert not begins.movable
    assert not begins.fork
    assert begins.spent.run == AgentSpending(cost_usd=0.0)
    assert begins.spent.session is None

    talk.bind(first, "uuid-1", host="alpha", account="work", model="opus", movable=True)
    talk.spend(first, AgentSpending(cost_usd=0.25, input_tokens=10, output_tokens=4, turns=1), {"cost": 0.25})
    fail(world, first)
    again = talk.open(claim(lease(world, "w2", host="beta")))

    assert (again.agent_session, again.host, again.account, again.model) == ("uuid-1", "alpha", "work", "opus")
    assert again.totals == {"cost": 0.25}
    assert again.spent.run == AgentSpending(cost_usd=0.25, input_tokens=10, output_tokens=4, turns=1)
    found = world.get(run)
    assert (found.agent, found.agent_session, found.host, found.account) == ("claude", "uuid-1", "alpha", "work")
    assert (found.model, found.spending) == ("opus", again.spent.run)


def test_a_turn_begins_from_where_the_one_before_it_ended(world: World, talk: AgentConversations) -> None:
    sessions = Sessions(world.store)
    sessions.new("chat", "claude", cwd="/src", model="opus", budgets=AgentBudgets(cost_usd=2))
    ids, worker = [turn(world) for _ in range(2)], lease(world, host="alpha")
    first = claim(worker)
    talk.bind(first, "uuid-1", host="alpha", model="opus-4", movable=True)
    talk.spend(first, AgentSpending(cost_usd=0.5, turns=2), {"cost": 0.5})
    world.queue.finish([(first, Outcome())])

    begins = talk.open(claim(worker))

    assert (begins.agent_session, begins.cwd, begins.model) == ("uuid-1", "/src", "opus")
    assert (begins.totals, begins.budgets) == ({"cost": 0.5}, AgentBudgets(cost_usd=2))
    assert (begins.spent.run.cost_usd, begins.spent.session) == (0.0, AgentSpending(cost_usd=0.5, turns=2))
    assert world.get(ids[0]).model == "opus-4"
    assert world.get(ids[1]).agent_session is None
    assert sessions.get("chat").agent_session == "uuid-1"


def test_a_conversation_that_its_agent_does_not_know_begins_anew(world: World, talk: AgentConversations) -> None:
    alone(world)
    worker = lease(world, host="alpha")
    first = claim(worker)
    talk.bind(first, "uuid-1", host="alpha", movable=False)
    talk.spend(first, AgentSpending(turns=1), {"cost": 0.5})
    talk.bind(first, None, host="alpha", movable=False)
    fail(world, first)

    begins = talk.open(claim(lease(world, "w2", host="beta")))

    assert (begins.agent_session, begins.host, begins.totals) == (None, None, {})
    assert begins.spent.run.turns == 1


def test_a_requeued_run_begins_a_new_conversation_with_fresh_budgets(world: World, talk: AgentConversations) -> None:
    run, worker = alone(world), lease(world, host="alpha")
    held = claim(worker)
    talk.bind(held, "uuid-1", host="alpha", movable=False)
    talk.carry(held, b"what was said")
    talk.bind(held, "uuid-1", host="alpha", movable=False)
    talk.spend(held, AgentSpending(cost_usd=1, turns=3), {"cost": 1})
    world.queue.fail(held, Outcome(class_=OutcomeClass.BUDGET))
    world.queue.requeue(run)

    again = claim(lease(world, "w2", host="beta"))

    begins = talk.open(again)
    assert (begins.agent_session, begins.totals, begins.spent.run) == (None, {}, AgentSpending(cost_usd=0.0))
    assert talk.spend(again, AgentSpending(cost_usd=0.5, turns=1)).run == AgentSpending(cost_usd=0.5, turns=1)
    assert world.get(run).spending == AgentSpending(cost_usd=1.5, turns=4)


# ---- where the next attempt goes


def test_a_conversation_that_cannot_travel_keeps_later_attempts_on_its_host(
    world: World, talk: AgentConversations
) -> None:
    run = alone(world)
    here, elsewhere = lease(world, host="alpha"), lease(world, "w2", host="beta")
    first = claim(here)
    talk.bind(first, "uuid-1", host="alpha", movable=False)
    fail(world, first)

    assert elsewhere.claim(10) == []
    assert world.get(run).is_host_pinned
    assert world.get(run).spec.demands["host"] == "alpha"
    second = claim(here)
    talk.carry(second, b"all that was said")
    fail(world, second)
    third = claim(elsewhere)
    assert talk.carried(third) == b"all that was said"
    assert talk.open(third).movable
    assert "host" not in world.get(run).spec.demands


@pytest.mark.parametrize("way", ["fail", "defer", "park", "release", "lose", "limit"])
def test_however_an_attempt_ends_the_next_one_goes_to_the_host(
    world: World, talk: AgentConversations, way: str
) -> None:
    run = alone(world, limits={"repo": 1} if way == "limit" else {})
    here = lease(world, host="alpha")
    held = claim(here)
    talk.bind(held, "uuid-1", host="alpha", movable=False)

    if way == "defer":
        world.queue.defer(held, world.now_ms, Outcome(class_=OutcomeClass.LIMIT))
    elif way == "park":
        world.queue.park(held, alarm_at_ms=world.now_ms + 1)
        world.pass_ms(1)
    elif way == "release":
        world.queue.release(held)
    elif way == "lose":
        assert world.watch_ms(world.lost_after_ms()) == ["w1"]
    else:
        world.queue.fail(held, EXIT, delay_ms=0)
    if way == "limit":
        world.limits.shut("repo", world.now_ms + 10)
        world.tick()
        assert lease(world, "w3", host="alpha").claim(1) == []
        assert world.get(run).reason == "limit repo"
        world.pass_ms(10)
    world.tick()

    assert lease(world, "w2", host="beta").claim(10) == []
    assert claim(lease(world, "w4", host="alpha")).id == run


def test_turns_that_wait_and_turns_that_come_go_to_the_host_of_their_session(
    world: World, talk: AgentConversations
) -> None:
    sessions = Sessions(world.store)
    sessions.new("chat", "claude")
    here, elsewhere = lease(world, host="alpha"), lease(world, "w2", host="beta")
    first, second = turn(world), turn(world)
    held = claim(here)
    talk.bind(held, "uuid-1", host="alpha", movable=False)
    world.queue.finish([(held, Outcome())])
    assert sessions.get("chat").stays

    assert elsewhere.claim(10) == []
    held = claim(here)
    assert held.id == second
    world.queue.finish([(held, Outcome())])
    third = turn(world, delay_ms=1000)
    world.pass_ms(1000)
    world.tick()
    assert elsewhere.claim(10) == []
    assert claim(here).id == third
    assert not world.get(first).is_host_pinned


def test_a_run_gets_its_own_demand_of_a_host_back_when_its_conversation_can_travel(
    world: World, talk: AgentConversations
) -> None:
    run = alone(world, demands={"host": "alpha|beta", "zone": "a"})
    here, there = lease(world, host="alpha", zone="a"), lease(world, "w2", host="beta", zone="a")
    held = claim(here)
    talk.bind(held, "uuid-1", host="alpha", movable=False)
    fail(world, held)
    assert there.claim(10) == []
    assert world.get(run).spec.demands == {"agent.claude": "ready", "host": "alpha", "zone": "a"}

    held = claim(here)
    talk.bind(held, "uuid-2", host="alpha", movable=True)
    fail(world, held)

    assert world.get(run).spec.demands == {"agent.claude": "ready", "host": "alpha|beta", "zone": "a"}
    assert claim(there).id == run


def test_a_transcript_of_another_conversation_is_not_carried(world: World, talk: AgentConversations) -> None:
    alone(world)
    held = claim(lease(world))
    talk.bind(held, "uuid-1", host="alpha", movable=True)
    talk.carry(held, b"one")
    talk.bind(held, "uuid-2", host="alpha", movable=True)

    assert talk.carried(held) is None
    assert not talk.open(held).movable


# ---- what is carried


@pytest.mark.full("takes 1 s")
def test_a_transcript_that_is_too_large_is_refused_by_name(world: World, talk: AgentConversations) -> None:
    alone(world)
    held = claim(lease(world))
    talk.bind(held, "uuid-1", host="alpha", movable=True)
    noise = random.Random(1).randbytes(TRANSCRIPT_BYTES)

    with world.unchanged(), pytest.raises(TranscriptTooLarge, match=f"{TRANSCRIPT_BYTES} is the most"):
        talk.carry(held, noise)
    talk.carry(held, bytes(10 * TRANSCRIPT_BYTES))
    assert talk.carried(held) == bytes(10 * TRANSCRIPT_BYTES), "it is small when it is compressed"


def test_there_is_nothing_to_carry_of_a_conversation_that_was_not_bound(world: World, talk: AgentConversations) -> None:
    alone(world)
    held = claim(lease(world))

    with world.unchanged(), pytest.raises(WrongState, match="has no conversation yet"):
        talk.carry(held, b"what was said")


def test_a_full_server_refuses_transcripts_and_takes_all_else(durable: Server) -> None:
    world = World(Repeating(durable.url))
    talk = AgentConversations(world.store)
    alone(world)
    held = claim(lease(world))
    world.store.connection.command("CONFIG", "SET", "maxmemory", "1")

    talk.bind(held, "uuid-1", host="alpha", movable=True)
    talk.spend(held, AgentSpending(turns=1))
    assert talk.open(held).agent_session == "uuid-1"
    with pytest.raises(TryLater):
        talk.carry(held, b"what was said")


def test_what_a_run_carries_goes_when_it_ends(world: World, talk: AgentConversations) -> None:
    run = alone(world)
    held = claim(lease(world))
    talk.bind(held, "uuid-1", host="alpha", movable=True)
    talk.carry(held, b"what was said")
    assert world.store.connection.command("EXISTS", world.store.key(0, "transcript", run)) == 1

    world.queue.finish([(held, Outcome())])

    assert world.store.connection.command("EXISTS", world.store.key(0, "transcript", run)) == 0


# ---- who may say it


def test_only_the_attempt_that_holds_a_run_speaks_of_its_conversation(world: World, talk: AgentConversations) -> None:
    run, worker = alone(world), lease(world)
    held = claim(worker)
    talk.bind(held, "uuid-1", host="alpha", movable=True)
    fail(world, held)
    again = claim(worker)
    stranger = Claim(new_run_id(0), "1-nobody", "", "")
    assert refusals(talk, held) == {Fenced}
    assert refusals(talk, stranger) == {NotFound}

    world.queue.finish([(again, Outcome())])

    with world.unchanged():
        assert refusals(talk, again) == {WrongState}
    assert world.get(run).agent_session == "uuid-1"


def refusals(talk: AgentConversations, held: Claim) -> set[type[Exception]]:
    """What answers each of the verbs."""
    found: set[type[Exception]] = set()
    for say in (
        lambda: talk.open(held),
        lambda: talk.bind(held, "uuid-2", host="alpha", movable=True),
        lambda: talk.spend(held, AgentSpending(turns=1)),
        lambda: talk.carry(held, b"what was said"),
        lambda: talk.carried(held),
    ):
        with pytest.raises((Fenced, NotFound, WrongState)) as refused:
            say()
        found.add(refused.type)
    return found


def test_everything_can_be_sent_twice(valkey: Server) -> None:
    world = World(Repeating(valkey.url))
    talk = AgentConversations(world.store)
    Sessions(world.store).new("chat", "claude")
    run, worker = turn(world), lease(world, host="alpha")
    held = claim(worker)
    talk.bind(held, "uuid-1", host="alpha", movable=False)
    talk.spend(held, AgentSpending(cost_usd=0.5, turns=1), {"cost": 0.5})
    talk.carry(held, b"what was said")
    assert talk.carried(held) == b"what was said"
    Sessions(world.store).close("chat")

    assert talk.open(held).spent.session == AgentSpending(cost_usd=0.0)
    assert world.get(run).spending == AgentSpending(cost_usd=0.5, turns=1)
    world.check()
