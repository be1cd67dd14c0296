"""What agents spend: told in all, added up by differences, never taken back."""

from __future__ import annotations

import pytest
from coordinator.test_conversations import alone, fail
from coordinator.test_sessions import claim, lease, turn
from support.world import World

from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.spec import AgentSpending, RetryPolicy
from agentq.coordinator.sessions.conversations import AgentConversations
from agentq.coordinator.sessions.verbs import Sessions


@pytest.fixture
def talk(world: World) -> AgentConversations:
    return AgentConversations(world.store)


def test_what_attempts_tell_in_all_is_added_up_by_differences(world: World, talk: AgentConversations) -> None:
    Sessions(world.store).new("chat", "claude")
    run, worker = turn(world, retry=RetryPolicy(failures=1)), lease(world)
    first = claim(worker)
    talk.spend(first, AgentSpending(cost_usd=0.1, input_tokens=10, cached_tokens=5, output_tokens=3, turns=1))
    more = AgentSpending(cost_usd=0.3, input_tokens=30, cached_tokens=15, output_tokens=9, turns=2)
    for _ in range(2):
        told = talk.spend(first, more)
        assert told.run == told.session == more
    fail(world, first)
    second = claim(worker)

    told = talk.spend(second, AgentSpending(cost_usd=0.2, input_tokens=5, turns=1))

    both = AgentSpending(cost_usd=0.5, input_tokens=35, cached_tokens=15, output_tokens=9, turns=3)
    assert told.run == told.session == both
    assert talk.open(second).spent.run == more, "of earlier attempts"
    assert world.get(run).spending == Sessions(world.store).get("chat").spent == both


def test_no_number_ever_goes_back(world: World, talk: AgentConversations) -> None:
    alone(world)
    held = claim(lease(world))
    before = AgentSpending(cost_usd=0.3, input_tokens=30, cached_tokens=15, output_tokens=9, turns=2)
    talk.spend(held, before, {"cost": 3})

    told = talk.spend(held, AgentSpending(cost_usd=0.1, input_tokens=10, output_tokens=3, turns=1), {"cost": 1})

    assert told.run == before
    assert talk.open(held).totals == {"cost": 3}


def test_a_cost_that_nobody_knows_stays_unknown_until_it_is_told(world: World, talk: AgentConversations) -> None:
    run, worker = alone(world), lease(world)
    first = claim(worker)
    assert talk.spend(first, AgentSpending()).run.cost_usd == 0.0, "nothing was spent yet"
    assert talk.spend(first, AgentSpending(input_tokens=10)).run.cost_usd is None
    assert talk.spend(first, AgentSpending(cost_usd=0.5, input_tokens=20)).run.cost_usd == 0.5
    fail(world, first)
    second = claim(worker)

    told = talk.spend(second, AgentSpending(input_tokens=7))

    assert (told.run.cost_usd, told.run.known_usd, told.run.input_tokens) == (None, 0.5, 27)
    found = world.get(run).spending
    assert found is not None
    assert found.cost_usd is None


def test_sums_of_many_small_costs_are_exact(world: World, talk: AgentConversations) -> None:
    alone(world, retry=RetryPolicy(failures=30))
    worker = lease(world)
    for _ in range(30):
        held = claim(worker)
        told = talk.spend(held, AgentSpending(cost_usd=0.1, input_tokens=2**40))
        fail(world, held)

    assert (told.run.cost_usd, told.run.input_tokens) == (3.0, 30 * 2**40)


@pytest.mark.parametrize(
    "spending",
    [
        AgentSpending(cost_usd=-1),
        AgentSpending(cost_usd=1e12),
        AgentSpending(turns=-1),
        AgentSpending(input_tokens=1 << 60),
    ],
)
def test_what_nobody_can_have_spent_is_refused(world: World, talk: AgentConversations, spending: AgentSpending) -> None:
    alone(world)
    held = claim(lease(world))

    with world.unchanged(), pytest.raises(Invalid, match="The spending is out of range"):
        talk.spend(held, spending)


def test_a_total_of_the_conversation_has_in_it_what_a_killed_attempt_could_not_tell(
    world: World, talk: AgentConversations
) -> None:
    Sessions(world.store).new("chat", "claude")
    run, worker = turn(world, retry=RetryPolicy(failures=1)), lease(world)
    first = claim(worker)
    talk.spend(first, AgentSpending(input_tokens=10, turns=1))
    fail(world, first)
    assert Sessions(world.store).get("chat").spent.cost_usd is None
    second = claim(worker)

    talk.spend(second, AgentSpending(cost_usd=0.7, input_tokens=5, turns=1), {"cost_usd": 0.7})

    assert Sessions(world.store).get("chat").spent.cost_usd == 0.7
    told = world.get(run).spending
    assert told is not None
    assert told.cost_usd == 0.7
