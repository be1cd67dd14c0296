"""Conversations: what attempts of agents begin from and tell, and where those after them go."""

from __future__ import annotations

from coordinator.test_sessions import claim, lease, turn
from world import World

from agentq.coordinator.conversations import Conversations
from agentq.coordinator.lifecycle import OutcomeClass
from agentq.coordinator.run import Outcome, RetryPolicy, Spending

EXIT = Outcome(class_=OutcomeClass.EXIT)


def alone(world: World, **fields: object) -> str:
    """A run of an agent without a session."""
    return turn(world, None, **({"retry": RetryPolicy(failures=5)} | fields))


def test_the_first_attempt_begins_from_nothing_and_the_next_from_what_was_bound(world: World) -> None:
    run, talk = alone(world), Conversations(world.store)
    first = claim(lease(world, host="alpha"))
    begins = talk.open(first)
    assert (begins.agent_session, begins.host, begins.totals) == (None, None, {})
    assert not begins.movable
    assert not begins.fork
    assert begins.spent.run == Spending(cost_usd=0.0)
    assert begins.spent.session is None

    talk.bind(first, "uuid-1", host="alpha", account="work", model="opus", movable=True)
    talk.spend(first, Spending(cost_usd=0.25, input_tokens=10, output_tokens=4, turns=1), {"cost": 0.25})
    world.queue.fail(first, EXIT, delay_ms=0)
    world.tick()
    again = talk.open(claim(lease(world, "w2", host="beta")))

    assert (again.agent_session, again.host, again.account, again.model) == ("uuid-1", "alpha", "work", "opus")
    assert again.totals == {"cost": 0.25}
    assert again.spent.run == Spending(cost_usd=0.25, input_tokens=10, output_tokens=4, turns=1)
    found = world.get(run)
    assert (found.agent, found.agent_session, found.host, found.account) == ("claude", "uuid-1", "alpha", "work")
    assert found.spending == again.spent.run


def test_a_conversation_that_cannot_travel_keeps_later_attempts_on_its_host(world: World) -> None:
    run, talk = alone(world), Conversations(world.store)
    here, elsewhere = lease(world, host="alpha"), lease(world, "w2", host="beta")
    first = claim(here)
    talk.bind(first, "uuid-1", host="alpha", movable=False)
    world.queue.fail(first, EXIT, delay_ms=0)
    world.tick()

    assert elsewhere.claim(10) == []
    assert world.get(run).tied
    assert world.get(run).spec.demands["host"] == "alpha"
    second = claim(here)
    talk.carry(second, b"all that was said")
    world.queue.fail(second, EXIT, delay_ms=0)
    world.tick()
    third = claim(elsewhere)
    assert talk.carried(third) == b"all that was said"
    assert talk.open(third).movable
    assert "host" not in world.get(run).spec.demands
