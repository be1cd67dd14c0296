"""The server's clock is set, ahead or back: workers that live lose nothing, dead ones are found, and what takes several
calls goes on."""

from __future__ import annotations

import pytest
from support.plan_stage import PlanStage, task
from support.world import World

from agentq.coordinator.bounds import ADMITTED_PER_CALL, DEPENDENTS_PER_CALL, RETRIED_TASKS_PER_CALL, START_DEADLINE_MS
from agentq.coordinator.errors import Evicted
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.workers.lease import WorkerLease

JUMPS_MS = (5_000, 14_000, 16_000, 29_000, 31_000, 3 * 3_600_000)
"""Less and more than what a reaper takes for a gap, than a lease, than anything."""
PHASES_MS = (0, 500, 2_500, 4_500)
"""How long after a heartbeat, and after a tick, the clock jumps."""
STEP_MS = 500


def held_by(world: World, name: str) -> tuple[WorkerLease, Claim]:
    """A worker with one run that has started."""
    lease, run = world.worker(name, name), world.submit(queue=name)
    (claim,) = lease.claim(1)
    assert claim.id == run
    assert world.queue.start([claim]) == [None]
    return lease, claim


def live(world: World, lease: WorkerLease, claim: Claim, milliseconds: int) -> list[str]:
    """Let time pass in which one worker sends heartbeats and a reaper ticks; returns who was declared lost."""
    lost: list[str] = []
    for _ in range(0, milliseconds, STEP_MS):
        since = world.now_ms % world.settings.heartbeat_ms
        if since < STEP_MS:
            assert lease.heartbeat([claim]).fenced_claims == []
        if since < STEP_MS or since >= world.settings.heartbeat_ms - STEP_MS:
            lost += world.reap()
        world.pass_ms(STEP_MS)
    return lost


@pytest.mark.parametrize("jump_ms", [*JUMPS_MS, *(-jump for jump in JUMPS_MS)])
@pytest.mark.parametrize("phase_ms", PHASES_MS)
def test_p3_a_clock_that_is_set_costs_no_live_worker_its_runs(world: World, jump_ms: int, phase_ms: int) -> None:
    lease, claim = held_by(world, "w1")
    assert live(world, lease, claim, world.lost_after_ms() + phase_ms) == []

    # What comes next may be a heartbeat or a reaper, whichever is due by a clock that nobody has set.
    world.pass_ms(jump_ms)
    assert world.reap() == []
    assert live(world, lease, claim, 2 * world.lost_after_ms()) == []

    assert world.get(claim.id).crashes == 0
    assert world.queue.finish([(claim, Outcome())]) == [None]


@pytest.mark.parametrize("jump_ms", [*JUMPS_MS, *(-jump for jump in JUMPS_MS)])
@pytest.mark.parametrize("since_ms", [0, 4_000, 31_000], ids=lambda since_ms: f"dead for {since_ms}")
def test_p3_a_clock_that_is_set_hides_no_dead_worker(world: World, jump_ms: int, since_ms: int) -> None:
    """It is lost as if it had died when a reaper first looked at the new time, or sooner."""
    lease, claim = held_by(world, "alive")
    assert live(world, lease, claim, world.lost_after_ms()) == []
    _, dead = held_by(world, "dead")
    live(world, lease, claim, since_ms)

    world.pass_ms(jump_ms)
    first_look_ms = world.settings.tick_ms
    lost = live(world, lease, claim, first_look_ms + world.lost_after_ms() + world.settings.reap_grace_ms)

    assert set(lost) == {"dead"}
    assert world.state(dead.id) == "pending"
    assert world.queue.start([dead])[0] is not None, "what the dead says is refused"
    assert world.queue.finish([(claim, Outcome())]) == [None]


def test_p3_a_lease_from_before_the_clock_was_set_back_is_no_longer_than_any(world: World) -> None:
    """Nor does it let a worker claim that has not renewed it since."""
    lease, _ = held_by(world, "w1")
    world.pass_ms(-3 * 3_600_000)
    world.reap()
    world.pass_ms(world.settings.lease_ms)

    with pytest.raises(Evicted):
        lease.claim(1)


def test_a_run_that_its_worker_does_not_know_of_goes_on_though_the_clock_was_set_back(world: World) -> None:
    lease, claim = held_by(world, "w1")
    lease.heartbeat([])
    world.pass_ms(-3 * 3_600_000)
    lease.heartbeat([])
    world.pass_ms(world.settings.forget_ms)
    lease.heartbeat([])

    assert world.state(claim.id) == "pending"


@pytest.mark.parametrize("jump_ms", [JUMPS_MS[-1], -JUMPS_MS[-1]])
def test_p3_a_run_that_is_about_to_start_when_the_clock_is_set_has_its_time_anew(world: World, jump_ms: int) -> None:
    """And no more than that."""
    lease, run = world.worker("w1"), world.submit()
    (claim,) = lease.claim(1)
    world.pass_ms(jump_ms)
    assert lease.heartbeat([claim]).fenced_claims == []

    world.pass_ms(START_DEADLINE_MS - 1)
    assert lease.heartbeat([claim]).fenced_claims == []
    assert world.get(run).crashes == 0
    world.pass_ms(1)
    assert lease.heartbeat([claim]).fenced_claims == [claim]
    assert world.get(run).crashes == 1


def test_a_plan_that_is_being_stopped_is_stopped_though_the_clock_was_set_back(world: World) -> None:
    """One call cancels so many tasks; the promoter goes on with the rest at once, whatever the clock says."""
    studio = PlanStage(world, [task(f"t{number}") for number in range(DEPENDENTS_PER_CALL + 1)])
    partition = studio.plans.partition(studio.plan)
    assert world.store.call("plan/cancel", partition, studio.plan, "enough") == "ok 1"

    world.pass_ms(-3 * 3_600_000)
    world.tick()

    assert studio.plans.counts(studio.plan) == {State.CANCELLED: DEPENDENTS_PER_CALL + 1}
    assert studio.state == "cancelled"


def test_tasks_that_begin_again_with_another_do_so_though_the_clock_was_set_back(world: World) -> None:
    """One call brings back so many tasks; the promoter goes on with the rest at once, whatever the clock says."""
    studio = PlanStage(
        world, [task("first"), *(task(f"t{number}", "first") for number in range(RETRIED_TASKS_PER_CALL + 1))]
    )
    studio.fail("first")
    world.tick()
    assert studio.plans.counts(studio.plan) == {State.FAILED: 1, State.SKIPPED: RETRIED_TASKS_PER_CALL + 1}
    world.queue.requeue(studio.runs()["first"])
    assert studio.plans.counts(studio.plan)[State.SKIPPED] > 0

    world.pass_ms(-3 * 3_600_000)
    world.tick()

    assert studio.plans.counts(studio.plan) == {State.PENDING: 1, State.BLOCKED: RETRIED_TASKS_PER_CALL + 1}


def test_those_that_wait_at_a_limit_are_let_in_though_the_clock_was_set_back(world: World) -> None:
    """One call lets in so many; the promoter goes on with the rest at once, whatever the clock says."""
    world.limits.set("repo:acme", most=0)
    runs = [world.submit(limits={"repo:acme": 1}, session="one") for _ in range(ADMITTED_PER_CALL + 1)]
    world.limits.set("repo:acme", most=len(runs))
    assert world.state(runs[-1]) == "blocked"

    world.pass_ms(-3 * 3_600_000)
    world.tick()

    assert set(world.states(runs)) == {"pending"}
