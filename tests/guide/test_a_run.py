"""How a run lives, in the simplest cases. Read these first."""

from __future__ import annotations

from support.world import World

from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import Outcome


def test_a_submitted_run_is_claimed_started_and_finished(world: World) -> None:
    run = world.submit(argv=["echo", "hello"])
    lease = world.worker("w1")

    (claim,) = lease.claim(1)
    assert world.queue.start([claim]) == [None]
    assert world.queue.finish([(claim, Outcome(exit_code=0, result={"greeting": "hello"}))]) == [None]

    ended = world.get(run)
    assert ended.state is State.COMPLETED
    assert ended.outcome is not None
    assert ended.outcome.result == {"greeting": "hello"}
    assert world.event_names(run) == ["submitted", "claimed", "started", "completed"]


def test_a_run_waits_for_what_it_depends_on(world: World) -> None:
    first = world.submit()
    second = world.submit(after=[first])
    assert world.state(second) == "blocked"

    lease = world.worker("w1")
    world.queue.finish([(claim, Outcome()) for claim in lease.claim(10)])

    assert world.states([first, second]) == ["completed", "pending"]


def test_the_run_of_a_dead_worker_goes_to_another(world: World) -> None:
    claim = world.held("w1", started=True)

    assert world.watch_ms(world.lost_after_ms()) == ["w1"]

    (again,) = world.worker("w2").claim(1)

    assert again.id == claim.id
    assert again.fence != claim.fence
    assert world.get(claim.id).attempt == 2
