"""What the next attempt finds as if nothing had been, and what it does not."""

from __future__ import annotations

import pytest
from conformance import lives, ways
from conformance.lives import Build, then
from conformance.stage import MakeStage, Stage

from agentq.coordinator.model.lifecycle import OutcomeClass, State

LEAVE: dict[str, Build] = {
    "lost": lives.lose,
    "released": ways.release,
    "retried": then(Stage.fail, lives.come),
    "deferred": then(Stage.defer, lives.come),
    "woken": Stage.park,
    "requeued": then(Stage.finish, lives.requeue),
}
"""How a running attempt makes way for the next."""


@pytest.mark.parametrize("way", LEAVE)
def test_a_wish_to_be_awake_is_fulfilled_by_the_next_attempt(way: str, make_stage: MakeStage) -> None:
    """Else the run could never sleep again."""
    stage = make_stage()
    lives.wanted(lives.running)(stage)
    LEAVE[way](stage)
    stage.take("w2", start=True)

    assert stage.park() is State.WAITING


@pytest.mark.parametrize("way", LEAVE)
def test_reports_are_numbered_anew_in_each_attempt(way: str, make_stage: MakeStage) -> None:
    stage = make_stage()
    lives.wanted(lives.running)(stage)
    stage.queue.report(stage.claim, 9, {"percent": 90})
    LEAVE[way](stage)
    assert stage.world.get(stage.run).progress is None
    stage.take("w2", start=True)

    stage.queue.report(stage.claim, 1, {"percent": 10})

    assert stage.world.get(stage.run).progress == {"percent": 10}


@pytest.mark.parametrize("way", [way for way in LEAVE if way != "requeued"])
def test_patience_is_needed_only_until_the_first_attempt(way: str, make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.fields["expires_ms"] = 1000
    lives.wanted(lives.running)(stage)
    LEAVE[way](stage)
    stage.world.pass_ms(1000)
    stage.tick()

    stage.take("w2", start=True)
    stage.finish()


def test_a_run_is_forgotten_when_its_time_is_over_however_patient_it_was(make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.submit(expires_ms=1000, keep_ms=60_000)
    stage.queue.cancel(stage.run)
    stage.world.pass_ms(4999)
    stage.tick()
    assert stage.present() == "cancelled"

    stage.come()

    assert stage.present() == "none"
    assert stage.timer() is None


@pytest.mark.parametrize(
    ("end", "again"),
    [
        (lives.failed, OutcomeClass.EXIT),
        (then(lives.claimed_on_the_last_failure, Stage.fail), OutcomeClass.EXIT),
        (lives.lost_for_good, OutcomeClass.SPAWN),
        (lives.deferred_too_often, OutcomeClass.LIMIT),
    ],
    ids=["failed for good", "failed too often", "lost too often", "deferred too often"],
)
def test_a_requeued_run_has_all_its_budgets_again(end: Build, again: OutcomeClass, make_stage: MakeStage) -> None:
    stage = make_stage()
    end(stage)
    assert stage.present() == "failed"
    attempt = stage.attempt()
    stage.queue.requeue(stage.run)

    run = stage.world.get(stage.run)
    assert (run.failures, run.crashes, run.deferrals, run.outcome, run.due_at_ms) == (0, 0, 0, None, None)
    stage.take("w2", start=True)
    assert stage.fail(again) is State.SCHEDULED
    assert [each.attempt for each in stage.world.get(stage.run).attempts] == [*range(1, attempt + 2)]


@pytest.mark.parametrize(
    "build",
    [then(lives.asleep_until, lives.wake), then(lives.asleep_until, lives.come), then(lives.retried, lives.come)],
    ids=["woken early", "woken by its alarm", "retried"],
)
def test_a_run_that_is_to_go_on_now_is_due_at_no_time(build: Build, make_stage: MakeStage) -> None:
    stage = make_stage()
    build(stage)

    run = stage.world.get(stage.run)
    assert (run.state, run.due_at_ms, run.reason) == (State.PENDING, None, "")


@pytest.mark.parametrize("first", [True, False], ids=["before its own", "after its own"])
def test_a_pending_run_is_claimed_by_its_own_entry_only(first: bool, make_stage: MakeStage) -> None:
    """A second entry, such as a half-done repair leaves, is thrown away; it must not be two attempts."""
    stage = make_stage()
    stage.submit_other()
    lane = stage.key("lane", stage.spec.lane)
    if first:
        stage.plant("XADD", lane, "*", "run", stage.run)
    stage.submit()
    if not first:
        stage.plant("XADD", lane, "*", "run", stage.run)

    claims = stage.lease("w1").claim(10)

    assert [claim.id for claim in claims].count(stage.run) == 1
    assert stage.world.event_names(stage.run) == ["submitted", "claimed"]
    stage.queue.start(claims)
    assert stage.lease("w2").claim(10) == []
