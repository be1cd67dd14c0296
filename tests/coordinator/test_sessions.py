"""Sessions: their life, and the line of their turns, of which one is let go at a time."""

from __future__ import annotations

from world import World

from agentq.coordinator.lease import Lease
from agentq.coordinator.queue import Claim
from agentq.coordinator.run import Outcome
from agentq.coordinator.sessions import Sessions
from agentq.coordinator.turn import Budgets

AGENT = {"agent.claude": "ready"}


AN_AGENT = {"kind": "agent", "agent": "claude", "prompt": "go on", "argv": ()}


def turn(world: World, session: str | None = "chat", **fields: object) -> str:
    """Submit a turn of a session, by default the next of `chat`."""
    return world.submit(**(AN_AGENT | {"session": session} | fields))


def lease(world: World, name: str = "w1", **labels: str) -> Lease:
    return world.worker(name, labels=AGENT | labels)


def claim(worker: Lease) -> Claim:
    (found,) = worker.claim(10)
    return found


def test_a_session_is_told_as_it_was_begun(world: World) -> None:
    sessions = Sessions(world.store)
    made = sessions.new("chat", "claude", cwd="/src", model="opus", budgets=Budgets(cost_usd=1.5, turns=3))

    assert made == sessions.get("chat")
    assert (made.agent, made.state, made.cwd, made.model) == ("claude", "open", "/src", "opus")
    assert made.budgets == Budgets(cost_usd=1.5, turns=3)
    assert (made.live, made.turns, made.spent.cost_usd, made.stays) == (None, 0, 0.0, False)
    assert made.created_at_ms == made.used_at_ms == world.now_ms


def test_turns_go_one_after_the_other(world: World) -> None:
    Sessions(world.store).new("chat", "claude")
    ids = [turn(world) for _ in range(3)]
    worker = lease(world)
    assert world.states(ids) == ["pending", "blocked", "blocked"]
    assert world.get(ids[1]).reason == "turn"

    for run in ids:
        held = claim(worker)
        assert held.id == run
        world.queue.finish([(held, Outcome())])
    assert worker.claim(10) == []
