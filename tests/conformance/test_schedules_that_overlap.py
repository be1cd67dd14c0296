"""What becomes of a tick whose schedule has runs that have not ended; and the door that its runs pass."""

from __future__ import annotations

from conformance.calendar import HOUR, MINUTE, Calendar

from agentq.coordinator.flow import WhenFull
from agentq.coordinator.identity import new_run_id
from agentq.coordinator.lifecycle import OutcomeClass
from agentq.coordinator.run import Outcome


def test_a_tick_is_skipped_while_the_run_before_it_lives(calendar: Calendar) -> None:
    calendar.add(overlap="skip")
    calendar.pass_ms(MINUTE)
    calendar.pass_ms(MINUTE)
    (claim,) = calendar.claim()
    calendar.pass_ms(MINUTE)
    calendar.finish(claim.id)
    calendar.pass_ms(MINUTE)

    assert calendar.told() == [("made", 1), ("skipped", 2), ("skipped", 3), ("made", 4)]
    assert calendar.schedules.history("s")[1].run == claim.id


def test_queued_runs_go_one_after_the_other_even_if_one_between_them_is_cancelled(calendar: Calendar) -> None:
    calendar.add(overlap="queue")
    for _ in range(4):
        calendar.pass_ms(MINUTE)
    (first,) = calendar.claim(9)
    runs = calendar.runs()
    assert calendar.states() == ["running", "blocked", "blocked", "blocked"]

    calendar.world.queue.cancel(runs[1])
    assert calendar.states() == ["running", "cancelled", "blocked", "blocked"]
    calendar.world.queue.fail(first, Outcome(class_=OutcomeClass.EXIT))
    assert calendar.states() == ["failed", "cancelled", "pending", "blocked"]
    (third,) = calendar.claim(9)
    calendar.finish(third.id)

    assert calendar.states() == ["failed", "cancelled", "completed", "pending"]


def test_a_queue_of_runs_has_an_end(calendar: Calendar) -> None:
    calendar.add(overlap="queue", missed="all", catch_up_ms=24 * HOUR)

    calendar.pass_ms(103 * MINUTE)

    assert len(calendar.get().live) == 100
    assert calendar.told()[-3:] == [("skipped", 101), ("skipped", 102), ("skipped", 103)]
    assert calendar.schedules.history("s")[0].why == "100 runs before it have not ended"


def test_the_earlier_run_is_cancelled_and_the_later_waits_until_it_is_gone(calendar: Calendar) -> None:
    calendar.add(overlap="cancel_old")
    calendar.pass_ms(MINUTE)
    calendar.pass_ms(MINUTE)
    assert calendar.states() == ["cancelled", "pending"]
    (held,) = calendar.claim()

    calendar.pass_ms(MINUTE)
    assert calendar.states() == ["cancelled", "running", "blocked"]
    calendar.pass_ms(MINUTE // 2)
    calendar.world.queue.release(held)

    assert calendar.states() == ["cancelled", "cancelled", "pending"]
    outcome = calendar.world.get(calendar.runs()[0]).outcome
    assert outcome is not None
    assert calendar.runs()[1] in str(outcome.error)


def test_a_run_that_begins_again_counts_as_live(calendar: Calendar) -> None:
    calendar.add(overlap="skip")
    calendar.pass_ms(MINUTE)
    (run,) = calendar.runs()
    calendar.world.queue.cancel(run)
    calendar.world.queue.requeue(run)

    calendar.pass_ms(MINUTE)

    assert calendar.told() == [("made", 1), ("skipped", 2)]


def test_what_damage_leaves_among_the_live_runs_does_not_hold_up_the_next(calendar: Calendar) -> None:
    calendar.add(overlap="skip")
    world, partition = calendar.world, calendar.schedules.partition("s")
    world.store.connection.command("ZADD", world.store.key(partition, "made", "s"), 0, new_run_id(partition))

    calendar.pass_ms(MINUTE)

    assert calendar.told() == [("made", 1)]


def test_a_run_of_a_schedule_passes_the_same_door_as_any_other(calendar: Calendar) -> None:
    world = calendar.world
    home = next(
        f"key-{each}"
        for each in range(99)
        if calendar.schedules.partition(f"key-{each}") == calendar.schedules.partition("s")
    )
    calendar.add(dedupe_key=home, limits={"gpu": 1}, keep_ms=5000, retry={"failures": 2})
    world.flow.limit("gpu", most=0, when_full=WhenFull.CANCEL_NEWEST)
    calendar.pass_ms(MINUTE)
    assert calendar.states() == ["cancelled"]
    world.flow.unlimit("gpu")
    calendar.pass_ms(MINUTE)
    calendar.pass_ms(MINUTE)

    assert calendar.told() == [("made", 1), ("made", 2), ("skipped", 3)]
    (_, second) = calendar.runs()
    assert calendar.schedules.history("s")[0].run == second
    (claim,) = calendar.claim()
    assert world.queue.fail(claim, Outcome(class_=OutcomeClass.EXIT)) == "scheduled"
